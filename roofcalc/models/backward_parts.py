"""The bricks of the backward passes: gradients, recomputed tiles, sums that several thread blocks add to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from roofcalc.core import Access, Kernel, Shape, Tensor, Work
from roofcalc.models.parts import Tensors, product
from roofcalc.models.tiles import Block, MixedTiles, Tiling
from roofcalc.numeric import Num, ceil_div, everywhere


@dataclass(frozen=True)
class Gradients:
    """The gradients of an attention layer's arrays, each of the size and dtype of its array."""

    dO: Tensor
    dQ: Tensor
    dK: Tensor
    dV: Tensor
    dP: Tensor
    dS: Tensor


def gradients(t: Tensors) -> Gradients:
    """The gradients of the arrays in `t`: dK and dV follow the KV heads, the others the query heads."""
    of = {f"d{array.name}": replace(array, name=f"d{array.name}") for array in (t.O, t.Q, t.K, t.V, t.P, t.S)}
    return Gradients(**of)


def per_row(array: Tensor, shape: Shape) -> Tensor:
    """The array's elements for one row of every batch and head."""
    return replace(array, elements=array.elements // shape.T)


def recomputing_work(shape: Shape, count: Tiling, block: Block) -> tuple[Work, ...]:
    """Five products, one exponential and three operations a pair; executed over whole tiles."""
    pairs, executed = shape.pairs, shape.batch * shape.heads * count.pairs
    return (
        product(6 * pairs * shape.d, "6·pairs·d (Q Kᵀ again, dQ, dK)", shape.dtype, 6 * executed * block.d),
        product(4 * pairs * shape.dv, "4·pairs·dv (dV, dP)", shape.dtype, 4 * executed * block.dv),
        Work(
            "vector",
            3 * pairs,
            "3 (subtract L, subtract delta, multiply) · pairs; executed: 4 (and the scale) · executed tiles",
            executed=4 * executed,
        ),
        Work("exp", pairs, "1 (exponential) · pairs; executed over executed tiles", executed=executed),
    )


def key_tile_sizes(shape: Shape, count: Tiling) -> dict[str, Any]:
    """What the expected time needs to know: tiles of keys, and the blocks of queries that they meet."""
    heads = shape.batch * shape.heads
    tiles = {"tiles": heads * ceil_div(shape.S, count.n), "blocks": heads * count.tiles}
    return {"shape": shape, **tiles, "rows": count.n, "columns": count.m}


def group_reads(shape: Shape, t: Tensors) -> tuple[Access, ...]:
    """K and V: from memory once a KV head, through L2 for the group's other query heads."""
    others = "the group's other query heads: batch·(heads - kv_heads)·S"
    k, v = t.K.read(shape.group - 1, "l2", f"{others}·d"), t.V.read(shape.group - 1, "l2", f"{others}·dv")
    return t.K.read(), t.V.read(), k, v


def summed_in_memory(array: Tensor, first: Num, visits: Num) -> tuple[Access, ...]:
    """Atomic adds to `visits` rows of an accumulator, `first` of them for the first time.

    The addend travels to L2, which adds: one write. Memory sees every row once each way.
    """
    once = "first atomic add: each row comes from memory and goes back once"
    return (
        array.read(first, why=once),
        array.write(first, why=once),
        array.write(visits - first, "l2", "later atomic adds: L2 adds, so each is one write"),
    )


def fold(name: str, source: Tensor, result: Tensor, ops: str) -> Kernel:
    """A kernel that reads one array and writes another: a conversion, or the sum over a group's heads."""
    work = Work("vector", source.elements, f"1 ({ops}) · {source.why}")
    return Kernel(
        name, (work,), (source.read(), result.write()), family="stream", sizes={"elements": source.elements}
    )


def row_sums(t: Tensors, g: Gradients, delta: Tensor, cleared: tuple[Tensor, ...]) -> Kernel:
    """delta = rowsum(dO∘O); the accumulators are cleared on the way."""
    work = Work("vector", 2 * t.O.elements, "2 (multiply, add) · batch·heads·T·dv")
    clears = (array.write(why=f"cleared: {array.why}") for array in cleared)
    accesses = (g.dO.read(), t.O.read(), delta.write(), *clears)
    return Kernel("bwd_dot", (work,), accesses, family="stream", sizes={"elements": t.O.elements})


def leaving(
    shape: Shape, g: Gradients, summed: bool
) -> tuple[tuple[Access, ...], tuple[Kernel, ...], tuple[Tensor, ...]]:
    """How dK and dV leave the kernel: its ledger lines, the kernels after it, and the arrays between them.

    With one query head a KV head they are written once. Else FlashAttention-2 writes one pair for each query
    head and adds them up in kernels of its own, FlashAttention-3 adds to fp32 accumulators (`summed`) and
    converts them.
    """
    if everywhere(shape.group == 1):
        return (g.dK.write(), g.dV.write()), (), ()
    if not everywhere(shape.group > 1):
        raise MixedTiles(
            "an array with and without grouped query heads runs unlike kernels; evaluate them one by one"
        )
    results = (g.dK, g.dV)
    names = ("bwd_dk_convert", "bwd_dv_convert") if summed else ("bwd_dk_sum", "bwd_dv_sum")
    if summed:
        between = tuple(Tensor(f"{x.name}_accum", x.elements, "fp32", x.why) for x in results)
        lines = tuple(line for x in between for line in summed_in_memory(x, 1, shape.group))
    else:
        why = "one for each query head: batch·heads·S"
        between = tuple(Tensor(f"{x.name}_partial", x.elements * shape.group, x.dtype, why) for x in results)
        lines = tuple(x.write() for x in between)
    ops = "convert" if summed else "add"
    after = tuple(fold(name, x, y, ops) for name, x, y in zip(names, between, results, strict=True))
    return lines, after, between
