"""The small kernels of a decoder: their launches, bytes and operations, by hand."""

from __future__ import annotations

import pytest

from roofcalc.models.elementwise import (
    Style,
    cast,
    embedding_row,
    renamed,
    residual_add,
    rmsnorm,
    rope,
    silu_mul,
)

M, N = 3, 4096
X = M * N * 2
"""Bytes of one bf16 matrix."""


def test_rmsnorm_is_one_kernel_of_three_flop_an_element_or_eight_kernels() -> None:
    (fused,) = rmsnorm(M, N, "bf16", "fused")
    # reads x and a weight vector, writes y; reading: about 3 FLOP an element
    assert (fused.bytes_through("hbm"), fused.work[0].ops) == (2 * X + 2 * N, 3 * M * N)
    chain = rmsnorm(M, N, "bf16", "eager")
    assert [k.name.removeprefix("rmsnorm_") for k in chain] == [
        "cast_fp32", "pow", "mean", "eps", "rsqrt", "mul", "cast_bf16", "mul_weight",
    ]  # fmt: skip
    # to fp32 6 B an element, square 8, mean 4, times 8, back 6, times the weight 4; a few numbers a row and the weight
    rows = 4 * M + 8 * M + 8 * M + 4 * M
    assert sum(k.bytes_through("hbm") for k in chain) == 36 * M * N + rows + 2 * N


@pytest.mark.parametrize(("style", "kernels", "passes"), [("fused", 1, 2), ("eager", 5, 10)])
def test_rotation(style: Style, kernels: int, passes: int) -> None:
    # fused: read and written once; eager: negate a half (1), concatenate (2), two products (2 + 2), sum (3)
    found = rope(M, N, "bf16", style)
    assert (len(found), sum(k.bytes_through("hbm") for k in found)) == (kernels, passes * X)


@pytest.mark.parametrize(("style", "kernels", "passes"), [("fused", 1, 3), ("eager", 2, 5)])
def test_silu_mul(style: Style, kernels: int, passes: int) -> None:
    found = silu_mul(M, N, "bf16", style)
    assert (len(found), sum(k.bytes_through("hbm") for k in found)) == (kernels, passes * X)


def test_residual_cast_and_embedding() -> None:
    assert residual_add(M, N, "bf16").bytes_through("hbm") == 3 * X
    assert cast(M, N, "bf16", "fp32").bytes_through("hbm") == 3 * X
    # a row of the table and the result; with positions two rows, added up
    assert embedding_row(M, N, "bf16").bytes_through("hbm") == 2 * X
    two = embedding_row(M, N, "bf16", 2)
    assert (two.bytes_through("hbm"), two.work[0].ops) == (3 * X, M * N)


def test_a_renamed_kernel_keeps_all_but_its_names() -> None:
    before = residual_add(M, N, "bf16")
    after = renamed(before, "sum", "elementwise", x="o", y="h")
    assert [a.tensor for a in after.accesses] == ["o", "residual", "h"]
    assert (after.name, after.group, after.bytes_through("hbm")) == ("sum", "elementwise", before.bytes_through("hbm"))
