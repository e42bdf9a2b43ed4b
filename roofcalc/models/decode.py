"""Decode attention by kernels that do not split the keys, and the copy of K and V that spoils one of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from roofcalc.core import Kernel, Limits, Plan, Shape, Tile
from roofcalc.models import standard, variant
from roofcalc.models.cache import cached, checked, visible
from roofcalc.models.decode_notes import intensity, machine, makespan, padding
from roofcalc.models.decode_parts import Units, attention, launches
from roofcalc.models.splitting import capped, notes, packed, partial_bytes, resolve, split_kernels
from roofcalc.models.tiles import FLASH2_HEADS, check_fit, choose, flash2_tile, smem
from roofcalc.numeric import everywhere

NAIVE_SOURCE = "arXiv:2205.14135, Algorithm 0, with the T new tokens as its queries"
FLASH_SOURCE = "arXiv:2307.08691, Algorithm 1, for one query row"
GQA_SOURCE = "arXiv:2305.13245 (grouped queries), one read of K and V for a group's query heads"


@variant("naive", source=NAIVE_SOURCE, command="decode")
def naive(shape: Shape, limits: Limits) -> Plan:
    """Three kernels; the scores are small, so K and V are nearly all that moves.

    Each KV head is read once for the query heads that share it, as a product of T · group rows. An integer
    cache is read with its scales, as if the products took it. `expected` is for PyTorch's eager kernels.
    """
    checked(shape)

    def build(single: Shape) -> tuple[Kernel, ...]:
        seen = visible(single)
        scales = {array.tensor: array for array in (a.read() for a in cached(seen)[2:])}
        needs = {"scores": ("K_scale",), "pv": ("V_scale",)}
        return tuple(
            replace(k, accesses=(*k.accesses, *(scales[n] for n in needs.get(k.name, ()) if n in scales)))
            for k in standard.naive(seen, limits).kernels
        )

    kernels = launches(shape, build)
    written = sum((a.bytes for k in kernels for a in k.accesses if a.tensor in "SP" and a.mode == "write"), 0)
    return Plan("naive", shape, kernels, NAIVE_SOURCE, intensity(shape, shape.group, kernels), written)


REPLICATED_SOURCE = "repeat_kv of common model code (Hugging Face transformers), a common bug"


@variant("replicated", source=REPLICATED_SOURCE, command="decode")
def replicated(shape: Shape, limits: Limits, *, splits: int | str | None = None) -> Plan:
    """A common bug: every KV head is copied for each of its query heads, and the copies are read.

    `replicate` reads the cache and writes heads/kv_heads times as much; `attention` reads that, so grouped
    queries save nothing. The attention is that of `split-kv` on the copy, with its --splits.
    """
    checked(shape)
    wide = replace(shape, kv_heads=shape.heads)
    units = resolve(splits, wide, limits, packed(wide, limits))

    def copies(single: Shape) -> tuple[Kernel, ...]:
        seen = visible(single)
        copy = cached(replace(seen, kv_heads=seen.heads))
        numbers = sum((array.elements for array in copy), 0)
        lines = (*(a.read() for a in cached(seen)), *(a.write(why=a.why.replace("kv_", "")) for a in copy))
        return (Kernel("replicate", (), lines, family="expand", sizes={"elements": numbers}),)

    copied = launches(shape, copies)
    kernels = split_kernels(wide, units, "attention", splits is None)
    bug = (
        "a common bug: K and V of a KV head are copied for each of its query heads (repeat_kv, "
        "repeat_interleave, expand and reshape); a kernel that takes kv_heads reads the cache once instead",
    )
    said = (*bug, *intensity(wide, 1, kernels), *notes(wide, limits, units, kernels))
    memory = sum((a.bytes for k in copied for a in k.accesses if a.mode == "write"), 0) + partial_bytes(
        kernels
    )
    return Plan("replicated", shape, (*copied, *kernels), REPLICATED_SOURCE, said, memory)


@variant("flash", source=FLASH_SOURCE, command="decode")
def flash(shape: Shape, limits: Limits) -> Plan:
    """FlashAttention-2's forward kernel as it is: one unit per batch and query head, keys not split.

    Its 128-row tile holds the T rows of one query head, and the tensor pipe executes all of it. The heads
    of a group run side by side: K and V come from HBM once, for the other heads from L2. Raises TileError
    where its tile does not fit. `expected` is for that library.
    """
    checked(shape)
    bottom = replace(shape, causal=shape.causal and not everywhere(shape.T == 1))
    block = choose("flash", bottom, FLASH2_HEADS, partial(flash2_tile, limits=limits), None, None)
    tile = Tile(128 if block.d <= 128 else 256, smem(block, shape, stages=1), 255, block.m, block.n)
    check_fit("flash", block, tile, limits)
    units = Units(1, tile)
    kernels = launches(shape, lambda single: (attention("attention", single, units),))
    return _unsplit("flash", FLASH_SOURCE, shape, limits, units, kernels)


@variant("flash-gqa", source=GQA_SOURCE, command="decode")
def flash_gqa(shape: Shape, limits: Limits) -> Plan:
    """One unit per batch and KV head: the rows of a group's query heads share a 64-row tile and one read."""
    checked(shape)
    units = packed(shape, limits)
    kernels = launches(shape, lambda single: (attention("attention", single, capped(units, single)),))
    return _unsplit("flash-gqa", GQA_SOURCE, shape, limits, units, kernels)


def _unsplit(
    name: str, source: str, shape: Shape, limits: Limits, units: Units, kernels: tuple[Kernel, ...]
) -> Plan:
    said = (*intensity(shape, shape.group, kernels), *machine(limits, kernels[0]), *padding(shape, units))
    return Plan(name, shape, kernels, source, (*said, *makespan(shape, units)))
