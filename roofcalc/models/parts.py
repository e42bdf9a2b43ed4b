"""The bricks that the families share: tensors of attention, matrix products, softmax, elementwise steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roofcalc.core import BITS, Access, Kernel, Limits, Pipe, Shape, Tensor, Tile, Work
from roofcalc.numeric import Num, ceil_div, maximum

GEMM_BLOCK, GEMM_STEP, GEMM_STAGES, GEMM_THREADS = 128, 64, 3, 256

SOFTMAX_VECTOR = "max, subtract, add, divide"
"""The four operations of a softmax element that run on the vector pipe; the exponential is the fifth."""


@dataclass(frozen=True)
class Tensors:
    """The arrays of an attention layer with their sizes written out, whether or not they reach memory."""

    Q: Tensor
    K: Tensor
    V: Tensor
    O: Tensor  # noqa: E741 - the papers' letter
    S: Tensor
    P: Tensor
    M: Tensor
    D: Tensor
    L: Tensor


def tensors(shape: Shape) -> Tensors:
    """The arrays of `shape`: K and V follow the KV heads, everything else the query heads.

    The additive mask M is one T x S matrix for all heads, dropout's mask D one byte a score, the
    log-sum-exp L one fp32 a row.
    """
    rows = shape.batch * shape.heads * shape.T
    keys = shape.batch * shape.kv_heads * shape.S
    return Tensors(
        Q=Tensor("Q", rows * shape.d, shape.dtype, "batch·heads·T·d"),
        K=Tensor("K", keys * shape.d, shape.kv_dtype, "batch·kv_heads·S·d"),
        V=Tensor("V", keys * shape.dv, shape.kv_dtype, "batch·kv_heads·S·dv"),
        O=Tensor("O", rows * shape.dv, shape.dtype, "batch·heads·T·dv"),
        S=Tensor("S", shape.square, shape.dtype, "batch·heads·T·S"),
        P=Tensor("P", shape.square, shape.dtype, "batch·heads·T·S"),
        M=Tensor("M", shape.T * shape.S, shape.dtype, "T·S"),
        D=Tensor("D", shape.square, "int8", "batch·heads·T·S"),
        L=Tensor("L", rows, "fp32", "batch·heads·T"),
    )


def matrix_pipe(dtype: str) -> Pipe:
    """Tensor cores have no full fp32 product: that one runs on the vector pipe."""
    return "vector" if dtype == "fp32" else "tensor"


def product(ops: Num, why: str, dtype: str, executed: Num | None = None) -> Work:
    """A matrix product on the pipe that its dtype has."""
    return Work(matrix_pipe(dtype), ops, why, dtype, executed)


def softmax_work(pairs: Num, executed: Num, why: str) -> tuple[Work, Work]:
    """Five operations an element: four on the vector pipe, the exponential on the special-function unit."""
    return (
        Work("vector", 4 * pairs, f"4 ({SOFTMAX_VECTOR}) · {why}", executed=4 * executed),
        Work("exp", pairs, f"1 (exponential) · {why}", executed=executed),
    )


def gemm_tile(dtype: str, limits: Limits) -> Tile:
    """A library's usual tile for a large product: 128 x 128 of the result in steps of 64, three stages
    deep where shared memory allows, 256 threads with 128 registers each."""
    stage = 2 * GEMM_BLOCK * GEMM_STEP * BITS[dtype] // 8
    stages = max(1, min(GEMM_STAGES, limits.smem_per_block // stage))
    return Tile(
        threads=GEMM_THREADS,
        smem=stages * stage,
        registers=128,
        block_q=GEMM_BLOCK,
        block_kv=GEMM_BLOCK,
        stages=stages,
    )


def gemm(
    name: str,
    *,
    rows: Num,
    columns: Num,
    batch: Num,
    work: Work,
    accesses: tuple[Access, ...],
    limits: Limits,
    dtype: str,
    family: str = "bmm",
    sizes: Mapping[str, Num] | None = None,
) -> Kernel:
    """`batch` products with a result of rows x columns each, every operand charged once."""
    grid = batch * ceil_div(rows, GEMM_BLOCK) * ceil_div(columns, GEMM_BLOCK)
    tile = gemm_tile(dtype, limits)
    return Kernel(name, (work,), accesses, grid=grid, tile=tile, family=family, sizes={"blocks": grid, **(sizes or {})})


def elementwise(
    name: str, accesses: tuple[Access, ...], ops: Num, executed: Num, why: str, family: str = "stream"
) -> Kernel:
    """One operation or more on each element, on the vector pipe.

    `family` says how the elements are reached: `stream` (contiguous), `indexed`, `mask` or `random`.
    """
    elements = max_elements(accesses)
    return Kernel(
        name, (Work("vector", ops, why, executed=executed),), accesses, family=family, sizes={"elements": elements}
    )


def max_elements(accesses: tuple[Access, ...]) -> Num:
    """The elements of the largest array that a kernel touches."""
    elements: Num = 0
    for access in accesses:
        elements = maximum(elements, access.elements)
    return elements
