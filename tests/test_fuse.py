"""`roofcalc fuse`: the chains of the reading, their bytes, launches and whether fusing them pays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Ran

Run = Callable[..., Ran]


def fusions(run: Run, *arguments: str) -> Any:
    got = run("fuse", *arguments, "--format", "json")
    assert (got.code, got.err) == (0, "")
    return json.loads(got.out)["fusions"]


def test_the_vector_between_a_norm_and_a_projection(run: Run) -> None:
    # reading: d_model = 4096, batch 1, 16 bits: 8,192 B written and 8,192 B read back
    before, after = fusions(run, "rmsnorm-linear", "--d-model", "4096", "--batch", "1")
    assert (after["saved_write"], after["saved_read"]) == (8192, 8192)
    assert (before["launches"], after["launches"]) == (2, 1)
    # 16,384 B of 3.35 TB/s
    assert after["saved_time"] == pytest.approx(16384 / 3.35e12, rel=1e-6)
    assert after["verdict"].startswith("for the launch")
    table = run("fuse", "rmsnorm-linear", "--d-model", "4096", "--batch", "1").out
    assert "8.19 kB" in table
    assert "5.00 µs of host time" in table


def test_silu_and_mul_move_five_vectors_and_fused_three(run: Run) -> None:
    # SiLU reads and writes one, mul reads two and writes one
    before, after = fusions(run, "silu-mul", "--d-model", "14336", "--batch", "8")
    vector = 8 * 14336 * 2
    assert (before["bytes"], after["bytes"]) == (5 * vector, 3 * vector)
    assert after["verdict"] == "yes: 40 % of the chain's time"


def test_a_residual_sum_hides_behind_a_compute_bound_product(run: Run) -> None:
    # 8192 rows: the product takes 2·8192·4096² / 989.4e12 = 277.8 us; alone, the sum moves 3 · 67.1 MB = 60.1 us
    before, after = fusions(run, "linear-residual", "--T", "8192")
    assert before["time"] == pytest.approx(277.8e-6 + 60.1e-6, rel=1e-3)
    assert after["time"] == pytest.approx(277.8e-6, rel=1e-3)
    assert after["saved_read"] == after["saved_write"] == 8192 * 4096 * 2


def test_attention_fused_step_by_step_becomes_ideal(run: Run) -> None:
    found = fusions(run, "attention", "--T", "8192", "--elementwise", "scale,softmax")
    square = 32 * 8192 * 8192 * 2
    assert [one["name"] for one in found] == [
        "not fused",
        "scores+scale",
        "scores+scale+softmax",
        "scores+scale+softmax+pv",
    ]
    assert [one["launches"] for one in found] == [4, 3, 2, 1]
    assert [one["saved_write"] for one in found] == [0, square, square, square]
    # Q, K, V, O of 32·8192·128 numbers
    assert found[-1]["bytes"] == 4 * 32 * 8192 * 128 * 2
    assert "hides behind compute" in found[-1]["verdict"]
