"""Multi-head latent attention at decode: one latent for all heads, or K and V expanded from it."""

from __future__ import annotations

from dataclasses import replace

from roofcalc.core import Kernel, Limits, Plan, RoofcalcError, Shape
from roofcalc.models import variant
from roofcalc.models.cache import at_least_one, checked, visible
from roofcalc.models.decode_notes import beside, intensity, plain
from roofcalc.models.decode_parts import Units, attention, combine, key_tile, launches
from roofcalc.models.latent import HEAD_DIM, LORA_RANK, ROPE_DIM, latent
from roofcalc.models.splitting import SPLIT_ROWS, capped, notes, packed, partial_bytes, resolve, split_kernels
from roofcalc.numeric import Num

MLA_SOURCE = "arXiv:2405.04434 (DeepSeek-V2), section 2.1; deepseek-ai/FlashMLA"
LATENT_KEYS = 64
"""Keys of a block of FlashMLA, which are also its page."""


@variant("mla", source=MLA_SOURCE, command="decode")
def mla(
    shape: Shape,
    limits: Limits,
    *,
    kv_lora_rank: int | None = None,
    rope_dim: int | None = None,
    expanded: bool = False,
    splits: int | str | None = None,
) -> Plan:
    """Latent attention: every head attends to one latent of --kv-lora-rank + --rope-dim numbers a token.

    Absorbed (as DeepSeek decodes): d = rank + rope, dv = rank, one KV head, V a part of what is read. The
    projections that are absorbed lie outside this kernel. With --expanded K (128 + rope) and V (128) of
    every head are cached and read instead. The head dims follow; --d and --dv are not used.
    """
    rank = LORA_RANK if kv_lora_rank is None else kv_lora_rank
    rope = ROPE_DIM if rope_dim is None else rope_dim
    at_least_one("--kv-lora-rank", rank)
    if rope < 0:
        raise RoofcalcError(f"--rope-dim is {rope}; it must be at least 0")
    checked(shape)
    if expanded:
        return _expanded(expanded_shape(shape, rope), limits, splits)
    inner = replace(shape, kv_heads=1, d=rank + rope, dv=rank)
    tile = key_tile(inner, limits, block_q=SPLIT_ROWS, most=LATENT_KEYS, shared=True)
    units = resolve(splits, inner, limits, Units(inner.heads, tile, shared=True))

    def build(single: Shape) -> tuple[Kernel, ...]:
        mine = capped(units, single)
        cache = latent(visible(single), rank, rope)
        kernel = attention("split", single, mine, cache=cache, auto=splits is None)
        return kernel, *combine(single, mine.splits, splits is None)

    kernels = launches(inner, build)
    said = (*_intensity(inner, rank, rope, kernels), *notes(inner, limits, units, kernels))
    return Plan("mla", inner, kernels, MLA_SOURCE, said, partial_bytes(kernels))


def expanded_shape(shape: Shape, rope: Num) -> Shape:
    """The shape without absorption: K of 128 + rope and V of 128 numbers for every head."""
    return replace(shape, kv_heads=shape.heads, d=HEAD_DIM + rope, dv=HEAD_DIM)


def _expanded(wide: Shape, limits: Limits, splits: int | str | None) -> Plan:
    units = resolve(splits, wide, limits, packed(wide, limits))
    kernels = split_kernels(wide, units, auto=splits is None)
    note = f"not absorbed: K of {wide.d} and V of {wide.dv} numbers are cached and read for every head"
    said = (note, *intensity(wide, 1, kernels), *notes(wide, limits, units, kernels))
    return Plan("mla", wide, kernels, MLA_SOURCE, said, partial_bytes(kernels))


def _intensity(shape: Shape, rank: Num, rope: Num, kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """The intensity that one latent for all heads gives: T · heads rows share each read."""
    if not plain(shape.T, shape.heads):
        return ()
    token = sum(a.bytes for a in (t.read() for t in latent(replace(shape, batch=1, S=1), rank, rope)))
    value = 2 * shape.T * shape.heads * (shape.d + shape.dv) / token
    return (
        f"intensity of the cache's reads alone: T × heads × 2 × (d + dv) / bytes of a token = {shape.T} × "
        f"{shape.heads} × 2 × ({shape.d} + {shape.dv}) / {token} = {value:.4g} FLOP/B, whatever the batch and the "
        "number of keys",
        *beside(value, kernels),
    )
