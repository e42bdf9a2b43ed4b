"""Fused attention: FlashAttention 1, 2 and 3, and the chunked attention that came before them.

The useful work is that of `ideal`: two matrix products and a softmax over the pairs that the mask leaves.
What the kernels run beyond it (masked parts of tiles, padding, the bookkeeping of the online softmax) counts
as executed. The exponentials of that bookkeeping, one a row and tile, are left out of the exp roof.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from roofcalc.core import BITS, Access, Kernel, Limits, Plan, RoofcalcError, Shape, Tensor, Tile, Work
from roofcalc.models import variant
from roofcalc.models.parts import product, tensors
from roofcalc.models.rereads import rereads
from roofcalc.models.standard import FULL_SQUARE
from roofcalc.models.tiles import (
    FLASH1_HEADS,
    FLASH2_HEADS,
    FLASH3_HEADS,
    Block,
    Tiling,
    check_fit,
    choose,
    flash1_tile,
    flash2_tile,
    flash3_tile,
    smem,
    tiling,
)
from roofcalc.numeric import Num, ceil, ceil_div, everywhere, maximum, minimum

QUERY_CHUNK = 1024
"""The queries of a chunk in Rabe & Staats, Figure 1 (the default of its query_chunk_size)."""

DRIFT = (
    "causal: query blocks of unlike length drift apart, and K and V evicted between query blocks are read "
    "again, while the ledger reads them once (an H200's counters: 16 % more DRAM bytes at T = 8192, d = 128)"
)
FP8_OUTPUT = "the release writes O of fp8 inputs in bf16: batch·heads·T·dv bytes more than this ledger"


def _check_dtype(name: str, shape: Shape, allowed: tuple[str, ...]) -> None:
    if shape.dtype in allowed:
        return
    other = "flash3 takes fp8" if shape.dtype == "fp8" else f"naive, chunked and ideal take {shape.dtype}"
    raise RoofcalcError(f"--dtype {shape.dtype}: {name} takes {', '.join(allowed)}; {other}")


def _dtype_notes(shape: Shape) -> tuple[str, ...]:
    if shape.kv_dtype == shape.dtype:
        return ()
    return (f"the library takes one dtype; K and V move as {shape.kv_dtype}, products run in {shape.dtype}",)


def _work(shape: Shape, executed: Num, d: Num, dv: Num, why: str) -> tuple[Work, ...]:
    """Products and softmax: useful over the exact pairs, executed over other pairs and widths d and dv."""
    four = f"4 (max, subtract, add, divide) · pairs; executed: 4 (scale, max, subtract, add) · {why}"
    return (
        product(2 * shape.pairs * shape.d, "2·pairs·d (Q Kᵀ)", shape.dtype, 2 * executed * d),
        product(2 * shape.pairs * shape.dv, "2·pairs·dv (P V)", shape.dtype, 2 * executed * dv),
        Work("vector", 4 * shape.pairs, four, executed=4 * executed),
        Work("exp", shape.pairs, f"1 (exponential) · pairs; executed over {why}", executed=executed),
    )


def _rescale(rows: Num, dv: Num, why: str) -> Work:
    """Carrying l and the unnormalised O over to a new maximum, for `rows` rows in all."""
    return Work("vector", 0, f"executed: (dv + 2) · {why} (rescale O, l, m)", executed=rows * (dv + 2))


def _divide(rows: Num, dv: Num) -> Work:
    """O / l and L = m + log l at the end, for `rows` rows."""
    return Work("vector", 0, "executed: (dv + 2) · rows (one division by l, and L)", executed=rows * (dv + 2))


def _moving(*accesses: Access) -> tuple[Access, ...]:
    """The ledger without the lines that move nothing."""
    return tuple(access for access in accesses if not everywhere(access.elements == 0))


def tile_sizes(shape: Shape, count: Tiling) -> dict[str, Any]:
    """What a fused kernel's expected time needs to know: its query tiles and the blocks that they run."""
    heads = shape.batch * shape.heads
    tiles = {"tiles": heads * count.blocks, "blocks": heads * count.tiles, "rows": count.m, "columns": count.n}
    return {"shape": shape, **tiles}


FLASH1_SOURCE = "arXiv:2205.14135, Algorithm 1"


@variant("flash1", source=FLASH1_SOURCE)
def flash1(shape: Shape, limits: Limits, *, block_q: int | None = None, block_kv: int | None = None) -> Plan:
    """K and V in the outer loop: Q is read, and O, l and m are read and written, once per block of keys.

    The re-reads are charged to HBM as the paper counts them; in elements a head, with c blocks of keys:
    2 S d + c (2 T d + 4 T) + (c - 1) T d - 2 T, O in the model's dtype, l and m (the line L) in fp32. The
    causal mask and a window skip empty tiles. Every step rescales O and divides it by l. One thread block a
    head. Raises RoofcalcError for a dtype other than fp16 and bf16 and for a tile that does not fit.
    `expected` is for the library's later releases, which hand the row blocks of a head to several SMs.
    """
    _check_dtype("flash1", shape, ("fp16", "bf16"))
    block = choose("flash1", shape, FLASH1_HEADS, flash1_tile, block_q, block_kv, largest=math.inf)
    tile = Tile(128, smem(block, shape, stages=1, output=True), 255, block.m, block.n)
    check_fit("flash1", block, tile, limits)
    t = tensors(shape)
    heads = shape.batch * shape.heads
    count = tiling(shape, block.m, block.n)
    q, o = replace(t.Q, elements=heads * shape.d), replace(t.O, elements=heads * shape.dv)
    state = Tensor("L", 2 * heads, "fp32", "l and m")
    seen = shape.S - count.begin
    keys = shape.batch * shape.kv_heads * seen
    k, v = replace(t.K, elements=keys * shape.d), replace(t.V, elements=keys * shape.dv)
    again = count.rows - shape.T
    visits, revisits = "rows of the tiles that run", "(rows of the tiles that run - T)"
    # Algorithm 1, lines 11 and 12, a row: two differences of maxima, l and l~ scaled; an element of O:
    # scale it, scale P V, add them, divide by l
    step = 4 * block.dv + 4
    every = "executed: (4·dv + 4) · rows of executed tiles (rescale O and l and divide, every step)"
    kernel = Kernel(
        "attention",
        (
            *_work(shape, heads * count.pairs, block.d, block.dv, "executed tiles"),
            Work("vector", 0, every, executed=heads * count.tiles * block.m * step),
        ),
        _moving(
            k.read(why="batch·kv_heads·d · keys that some query sees"),
            v.read(why="batch·kv_heads·dv · keys that some query sees"),
            k.read(shape.group - 1, "l2", "batch·(heads - kv_heads)·keys·d: a group's other query heads"),
            v.read(shape.group - 1, "l2", "batch·(heads - kv_heads)·keys·dv: a group's other query heads"),
            q.read(count.rows - count.blind, why=f"batch·heads·d · {visits}, blocks that see no key left out"),
            o.read(again, why=f"batch·heads·dv · {revisits}: not in the first pass"),
            o.write(count.rows, why=f"batch·heads·dv · {visits}"),
            state.read(again, why=f"2 (l, m) · batch·heads · {revisits}: not in the first pass"),
            state.write(count.rows, why=f"2 (l, m) · batch·heads · {visits}"),
        ),
        grid=heads,
        tile=tile,
        family="forward",
        sizes=tile_sizes(shape, count) | {"in_turn": True},
    )
    notes = _dtype_notes(shape)
    if not everywhere(maximum(shape.d, shape.dv) <= FLASH1_HEADS[-1]):
        notes += (f"the release of FlashAttention-1 takes a head dim of {FLASH1_HEADS[-1]} at most",)
    return Plan("flash1", shape, (kernel,), FLASH1_SOURCE, notes)


def _query_outer(
    name: str, source: str, shape: Shape, limits: Limits, block: Block, tile: Tile, notes: tuple[str, ...]
) -> Plan:
    """Query blocks own their output: Q and O once, K and V per query block, one division at the end."""
    check_fit(name, block, tile, limits)
    t = tensors(shape)
    heads, kv_heads = shape.batch * shape.heads, shape.batch * shape.kv_heads
    count = tiling(shape, block.m, block.n)
    kv = rereads(shape, count, limits.sms * max(1, limits.resident(tile)), limits)
    q = replace(t.Q, elements=heads * shape.d)
    k, v = replace(t.K, elements=kv_heads * shape.d), replace(t.V, elements=kv_heads * shape.dv)
    again = "keys that a group's query blocks load, less those from memory"
    later = "rows of every tile but a query block's first"
    kernel = Kernel(
        "attention",
        (
            *_work(shape, heads * count.pairs, block.d, block.dv, "executed tiles"),
            _rescale(heads * (count.tiles - count.seeing) * block.m, block.dv, later),
            _divide(heads * count.blocks * block.m, block.dv),
        ),
        _moving(
            q.read(shape.T - count.blind, why="batch·heads·d · T, blocks that see no key left out"),
            k.read(kv.hbm, why=f"batch·kv_heads·d · {kv.why}"),
            v.read(kv.hbm, why=f"batch·kv_heads·dv · {kv.why}"),
            k.read(kv.l2, "l2", f"batch·kv_heads·d · {again}"),
            v.read(kv.l2, "l2", f"batch·kv_heads·dv · {again}"),
            t.O.write(),
            t.L.write(),
        ),
        grid=heads * count.blocks,
        tile=tile,
        family="forward",
        sizes=tile_sizes(shape, count),
    )
    return Plan(name, shape, (kernel,), source, (*_dtype_notes(shape), *notes, *kv.notes))


FLASH2_SOURCE = "arXiv:2307.08691, Algorithm 1; tiles of Dao-AILab/flash-attention, flash_fwd_launch_template.h"


@variant("flash2", source=FLASH2_SOURCE)
def flash2(shape: Shape, limits: Limits, *, block_q: int | None = None, block_kv: int | None = None) -> Plan:
    """Queries in the outer loop: K and V re-read per query block through L2, O and L written once.

    O stays unnormalised until one division at the end. The tile follows head dim, mask and shared memory as
    the library chooses it; a thread block holds one block each of Q, K and V. 255 registers a thread, as
    counters show on an H200. Raises RoofcalcError for a dtype other than fp16 and bf16, a head dim above 256
    without given block sizes, and a tile that does not fit. `expected` is for the library.
    """
    _check_dtype("flash2", shape, ("fp16", "bf16"))
    ship = partial(flash2_tile, limits=limits)
    block = choose("flash2", shape, FLASH2_HEADS, ship, block_q, block_kv)
    warps = 8 if max(block.d, block.dv) > 128 and block.m >= 128 else 4
    tile = Tile(32 * warps, smem(block, shape, stages=1), 255, block.m, block.n)
    return _query_outer("flash2", FLASH2_SOURCE, shape, limits, block, tile, (DRIFT,) if shape.causal else ())


FLASH3_SOURCE = "arXiv:2407.08608, Algorithm 1; tiles of Dao-AILab/flash-attention, hopper/tile_size.h"


@variant("flash3", source=FLASH3_SOURCE)
def flash3(shape: Shape, limits: Limits, *, block_q: int | None = None, block_kv: int | None = None) -> Plan:
    """FlashAttention-2's traffic on Hopper: exponentials run behind the tensor pipe, and fp8.

    One warpgroup loads, one for each 64 query rows (at most three) computes; K and V have two stages. The
    registers are what the launch bounds leave a thread before warpgroups trade them: 168 with 384 threads, as
    counters show for cuDNN's kernel on an H200, 128 with 512. Raises RoofcalcError for a dtype other than
    fp16, bf16 and fp8, a head dim above 256 without given block sizes, and a tile that does not fit.
    `expected` is for the library.
    """
    _check_dtype("flash3", shape, ("fp16", "bf16", "fp8"))
    ship = partial(flash3_tile, bits=BITS[shape.dtype])
    block = choose("flash3", shape, FLASH3_HEADS, ship, block_q, block_kv)
    threads = 128 * (1 + min(3, ceil_div(block.m, 64)))
    registers = min(255, limits.registers // threads // 8 * 8)
    tile = Tile(threads, smem(block, shape, stages=2), registers, block.m, block.n, stages=2)
    notes = (FP8_OUTPUT,) if shape.dtype == "fp8" else ()
    return _query_outer("flash3", FLASH3_SOURCE, shape, limits, block, tile, notes)


CHUNKED_SOURCE = "arXiv:2112.05682, sections 2 and 4"


@variant("chunked", source=CHUNKED_SOURCE)
def chunked(shape: Shape, _limits: Limits) -> Plan:
    """Rabe & Staats: queries in chunks of 1024, keys in chunks of ⌈√S⌉, each query chunk reads K and V once.

    `memory` is what every query of a chunk holds beside its inputs and output, in fp32: the scores of one
    chunk of keys, the running sum and maximum, and the running O. (The paper's listing keeps one such summary
    for each chunk of keys and merges them at the end.) No chunk is skipped for a mask. `expected` is for a
    good implementation of the listing.
    """
    t = tensors(shape)
    heads = shape.batch * shape.heads
    keys = ceil(shape.S**0.5)
    passes = ceil_div(shape.T, QUERY_CHUNK)
    later = heads * shape.T * (ceil_div(shape.S, keys) - 1)
    kernel = Kernel(
        "attention",
        (
            *_work(shape, shape.square, shape.d, shape.dv, "the full square"),
            _rescale(later, shape.dv, "rows of every chunk of keys but the first"),
            _divide(heads * shape.T, shape.dv),
        ),
        (
            t.Q.read(),
            t.K.read(passes, why=f"batch·kv_heads·S·d · ceil(T / {QUERY_CHUNK})"),
            t.V.read(passes, why=f"batch·kv_heads·S·dv · ceil(T / {QUERY_CHUNK})"),
            t.O.write(),
        ),
    )
    memory = heads * minimum(shape.T, QUERY_CHUNK) * (keys + shape.dv + 2) * BITS["fp32"] // 8
    notes = (FULL_SQUARE,) if shape.causal or shape.window is not None else ()
    return Plan("chunked", shape, (kernel,), CHUNKED_SOURCE, notes, memory)
