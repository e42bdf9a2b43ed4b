"""K and V that every query block reads again: what of it memory serves, and what L2."""

from __future__ import annotations

from dataclasses import dataclass

from roofcalc.core import BITS, Limits, Shape
from roofcalc.models.tiles import Tiling, tiling
from roofcalc.numeric import Num, ceil_div, everywhere, maximum, minimum, where


@dataclass(frozen=True)
class Rereads:
    """Keys that a KV head's query blocks load, by where they come from, and what the ledger says of it."""

    hbm: Num
    l2: Num
    why: str
    notes: tuple[str, ...]


def rereads(shape: Shape, count: Tiling, slots: int, limits: Limits) -> Rereads:
    """How often K and V come from memory when every query block of a group's heads reads them.

    `slots` thread blocks run at once, head after head and in step, so that what they load together comes
    from memory once. Either all query blocks of a KV head run in one wave, or the head has the GPU to
    itself. So K and V are read from memory again only where a head needs several waves and its live keys
    exceed L2: then once per wave, each wave the keys that its rows see. No key that some query
    sees counts less than once.
    """
    rows = minimum(count.blocks, slots) * count.m
    live = minimum(shape.S, rows + shape.behind + shape.ahead)
    held = ceil_div(live * (shape.d + shape.dv) * BITS[shape.kv_dtype], 8)
    waves = ceil_div(shape.group * count.blocks, slots)
    seen = shape.S - count.begin
    march = minimum(waves * seen, shape.group * tiling(shape, slots * count.m, count.n).keys)
    hbm = where((waves > 1) & (held > limits.l2), maximum(march, seen), seen)
    l2 = shape.group * count.keys - hbm
    if everywhere(hbm == seen):
        return Rereads(hbm, l2, "keys that some query sees, once: the query blocks that share it find it in L2", ())
    note = (
        f"K and V of one KV head exceed the {limits.l2 / 2**20:.4g} MiB of L2: the {slots} query blocks that "
        f"run at once march together, so memory is read once per wave of them; the other re-reads stay in L2"
    )
    why = "keys, once per wave of query blocks where K and V of the head exceed L2"
    return Rereads(hbm, l2, why, (note,))
