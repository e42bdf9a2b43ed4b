"""The keys of a sequence dealt to several units: how many, as libraries choose, and the two kernels."""

from __future__ import annotations

from dataclasses import replace

from roofcalc.core import BITS, Kernel, Limits, RoofcalcError, Shape
from roofcalc.models.cache import at_least_one, visible
from roofcalc.models.decode_notes import PARTIAL, machine, makespan, padding, unfinished
from roofcalc.models.decode_parts import Units, attention, combine, key_tile, launches, one
from roofcalc.models.tiles import FLASH3_HEADS, MixedTiles, flash3_tile
from roofcalc.numeric import Num, ceil_div, everywhere, minimum
from roofcalc.splits import SLOTS, flash3_splits, flash_splits

SPLIT_ROWS = 64
"""Query rows of FlashAttention-2's split kernel (flash_fwd_launch_template.h)."""


def split_keys(d: int) -> int:
    """Keys of a block of that kernel, which also counts the blocks for its split rule."""
    return 256 if d <= 64 else 128 if d <= 128 else 64


def packed(shape: Shape, limits: Limits, splits: Num = 1) -> Units:
    """Units of the split kernel: a 64-row tile that holds the T rows of every query head of a group."""
    keys = split_keys(one(shape.d))
    return Units(shape.group, key_tile(shape, limits, block_q=SPLIT_ROWS, most=keys), splits)


def flash3_choice(shape: Shape, limits: Limits) -> Num:
    """The splits that FlashAttention-3 chooses for `shape`, whose query heads it packs, with its tile."""
    causal = shape.causal and not everywhere(shape.T == 1)
    local = shape.window is not None
    d, dv = (next((head for head in FLASH3_HEADS if head >= one(size)), 256) for size in (shape.d, shape.dv))
    rows, columns = flash3_tile(d, dv, causal, local, BITS[shape.kv_dtype])
    row_tiles = ceil_div(shape.T * shape.group, rows)
    keys = shape.S if shape.window is None else minimum(shape.S, shape.window + rows)
    return flash3_splits(
        shape.batch * shape.kv_heads * row_tiles,
        limits.sms,
        ceil_div(keys, columns),
        row_tiles=row_tiles,
        head_bytes=shape.S * (shape.d + shape.dv) * (1 if shape.kv_dtype == "fp8" else 2),
        bounded=causal or local,
    )


def default_splits(shape: Shape, limits: Limits, units: Units) -> Num:
    """The splits where none are given: FlashAttention-2's rule on the kernel's own units and blocks.

    The library itself packs the query heads of a group only for one token without a window, and counts
    the blocks of keys outside a window too; for those cases the rule is the same and its counts are not.
    """
    blocks = ceil_div(visible(shape).S, units.block_kv)
    return flash_splits(replace(units, splits=1).count(shape), SLOTS * limits.sms, blocks)


def resolve(splits: int | str | None, shape: Shape, limits: Limits, units: Units) -> Units:
    """The units with the splits asked for, else with what FlashAttention-2's rule makes of these units.

    Raises RoofcalcError for a number below 1 or above the keys that there are, MixedTiles for an array of
    sizes of which some are split and others not: those are other kernels.
    """
    keys = visible(shape).S
    if splits is None:
        chosen = default_splits(shape, limits, units)
        if not (everywhere(chosen == 1) or everywhere(chosen > 1)):
            raise MixedTiles("some of these sizes are split and others not; evaluate them one by one")
        return replace(units, splits=chosen)
    if isinstance(splits, str):
        raise RoofcalcError(f"--splits {splits!r} is not known; give a number or auto")
    at_least_one("--splits", splits)
    if not everywhere(splits <= keys):
        raise RoofcalcError(f"--splits {splits} is more than the {keys} keys that there are to split")
    return replace(units, splits=splits)


def capped(units: Units, shape: Shape) -> Units:
    """The units with no more splits than the sequence has keys (a short one in a batch of unlike lengths)."""
    return replace(units, splits=minimum(units.splits, visible(shape).S))


def partial_bytes(kernels: tuple[Kernel, ...]) -> Num:
    """Bytes of the partial outputs and log-sum-exps that lie between the two kernels."""
    lines = (line for kernel in kernels for line in kernel.accesses)
    return sum((a.bytes for a in lines if a.tensor in PARTIAL and a.mode == "write"), 0)


def split_kernels(shape: Shape, units: Units, name: str = "split", auto: bool = False) -> tuple[Kernel, ...]:
    """The attention kernel over all splits and, with more than one, the kernel that combines them."""

    def build(single: Shape) -> tuple[Kernel, ...]:
        mine = capped(units, single)
        return attention(name, single, mine, auto=auto), *combine(single, mine.splits, auto=auto)

    return launches(shape, build)


def notes(shape: Shape, limits: Limits, units: Units, kernels: tuple[Kernel, ...]) -> tuple[str, ...]:
    """What any split kernel's report says of the machine."""
    said = (machine(limits, kernel) for kernel in kernels)
    return (
        *(note for notes in said for note in notes),
        *unfinished(kernels, units.splits),
        *padding(shape, units),
        *makespan(shape, units),
    )
