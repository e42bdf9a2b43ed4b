"""How FlashAttention chooses the number of splits of the keys, by counting waves."""

from __future__ import annotations

from roofcalc.numeric import Num, ceil_div, everywhere, first_within, maximum, minimum, over, where

SLOTS = 2
"""Thread blocks on an SM that FlashAttention-2 counts with (it passes twice the number of SMs)."""

MOST, FULL, GOOD = 128, 0.8, 0.85
LARGE = 50 * 2**20
"""FlashAttention-3's idea of an L2 cache, in bytes."""


def flash_splits(tiles: Num, slots: int, blocks: Num, *, repeats: bool = False) -> Num:
    """The splits of FlashAttention-2 for `tiles` row tiles of `blocks` key blocks each on `slots` places.

    One where the tiles fill 80 % of the slots. Else the smallest number whose last wave is filled to
    within 85 % of the best one's, at most 128, one a slot and one a block; a number that leaves the longest
    split as long as the number before is passed over, unless `repeats` (FlashAttention-3 has no such test).
    Source: Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp, num_splits_heuristic.
    """
    full = tiles >= FULL * slots
    if everywhere(full):
        return 0 * (tiles + blocks) + 1
    most = minimum(minimum(MOST, slots), blocks)
    numbers = range(1, MOST + 1)
    fills = over(numbers, lambda n: _fill(tiles * n, slots, _choice(blocks, n, most, repeats)), tiles + blocks)
    return where(full, 1, 1 + first_within(fills, GOOD))


def flash3_splits(
    tiles: Num, sms: int, blocks: Num, *, row_tiles: Num, head_bytes: Num, bounded: bool
) -> Num:
    """The splits that FlashAttention-3 takes for `tiles` row tiles, one to an SM.

    One for 4 blocks or fewer. Where the tiles fill 80 % of the SMs it splits only a head whose keys exceed
    50 MiB, which has twice as many row tiles as there are SMs, without a causal mask or window (`bounded`).
    Source: Dao-AILab/flash-attention, hopper/heuristics.h, num_splits_heuristic.
    """
    large = (head_bytes > LARGE) & (row_tiles >= 2 * sms) & (not bounded)
    full = where(large, minimum(ceil_div(head_bytes, LARGE), MOST), 1)
    few = where(blocks <= 4, 1, flash_splits(tiles, sms, blocks, repeats=True))
    return where(tiles >= FULL * sms, full, few)


def _choice(blocks: Num, splits: Num, most: Num, repeats: bool) -> Num:
    """Whether a number of splits may be chosen."""
    fits = splits <= most
    if repeats:
        return fits
    return fits & ((ceil_div(blocks, splits) != ceil_div(blocks, maximum(splits - 1, 1))) | (splits == 1))


def _fill(units: Num, slots: int, allowed: Num) -> Num:
    """The share of the slots that all waves of `units` use; 0 where the number of splits is no choice."""
    return where(allowed, units / slots / ceil_div(units, slots), 0.0)
