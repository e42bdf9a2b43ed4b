"""A built-in variant written out as a design gives the same report; the schema says what the loader takes."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from roofcalc.core import Access, Kernel, Plan, RoofcalcError, Shape, Tile, Work
from roofcalc.design import export, findings, held, load_design, parse_design
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.models import Variant, variants
from roofcalc.models.standard import naive
from roofcalc.render.to_json import report_fields

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.yaml"))
H100 = load("h100")

SHAPES: dict[str, Shape] = {
    "plain": Shape.of(T=8192),
    "decode": Shape.of(T=1, S=5000, batch=3, heads=32, kv_heads=8, causal=True),
    "grouped": Shape.of(T=640, S=1024, batch=3, heads=8, kv_heads=2, d=64, dv=64, causal=True, kv_dtype="fp8"),
    "window": Shape.of(T=2048, window=100, causal=True, layers=5),
    "fp32": Shape.of(T=1000, dtype="fp32"),
    "training": Shape.of(T=1024, direction="fwd+bwd"),
}
ALL = [(command, name) for command in ("attention", "decode") for name in variants(command)]


def told(plan: Plan) -> dict[str, Any]:
    """All that a report's JSON says of a plan, but for its shape and name, and `expected`.

    `expected` is of the implementation that the variant names, so a design may differ there. A design has
    its reads before its writes and its work pipe by pipe, so both are compared in that order.
    """
    report = report_fields(estimate(plan, H100))
    for row in (*report["kernels"], report["total"]):
        for of_expected in ("expected", "terms"):
            row.pop(of_expected, None)
        for lines, key in (("ledger", "mode"), ("work", "pipe")):
            row.get(lines, []).sort(key=lambda line: line[key])
    report["notes"] = [note for note in report["notes"] if not note.startswith("expected is ")]
    return {key: report[key] for key in ("source", "kernels", "total", "notes")}


def planned(variant: Variant, shape: Shape) -> Plan:
    try:
        return variant.plan(shape, H100.limits)
    except RoofcalcError:
        pytest.skip("the variant has no such shape")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("command", "name"), ALL)
def test_a_variant_read_back_gives_the_same_report(command: Any, name: str, shape: str) -> None:
    variant = variants(command)[name]
    plan = planned(variant, SHAPES[shape])
    tile = held(plan)
    for text in (export(plan, "x"), export(plan, "x", lambda other: variant.plan(other, H100.limits, tile))):
        design = parse_design(text)
        mine, theirs = told(design.plan), told(plan)
        if "\nparams:" in text:  # notes that quote a size are left out
            assert set(mine.pop("notes")) <= set(theirs.pop("notes"))
        assert mine == theirs
        gone = [f.text for f in findings(design, estimate(design.plan, H100), H100) if f.forbids]
        assert gone == []


@pytest.mark.parametrize("name", ["naive", "eager", "two-pass", "ideal", "flash2", "flash3"])
@pytest.mark.parametrize(
    "sizes", [{"batch": 3}, {"heads": 64}, {"S": 5000}, {"T": 700, "S": 6000}, {"d": 64, "dv": 64}], ids=str
)
def test_an_unmasked_variant_is_all_formulas_and_they_hold_at_other_sizes(name: str, sizes: dict[str, int]) -> None:
    variant, shape = variants("attention")[name], Shape.of(T=2048)
    plan = variant.plan(shape, H100.limits)
    tile = held(plan)
    text = export(plan, "x", lambda other: variant.plan(other, H100.limits, tile))
    assert "fixed at" not in text
    mine = told(parse_design(text, {key: size for key, size in sizes.items() if f"\n  {key}: " in text}).plan)
    theirs = told(variant.plan(replace(shape, **sizes), H100.limits, tile))
    assert {**mine, "notes": []} == {**theirs, "notes": []}  # a note may quote a size


@pytest.mark.parametrize("start", ["plain", "grouped"])
def test_the_formulas_of_naive_hold_at_other_sizes(start: str) -> None:
    shape = SHAPES[start]
    text = export(naive(shape, H100.limits), "mine", lambda other: naive(other, H100.limits))
    assert "fixed at" not in text
    for sizes in (
        {"T": 777, "S": 1300},
        {"batch": 5, "heads": 12, "kv_heads": 4},
        {"d": 96, "dv": 160, "T": 129, "S": 136},
    ):
        other = replace(shape, **sizes)
        used = {n: getattr(other, n) for n in ("batch", "heads", "kv_heads", "T", "S", "d", "dv")}
        mine = told(parse_design(text, used).plan)
        assert mine == told(naive(other, H100.limits))


def test_the_window_of_a_causal_naive_holds_at_other_sizes() -> None:
    shape = Shape.of(T=2048, window=100, causal=True)
    text = export(naive(shape, H100.limits), "mine", lambda other: naive(other, H100.limits))
    assert "fixed at" not in text
    for T, S, window in ((50, 60, 7), (50, 50, 1), (30, 90, 85), (64, 64, 64), (10, 10, 99)):
        other = Shape.of(T=T, S=S, window=window, causal=True)
        mine = told(parse_design(text, {"T": T, "S": S, "window": window}).plan)
        assert mine == told(naive(other, H100.limits))


def test_an_exported_text_is_a_readable_design() -> None:
    text = export(naive(Shape.of(T=8192), H100.limits), "attention-naive", lambda s: naive(s, H100.limits))
    assert "name: attention-naive\n" in text
    assert "  Q: [batch, heads, T, d]\n" in text
    assert "  K: [batch, kv_heads, S, d]\n" in text
    assert 'tensor: "2*pairs*d"' in text
    assert 'grid: "batch*heads*ceil(T / 128)*ceil(S / 128)"' in text
    assert "4 (max, subtract, add, divide) · pairs" in text
    assert max(len(line) for line in text.splitlines()) < 200


def test_a_number_without_a_formula_is_marked() -> None:
    def odd(shape: Shape) -> Plan:
        kernel = Kernel("k", (Work("vector", shape.T**2 + 7, "odd"),), (Access("x", 5, "bf16", "hbm", "write", "x"),))
        return Plan("odd", shape, (kernel,), "")

    text = export(odd(Shape.of(T=100)), "odd", odd)
    assert "- name: k  # fixed at these sizes: vector ops, vector executed\n" in text
    assert "{ops: 10007, why: odd}" in text.replace('"', "")


def test_notes_that_quote_a_size_do_not_outlive_it() -> None:
    variant, shape = variants("decode")["split-kv"], Shape.of(T=1, S=8192, heads=32, kv_heads=8, causal=True)
    plan = variant.plan(shape, H100.limits)
    tile = held(plan)
    quoting = [note for note in plan.notes if "1 × 4 × 2 / 2 = 4 FLOP/B" in note or "for 4 query rows" in note]
    assert len(quoting) == 2  # true of 32 query and 8 KV heads
    assert set(quoting) <= set(parse_design(export(plan, "x")).plan.notes)
    text = export(plan, "x", lambda other: variant.plan(other, H100.limits, tile))
    assert not {*quoting} & {*parse_design(text, {"kv_heads": 32}).plan.notes}
    assert not any("work units" in note or "expected is" in note for note in parse_design(text).plan.notes)


def test_a_note_without_a_size_is_exported() -> None:
    variant, shape = variants("decode")["paged"], Shape.of(T=1, S=8192, heads=32, kv_heads=8, causal=True)
    plan = variant.plan(shape, H100.limits)
    tile = held(plan)
    text = export(plan, "x", lambda other: variant.plan(other, H100.limits, tile))
    assert "needs a kernel that follows the block table" in text
    assert "8192 tokens are allocated" not in text


# Every field of a kernel, in forms that the built-in variants may not have: a list of an exporter's duties.
FULL = Kernel(
    "a kernel: 1",
    (Work("tensor", 10, "ten", "fp8", 12), Work("tensor", 3, "3", "bf16"), Work("exp", 0, "none")),
    (
        Access("x", 30, "int4", "hbm", "read", "x"),
        Access("x", 60, "int4", "l2", "read", "twice"),
        Access("x", 31, "int8", "smem", "read", "odd"),
        Access("on", 7, "fp32", "hbm", "write", "7"),
    ),
    launches=3,
    grid=11,
    tile=Tile(threads=96, smem=1000, registers=40, block_q=16, block_kv=32, stages=2),
    own_sms=True,
    in_flight=4096,
)


def test_every_field_of_a_kernel_is_exported() -> None:
    known = {"name", "work", "accesses", "launches", "grid", "tile", "own_sms", "in_flight"}
    # A design's expected time is that of a good kernel of its own, and it is no part of a step.
    of_expected = {"family", "sizes", "group"}
    assert {f.name for f in fields(Kernel)} == known | of_expected
    assert {f.name for f in fields(Tile)} == {"threads", "smem", "registers", "block_q", "block_kv", "stages"}
    plan = Plan("full", Shape.of(T=4), (FULL,), 'a "quoted" source', ("note: one", "# two"), 77)
    design = parse_design(export(plan, "full"))
    (kernel,) = design.plan.kernels
    assert kernel.accesses == FULL.accesses
    assert [replace(w, executed=w.run) for w in kernel.work] == [replace(w, executed=w.run) for w in FULL.work]
    assert replace(kernel, work=(), accesses=()) == replace(FULL, work=(), accesses=())
    assert (design.plan.source, design.plan.notes, design.plan.memory) == (plan.source, plan.notes, 77)


def test_a_design_can_be_exported_again() -> None:
    for path in EXAMPLES:
        plan = load_design(path).plan
        assert told(parse_design(export(plan, plan.variant)).plan) == told(plan)


# --- the schema and the examples
