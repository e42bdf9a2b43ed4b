"""Fused attention: one kernel, the score matrix cut into tiles that are handed out to the SMs.

The forward kernel walks a tile of rows over blocks of columns, the backward kernel a tile of columns over
blocks of rows. A tile pays once for its start and its end, and once for every block that its mask leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcalc.calibration.machine import Machine
from roofcalc.core import BITS, Kernel, Shape, Term
from roofcalc.numeric import Num, ceil_div, maximum, minimum, where
from roofcalc.splits import SLOTS, flash_splits

if TYPE_CHECKING:
    from roofcalc.constants import Decode, Fused

FORWARD, BACKWARD = 4, 10
"""FLOP per score and column of the head: two products forward, five backward (arXiv:2307.08691, section 3.1)."""

WIDE = 128
"""Above this head dim an accumulator takes more registers than a thread has left."""

SPLIT_ROWS = 64
"""Query rows of a tile in FlashAttention-2's split kernel (flash_fwd_launch_template.h, kBlockM)."""


@dataclass(frozen=True)
class Grid:
    """The tiles of one launch: how many, blocks of all of them, blocks of the longest one."""

    tiles: Num
    blocks: Num
    longest: Num


def grid(kernel: Kernel, shape: Shape, rows: int, columns: int, across: Num) -> Grid:
    """The kernel's tiles of `rows` and their blocks of `columns` out of `across` rows or columns."""
    longest = ceil_div(across, columns)
    if shape.window is not None:
        longest = minimum(longest, ceil_div(rows + shape.ahead + shape.behind, columns) + 1)
    return Grid(kernel.sizes["tiles"], kernel.sizes["blocks"], longest)


def block_time(shape: Shape, c: Fused, gpu: Machine, scores: int, flops: int, dropout: bool) -> tuple[Num, Num]:
    """Seconds that a block of `scores` takes an SM for its products and for its softmax; the two add.

    Ping-pong scheduling (arXiv:2407.08608, section 3.1) is there to hide one behind the other, but the
    measurements of three libraries at three head dims show their sum: a cost per score and column of the
    head, and a cost per score. With perfect overlap the same fit is twice as far off. Above d = 128
    registers run out, which costs `wide`. `flops` is per score and column.
    """
    wide = where(shape.d > WIDE, c.wide, 1.0)
    products = c.matrix * flops * scores * (shape.d + shape.dv) / 2 / (gpu.tensor / gpu.sms)
    softmax = c.softmax * scores * (1 + dropout * c.dropout) / (gpu.exp / gpu.sms)
    return wide * products, wide * softmax


def makespan(g: Grid, gpu: Machine, heads: Num, tile: Num, block: Num) -> Num:
    """Seconds until the last SM is done, each tile costing `tile` and each block `block`.

    An SM takes the next tile as it falls free, head after head. At best the work is even over the SMs; but
    the longest tile of the last head starts only when all other heads are handed out, and then runs alone.
    """
    work = g.tiles * tile + g.blocks * block
    before = maximum(0, 1 - gpu.sms / g.tiles) * work * (1 - 1 / heads) / gpu.sms
    return maximum(work / gpu.sms, tile + g.longest * block + before)


def attention(
    kernel: Kernel, c: Fused, gpu: Machine, *, flops: int = FORWARD, decode: Decode | None = None
) -> tuple[Term, ...]:
    """A fused kernel, forward or backward: floor + makespan of its tiles, or its bytes where they take longer.

    The kernel's `sizes` hold the shape, the number of tiles and of their blocks, its tile rows x columns.
    `decode` are the constants of a library that splits the keys where there are too few row tiles. With
    `in_turn` (FlashAttention-1) every step reads O, l and m, corrects them and writes them back before the
    next one may start, so the bytes add to the makespan: 104 and 73 TFLOP/s on an A100 at d = 64 and 128
    (arXiv:2307.08691, Figure 5) against 107 and 85 of this sum; keys are not split.
    """
    shape: Shape = kernel.sizes["shape"]
    rows, columns = kernel.sizes["rows"], kernel.sizes["columns"]
    heads = shape.batch * shape.heads
    products, softmax = block_time(shape, c, gpu, rows * columns, flops, bool(kernel.sizes.get("dropout")))
    block = products + softmax
    edges = int(shape.causal) + int(shape.window is not None) * (1 if shape.causal else 2)
    tile = c.tile + edges * ceil_div(rows, columns) * c.masked * block
    g = grid(kernel, shape, rows, columns, shape.S if flops == FORWARD else shape.T)
    busy = makespan(g, gpu, heads, tile, block)
    memory = kernel.bytes_through("hbm") / (c.hbm * gpu.hbm)
    combine: Num = 0.0
    in_turn = bool(kernel.sizes.get("in_turn"))
    if decode is not None and not (kernel.sizes.get("dropout") or in_turn):
        short = ceil_div(shape.T, SPLIT_ROWS)
        blocks = ceil_div(shape.S, columns)
        splits = flash_splits(heads * short, SLOTS * gpu.sms, blocks)
        g_split = Grid(heads * short * splits, heads * short * blocks, ceil_div(blocks, splits))
        part = SPLIT_ROWS / rows
        busy = where(splits > 1, makespan(g_split, gpu, heads, c.tile * part, block * part), busy)
        keys = shape.batch * shape.heads * shape.S * (shape.d + shape.dv) * BITS[shape.kv_dtype] / 8
        memory = where(splits > 1, maximum(memory, keys / (decode.hbm * gpu.hbm)), memory)
        combine = where(splits > 1, decode.combine + decode.partial * splits, 0.0)
    beyond = memory if in_turn else maximum(memory - busy, 0)
    even, starts = g.blocks * block / gpu.sms, g.tiles * tile / gpu.sms
    return (
        Term("floor", c.floor, "start and end of the launch"),
        Term("products", even * (products / block), f"matrix products of the blocks, {rows} x {columns} scores each"),
        Term("softmax", even * (softmax / block), "the blocks' softmax, which adds to the products"),
        Term("tiles", starts, "start and end of every tile, and its masked blocks"),
        Term("tail", busy - even - starts, "SMs that wait for the longest tile (below 0: keys split over SMs)"),
        Term("memory", beyond, f"what {c.hbm:.0%} of HBM needs {'in turn with' if in_turn else 'beyond'} that"),
        Term("combine", combine, "a second kernel, where the keys are split"),
    )
