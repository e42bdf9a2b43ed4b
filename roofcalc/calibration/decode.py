"""Decode attention: a few rows of queries against many keys, split over thread blocks and combined."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roofcalc.calibration.fused import attention
from roofcalc.calibration.machine import Machine, overlapped
from roofcalc.core import Kernel, Shape, Term
from roofcalc.numeric import Num, ceil_div, log2, maximum, minimum, where
from roofcalc.splits import SLOTS, flash_splits

if TYPE_CHECKING:
    from roofcalc.constants import Decode, Fused

KEY_BLOCKS = (256, 128, 64)
"""Keys of a block in FlashAttention-2's split kernel, for d up to 64, 128, 256 (flash_api.cpp, block_n)."""

PREFILL_ROWS, PREFILL_KEYS = 128, (128, 64, 64)
"""Its prefill kernel's tile for the same head dims (flash_fwd_launch_template.h)."""


def by_head_dim(d: Num, values: tuple[int, int, int]) -> Num:
    """The value for d up to 64, up to 128, above: kernels are compiled for three head dims."""
    return where(d <= 64, values[0], where(d <= 128, values[1], values[2]))


def splits_of(kernel: Kernel, gpu: Machine, unsplit: Fused | None) -> Num:
    """The splits that were asked for, else the library's own rule (FlashAttention-2's where it is one)."""
    shape: Shape = kernel.sizes["shape"]
    if unsplit is None or not kernel.sizes.get("auto"):
        return kernel.sizes["splits"]
    blocks = ceil_div(shape.seen, by_head_dim(shape.d, KEY_BLOCKS))
    return flash_splits(units_of(kernel) + 0 * blocks, SLOTS * gpu.sms, blocks)


def units_of(kernel: Kernel) -> Num:
    """Thread blocks of the attention kernel before its keys are split: one a KV head, or one a query head."""
    shape: Shape = kernel.sizes["shape"]
    if kernel.grid is None or kernel.family == "combine":
        return shape.batch * shape.kv_heads
    return kernel.grid // kernel.sizes["splits"]


def split(kernel: Kernel, c: Decode, gpu: Machine, unsplit: Fused | None = None) -> tuple[Term, ...]:
    """The split kernel: each thread block walks its share of the keys, all of them share the memory.

    A block alone streams 21 B/ns whatever the memory could give (its loads in flight over their latency),
    so that time is a chain of keys until enough blocks fill HBM. A library that falls back to its prefill
    kernel where it does not split (`unsplit`) is bound there by the padded rows of a tile instead.
    """
    shape: Shape = kernel.sizes["shape"]
    splits = splits_of(kernel, gpu, unsplit)
    moved = kernel.bytes_through("hbm")
    keys = shape.seen
    key = moved / (shape.batch * shape.kv_heads * keys)
    walk = ceil_div(units_of(kernel) * splits, SLOTS * gpu.sms) * ceil_div(keys, splits) * key
    ramp = c.ramp * minimum(1, moved / gpu.l2_bytes)
    terms = (
        Term("floor", c.floor, "start, Q load, first K and V, epilogue"),
        *overlapped(
            Term("keys", walk / c.stream, f"a block walks its keys at {c.stream / 1e9:.0f} B/ns"),
            Term("memory", moved / (c.hbm * gpu.hbm) + ramp, f"K and V at {c.hbm:.0%} of HBM"),
            c.overlap,
        ),
    )
    if unsplit is None:
        return terms
    whole = sum((term.seconds for term in attention(_grouped(kernel), unsplit, gpu)), 0)
    mine = sum((term.seconds for term in terms), 0)
    padded = where(splits > 1, 0.0, whole - mine)
    return (*terms, Term("padded rows", padded, "not split: the prefill kernel, a tile of mostly empty rows"))


def _grouped(kernel: Kernel) -> Kernel:
    """The prefill kernel that an unsplit decode runs: the query heads of a unit are the rows of one tile."""
    shape: Shape = kernel.sizes["shape"]
    units = units_of(kernel)
    rows = ceil_div(shape.T * shape.batch * shape.heads, units)
    keys = shape.seen
    folded = replace(shape, T=rows, S=keys, heads=ceil_div(units, shape.batch), causal=False, window=None)
    columns = by_head_dim(shape.d, PREFILL_KEYS)
    tiles = units * ceil_div(rows, PREFILL_ROWS)
    sizes = {"shape": folded, "tiles": tiles, "blocks": tiles * ceil_div(keys, columns)}
    return replace(kernel, sizes={**sizes, "rows": PREFILL_ROWS, "columns": columns})


def combine(kernel: Kernel, c: Decode, gpu: Machine, unsplit: Fused | None = None) -> tuple[Term, ...]:
    """The combine kernel: a thread block per row reads the partial results one after the other.

    It is so small that latency rules: a term per doubling of the splits (the search for the largest
    log-sum-exp), and one per split, more of it once the rows outnumber the SMs.
    """
    shape: Shape = kernel.sizes["shape"]
    splits = splits_of(kernel, gpu, unsplit)
    rows = maximum(1, shape.batch * shape.heads * shape.T / gpu.sms) if unsplit is None else 1
    on = where(splits > 1, 1.0, 0.0)
    return (
        Term("floor", on * c.combine, "start and end of a small kernel"),
        Term("largest", on * c.doubling * log2(splits), "per doubling of the splits"),
        Term("partials", on * c.partial * splits * rows, "per split, one after the other"),
    )
