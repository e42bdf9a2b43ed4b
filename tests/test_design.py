"""A user's kernel design: what it compiles to, its formulas, and every way in which its file can be wrong."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from designs import EXAMPLE, NAIVE
from hypothesis import given
from hypothesis import strategies as st

from roofcalc.core import RoofcalcError, Shape
from roofcalc.design import Design, TileVaries, load_design, parse_design
from roofcalc.design.expressions import displayed, evaluate, whole
from roofcalc.estimate import estimate
from roofcalc.hardware import load

# The design by which the README teaches the format.
MINIMAL = """\
name: residual add + rmsnorm
params: {T: 8192, D: 4096, rows: 1, blocks: "ceil(T / rows)"}  # -p T=1 sets one; a formula uses those before it
tensors:
  x: [T, D]                                                    # the residual stream, bf16 as `dtype` says by default
  r: [T, D]                                                    # what the last layer adds to it
  g: [D]                                                       # the norm's weight
  sum: [T, D]
  y: {shape: [T, D], dtype: fp8}
kernels:
  - name: add_norm
    reads: [x, r, g, {tensor: g, times: blocks - 1, tier: l2}] # g: once from memory, for further blocks from L2
    writes: [sum, y]
    work: {vector: "5*T*D"}                                    # add; square, sum; times 1/rms, times g
    grid: blocks
    tile: {threads: 256, registers: 40, smem: "rows*D*4"}      # a block holds its rows in fp32: 16 KiB
"""


def changed(old: str, new: str, **params: Any) -> Design:
    assert EXAMPLE.count(old) == 1
    return parse_design(EXAMPLE.replace(old, new), params, "mine.yaml")


def test_the_interface_example_compiles_to_its_ledger() -> None:
    design = parse_design(EXAMPLE, {"T": "8k"})
    (kernel,) = design.plan.kernels
    # T = 8192: x and y 8192 x 4096, w 4096 x 4096; 2 x 8192 x 4096 x 4096 = 274,877,906,944
    assert [(a.tensor, a.mode, a.elements, a.why) for a in kernel.accesses] == [
        ("x", "read", 33_554_432, "T·D"),
        ("w", "read", 16_777_216, "D·N"),
        ("y", "write", 33_554_432, "T·N"),
    ]
    assert [(w.pipe, w.ops, w.dtype, w.why) for w in kernel.work] == [
        ("tensor", 274_877_906_944, "bf16", "2·T·D·N"),
        ("vector", 134_217_728, "fp32", "4·T·D"),
    ]
    assert kernel.tile is not None
    assert (kernel.grid, kernel.tile.smem, kernel.tile.stages) == (32, 98_304, 3)
    assert (design.plan.variant, design.params) == ("fused rmsnorm + linear", {"T": 8192, "D": 4096, "N": 4096})


def test_one_token_on_an_h100_takes_the_time_of_the_weights() -> None:
    # (1 x 4096 + 4096 x 4096 + 1 x 4096) x 2 B = 33,570,816 B, over 3.35 TB/s
    report = estimate(parse_design(EXAMPLE).plan, load("h100"))
    assert report.total.bytes == 33_570_816
    assert report.total.time == pytest.approx(33_570_816 / 3.35e12, rel=1e-12)
    assert report.kernels[0].roof == "hbm"


def test_a_design_that_says_naive_gives_its_report_to_the_digit() -> None:
    from roofcalc.models.standard import naive

    for name, more in (("h100", {}), ("a100", {"T": "3k", "heads": 8, "kv_heads": 2, "batch": 3})):
        gpu = load(name)
        sizes = {"T": 8192} if not more else {"T": 3072, "heads": 8, "kv_heads": 2, "batch": 3}
        mine = estimate(parse_design(NAIVE, more).plan, gpu)
        theirs = estimate(naive(Shape.of(**sizes), gpu.limits), gpu)
        for a, b in zip((*mine.kernels, mine.total), (*theirs.kernels, theirs.total), strict=True):
            assert (a.name, a.flops, a.executed_flops, a.bytes) == (b.name, b.flops, b.executed_flops, b.bytes)
            assert (a.time, a.roofs, a.ridge, a.bound, a.roof) == (b.time, b.roofs, b.ridge, b.bound, b.roof)
            assert (a.units, a.waves, a.sm_use, a.share) == (b.units, b.waves, b.sm_use, b.share)
        assert mine.memory == theirs.memory  # S and P, derived from what is written and read back


def test_the_design_of_the_readme_to_its_ledger() -> None:
    design = parse_design(MINIMAL)
    (kernel,) = design.plan.kernels
    # x, r, sum: 8192 x 4096 of 2 B = 67,108,864 B each; y 1 B each; g 8,192 B, 8191 times more from L2
    assert [(a.tensor, a.tier, a.bytes) for a in kernel.accesses] == [
        ("x", "hbm", 67_108_864),
        ("r", "hbm", 67_108_864),
        ("g", "hbm", 8_192),
        ("g", "l2", 67_100_672),
        ("sum", "hbm", 67_108_864),
        ("y", "hbm", 33_554_432),
    ]
    assert kernel.tile is not None
    assert (kernel.grid, kernel.tile.smem, kernel.work[0].ops) == (8192, 16_384, 167_772_160)
    # 234,889,216 B / 3.35 TB/s = 70.1 us
    row = estimate(design.plan, load("h100")).kernels[0]
    assert (row.roof, row.time) == ("hbm", pytest.approx(70.116e-6, rel=1e-4))
    assert parse_design(MINIMAL, {"rows": 4}).plan.kernels[0].grid == 2048


def test_all_forms_of_a_ledger_line() -> None:
    line = '[x, {tensor: w, times: "ceil(T / 128)", tier: l2}, {tensor: w, elements: 5, dtype: int4, why: five}]'
    accesses = changed("[x, w]", line, T=300).plan.kernels[0].accesses
    found = [(a.elements, a.tier, a.dtype, a.bytes, a.why) for a in accesses[1:3]]
    # ceil(300 / 128) = 3 times 4096 x 4096; five numbers of 4 bits fill 3 bytes
    assert found == [(50_331_648, "l2", "bf16", 100_663_296, "ceil(T / 128)·D·N"), (5, "hbm", "int4", 3, "five")]


def test_all_forms_of_work_and_the_optional_fields() -> None:
    said = "{tensor: [T, {ops: 2*T, executed: 3*T, dtype: fp8}], exp: {ops: 7, why: seven}}\n    launches: 2*T"
    more = "\n    own_sms: true\n    in_flight: 64 KiB\nmemory: 1 MB\nsource: me\nnotes: [a note]\ndtype: fp16"
    text = EXAMPLE.replace('{tensor: "2*T*D*N", vector: "4*T*D"}', said).replace("dtype: bf16\n", "", 1)
    plan = parse_design(text.rstrip() + more, {"T": 5}).plan
    (kernel,) = plan.kernels
    found = [(w.pipe, w.ops, w.run, w.dtype, w.why) for w in kernel.work]
    assert found == [
        ("tensor", 5, 5, "fp16", "T"),
        ("tensor", 10, 15, "fp8", "2·T"),
        ("exp", 7, 7, "fp32", "seven"),
    ]
    assert (kernel.launches, kernel.own_sms, kernel.in_flight) == (10, True, 65_536)
    assert (plan.memory, plan.source, plan.notes, plan.shape.dtype) == (1_000_000, "me", ("a note",), "fp16")


def test_fp32_products_run_on_the_vector_pipe_and_a_note_says_so() -> None:
    plan = changed("dtype: bf16\n", "dtype: fp32\n").plan
    assert {w.pipe for w in plan.kernels[0].work} == {"vector"}
    assert "CUDA cores" in plan.notes[0]


def test_params_may_be_formulas_over_those_before_them() -> None:
    text = EXAMPLE.replace("{T: 1, D: 4096, N: 4096}", '{T: 1, D: 4096, N: "D / 2 + 1"}')
    assert parse_design(text).params["N"] == 2049
    assert parse_design(text, {"N": 7, "D": "1M"}).params == {"T": 1, "D": 1_048_576, "N": 7}


def test_an_array_of_params_gives_the_values_one_by_one() -> None:
    lengths = np.array([1, 300, 8192])
    together = estimate(parse_design(EXAMPLE, {"T": lengths}).plan, load("h100")).total
    for i, length in enumerate(lengths.tolist()):
        alone = estimate(parse_design(EXAMPLE, {"T": length}).plan, load("h100")).total
        assert (together.flops[i], together.bytes[i], together.time[i]) == (alone.flops, alone.bytes, alone.time)


def test_an_array_whose_product_would_wrap_around_is_refused() -> None:
    # 2^40 x 2^40 is more than 64 bits hold
    with pytest.raises(RoofcalcError, match=r"mine.yaml:5:6: tensors.x: the tensor is too large"):
        changed("[T, D]", "[T, T]", T=np.array([1, 2**40]))
    with pytest.raises(RoofcalcError, match=r"'2\*T\*T\*T' is too large"):
        changed('"ceil(N / 128)"', "2*T*T*T", T=np.array([1, 2**21]))


def test_a_tile_that_varies_within_an_array_is_refused() -> None:
    with pytest.raises(TileVaries, match=r"mine.yaml:14:\d+: kernels\[0\].tile.smem: smem varies"):
        changed('"2*128*64*2 * 3"', "64*T", T=np.array([1, 2]))


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(EXAMPLE)
    assert load_design(path, {"T": 3}).params["T"] == 3
    with pytest.raises(RoofcalcError, match="No such file"):
        load_design(tmp_path / "yours.yaml")


# --- formulas


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*T*D", 67_108_864),
        ("ceil(T / 3)", 2731),
        ("floor(T / 3)", 2730),
        ("T // 3 + T % 3", 2732),
        ("T / 3 * 3", 8192),
        ("0.1 * 10", 1),
        ("T / 16384", 0.5),
        ("2**-1", 0.5),
        ("-T + D", -4096),
        ("min(T, D, 7)", 7),
        ("max(T, D)", 8192),
        ("sqrt(2*T)", 128),
        ("log2(D)", 12),
        ("3e3", 3000),
        ("D**2", 16_777_216),
        ("(T*(T + 1)) / 2", 33_558_528),
    ],
)
def test_a_formula_has_its_exact_value(text: str, value: float) -> None:
    assert evaluate(text, {"T": 8192, "D": 4096}) == value


@given(st.integers(1, 10**15), st.integers(1, 10**6))
def test_division_rounds_nowhere(a: int, b: int) -> None:
    assert evaluate("ceil(a / b)", {"a": a, "b": b}) == -(-a // b)
    assert evaluate("a / b * b", {"a": a, "b": b}) == a


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5), st.integers(1, 1000))
def test_a_formula_over_an_array_is_the_formula_over_each(sizes: list[int], block: int) -> None:
    for text in ("ceil(T / b)*b", "T % b", "min(T, b) + 2*T", "T*(T + 1)/2"):
        found = whole(text, {"T": np.array(sizes), "b": block}, 0)
        assert found.tolist() == [whole(text, {"T": size, "b": block}, 0) for size in sizes]


@given(st.text(alphabet="T2D*+-/()., ^%\n'\"[]{}:=<>ceilmnax_#\\", max_size=25))
def test_no_text_gets_past_the_formula_errors(text: str) -> None:
    with contextlib.suppress(RoofcalcError):
        assert math.isfinite(evaluate(text, {"T": 3, "D": 2}))


def test_a_formula_is_displayed_as_a_product() -> None:
    assert displayed("2 * T*D**2") == "2·T·D**2"
