"""The backward pass of fused attention: P is recomputed from Q, K and the log-sum-exp, never stored.

Five matrix products for each pair that the mask leaves (Q Kᵀ again, dV, dP, dQ, dK), one exponential, and
dS = P∘(dP - delta) with delta = rowsum(dO∘O) (arXiv:2205.14135, Algorithm 4; arXiv:2307.08691, Algorithm 2).
Blocks of keys are the outer loop: dK and dV stay on chip, dQ is summed in memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from roofcalc.core import Kernel, Limits, Plan, RoofcalcError, Shape, Tensor, Tile, Work
from roofcalc.models import backward
from roofcalc.models.backward_parts import (
    fold,
    gradients,
    group_reads,
    key_tile_sizes,
    leaving,
    per_row,
    recomputing_work,
    row_sums,
    summed_in_memory,
)
from roofcalc.models.backward_tiles import (
    Staging,
    flash1_smem,
    flash1_staging,
    flash2_bwd_tile,
    flash2_smem,
    flash2_staging,
    flash3_bwd_tile,
    flash3_smem,
    flash3_staging,
    flash3_threads,
    smem_lines,
)
from roofcalc.models.decode_parts import moved
from roofcalc.models.parts import tensors
from roofcalc.models.tiles import (
    FLASH1_HEADS,
    FLASH2_HEADS,
    FLASH3_HEADS,
    Block,
    check_fit,
    choose,
    flash1_tile,
    tiling,
)
from roofcalc.numeric import ceil_div

KEPT = "memory: the log-sum-exp of every layer; with it delta and the fp32 sums of the layer at work"
ATOMICS = (
    "dQ: every block of keys adds its part to an fp32 accumulator with atomic adds; each is one write to L2, "
    "and every row comes from memory and goes back once"
)
FLASH1_NOTE = (
    "re-reads of Q, O, dO and dQ are charged to HBM as the paper counts them; a counter shows fewer bytes, "
    "because some hit L2 and the release reads O in its first pass only"
)
OWN_TILE = (
    "the backward kernels have tiles of their own: --block-q and --block-kv set them with --pass bwd only"
)
SEEN = "rows that the blocks of keys meet (at least T)"
AGAIN = "rows that the blocks of keys meet again"


def _check_dtype(name: str, shape: Shape) -> None:
    if shape.dtype not in ("fp16", "bf16"):
        raise RoofcalcError(
            f"--dtype {shape.dtype}: the backward pass of {name} takes fp16 or bf16; "
            f"naive takes {shape.dtype}"
        )


def _given(shape: Shape, block_q: int | None, block_kv: int | None) -> tuple[int | None, int | None]:
    """The block sizes that are meant for the backward kernels."""
    return (block_q, block_kv) if shape.direction == "bwd" else (None, None)


def _tile_notes(shape: Shape, block_q: int | None, block_kv: int | None) -> tuple[str, ...]:
    given = block_q is not None or block_kv is not None
    return (OWN_TILE,) if given and shape.direction != "bwd" else ()


FLASH1_SOURCE = "arXiv:2205.14135, Algorithm 4; tiles of its release, fmha_dgrad_fp16_kernel_loop.sm80.cu"


@backward("flash1")
def flash1_backward(
    shape: Shape, limits: Limits, *, block_q: int | None = None, block_kv: int | None = None
) -> Plan:
    """One kernel, keys outside: per block of keys it reads Q, O, dO, l, m and dQ again and writes dQ.

    All of it is charged to HBM, as the paper counts; in elements a head, with c blocks of keys:
    4 S d + c (4 T d + 2 T) + (c - 1) T d, dQ in the model's dtype and not read in the first pass, l and m in
    fp32. delta is recomputed at every step. Raises RoofcalcError as the forward model does.
    """
    _check_dtype("flash1", shape)
    block = choose(
        "flash1", shape, FLASH1_HEADS, flash1_tile, *_given(shape, block_q, block_kv), largest=math.inf
    )
    staging = flash1_staging(limits)
    tile = Tile(256, flash1_smem(block, staging), 255, block.m, block.n)
    check_fit("flash1", block, tile, limits)
    t = tensors(shape)
    g = gradients(t)
    heads = shape.batch * shape.heads
    count = tiling(shape, block.m, block.n)
    rows, again = count.rows, count.rows - shape.T
    state = Tensor("L", 2 * heads, "fp32", "2 (l, m) · batch·heads")
    reads = ((t.Q, "d"), (t.O, "dv"), (g.dO, "dv"))
    dq = per_row(g.dQ, shape)
    steps = heads * count.tiles * block.m
    delta = Work(
        "vector", 0, "executed: 2·dv · rows of executed tiles (delta)", executed=steps * 2 * block.dv
    )
    others = "atomic adds of the group's other query heads"
    kernel = Kernel(
        "bwd",
        (*recomputing_work(shape, count, block), delta),
        moved(
            (
                *group_reads(shape, t),
                *(per_row(x, shape).read(rows, why=f"batch·heads·{width} · {SEEN}") for x, width in reads),
                state.read(rows, why=f"2 (l, m) · batch·heads · {SEEN}"),
                dq.read(again, why=f"batch·heads·d · {AGAIN}"),
                dq.write(rows, why=f"batch·heads·d · {SEEN}"),
                g.dK.write(),
                g.dV.write(),
                *(x.write(shape.group - 1, "l2", others) for x in (g.dK, g.dV)),
                *smem_lines(block, heads * count.tiles, shape.dtype, staging),
            )
        ),
        grid=heads,
        tile=tile,
        family="backward",
        sizes=key_tile_sizes(shape, count),
    )
    memory = shape.layers * state.read(shape.T).bytes
    notes = (FLASH1_NOTE, *_tile_notes(shape, block_q, block_kv))
    return Plan("flash1", shape, (kernel,), FLASH1_SOURCE, notes, memory)


def _key_outer(
    name: str, source: str, shape: Shape, limits: Limits, block: Block, tile: Tile, staging: Staging
) -> Plan:
    """A thread block for each block of keys: Q and dO re-read through L2, dQ summed by atomic adds."""
    check_fit(name, block, tile, limits)
    t = tensors(shape)
    g = gradients(t)
    heads = shape.batch * shape.heads
    count = tiling(shape, block.m, block.n)
    rows, again = count.rows, count.rows - shape.T
    delta = replace(t.L, name="delta")
    dq = replace(g.dQ, name="dQ_accum", dtype="fp32")
    own, after, between = leaving(shape, g, summed=name == "flash3")
    arrays = (t.Q, g.dO, t.L, delta)
    main = Kernel(
        "bwd",
        recomputing_work(shape, count, block),
        moved(
            (
                *group_reads(shape, t),
                *(x.read() for x in arrays),
                *(per_row(x, shape).read(again, "l2", f"{x.why} for T = {AGAIN}") for x in arrays),
                *summed_in_memory(per_row(dq, shape), shape.T, rows),
                *own,
                *smem_lines(block, heads * count.tiles, shape.dtype, staging),
            )
        ),
        grid=heads * ceil_div(shape.S, block.n),
        tile=tile,
        family="backward",
        sizes=key_tile_sizes(shape, count),
    )
    cleared = (dq, *(between if name == "flash3" else ()))
    kernels = (row_sums(t, g, delta, cleared), main, fold("bwd_dq_convert", dq, g.dQ, "scale"), *after)
    memory = shape.layers * t.L.read().bytes + sum(x.read().bytes for x in (delta, dq, *between))
    return Plan(name, shape, kernels, source, (KEPT, ATOMICS), memory)


FLASH2_SOURCE = (
    "arXiv:2307.08691, Algorithm 2; tiles of Dao-AILab/flash-attention, flash_bwd_launch_template.h"
)


@backward("flash2")
def flash2_backward(
    shape: Shape, limits: Limits, *, block_q: int | None = None, block_kv: int | None = None
) -> Plan:
    """delta, the main kernel, the conversion of dQ: dK and dV stay on chip, dQ is an fp32 sum in memory.

    Q and dO are read once per block of keys. With grouped query heads dK and dV are written for each query
    head and added up. Raises RoofcalcError as the forward model does.
    """
    _check_dtype("flash2", shape)
    ship = partial(flash2_bwd_tile, limits=limits)
    block = choose("flash2", shape, FLASH2_HEADS, ship, *_given(shape, block_q, block_kv))
    staging = flash2_staging(block, limits)
    tile = Tile(256, flash2_smem(block, staging, limits), 255, block.m, block.n)
    plan = _key_outer("flash2", FLASH2_SOURCE, shape, limits, block, tile, staging)
    return replace(plan, notes=(*plan.notes, *_tile_notes(shape, block_q, block_kv)))


FLASH3_SOURCE = (
    "arXiv:2407.08608, section 3; tiles of Dao-AILab/flash-attention, hopper/flash_bwd_launch_template.h"
)


@backward("flash3")
def flash3_backward(
    shape: Shape, limits: Limits, *, block_q: int | None = None, block_kv: int | None = None
) -> Plan:
    """FlashAttention-2's traffic on Hopper: P and dS feed dV and dK from registers, dQ leaves in bulk adds.

    With grouped query heads dK and dV are fp32 sums too. fp8 has no backward pass. Raises RoofcalcError as
    the forward model does.
    """
    _check_dtype("flash3", shape)
    block = choose("flash3", shape, FLASH3_HEADS, flash3_bwd_tile, *_given(shape, block_q, block_kv))
    staging = flash3_staging(block)
    threads = flash3_threads(block)
    registers = min(255, limits.registers // threads // 8 * 8)
    tile = Tile(threads, flash3_smem(block, staging), registers, block.m, block.n, stages=2)
    plan = _key_outer("flash3", FLASH3_SOURCE, shape, limits, block, tile, staging)
    return replace(plan, notes=(*plan.notes, *_tile_notes(shape, block_q, block_kv)))
