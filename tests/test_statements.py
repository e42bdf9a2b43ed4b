"""Statements of --where: what they parse to, what they select, and the one line that a wrong one gets."""

from __future__ import annotations

import numpy as np
import pytest

from roofcalc.statements import Condition, StatementError, check_names, holds, number, parse


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("T=8192", [("T", "=", ("8192",))]),
        ("T >= 1024 and T<8k", [("T", ">=", ("1024",)), ("T", "<", ("8k",))]),
        ("total.expected le 20ms", [("total.expected", "<=", ("20ms",))]),
        ("pv.bound != compute AND d in 64, 128", [("pv.bound", "!=", ("compute",)), ("d", "in", ("64", "128"))]),
        ("bwd_dq.time gt 1us", [("bwd_dq.time", ">", ("1us",))]),
        ("library = torch 2.11 eager", [("library", "=", ("torch 2.11 eager",))]),
    ],
)
def test_a_statement_is_its_conditions(text: str, conditions: list[tuple[str, str, tuple[str, ...]]]) -> None:
    assert parse(text) == tuple(Condition(*one) for one in conditions)


@pytest.mark.parametrize(
    ("text", "value"),
    [("8k", 8192), ("128K", 131072), ("1M", 1048576), ("0.1", 0.1), ("20ms", 0.02), ("3 us", 3e-6), ("-2", -2)],
)
def test_a_number_may_carry_a_binary_prefix_or_a_unit_of_time(text: str, value: float) -> None:
    assert number(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["torch", "8x", "", "1 2", "2026-11-29"])
def test_other_text_is_no_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the statement is empty"),
        ("T", "'T' is no statement; NAME op VALUE is wanted"),
        ("T == 4", "write one = for equal"),
        ("T =", "the value is missing"),
        ("d in 64,,128", "the value is missing"),
        ("T > long", "> compares numbers, found 'long'"),
        ("T > 3 and", "compares numbers, found '3 and'"),
    ],
)
def test_a_wrong_statement_is_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(StatementError, match="--where") as caught:
        parse(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(StatementError, match="no 'kvheads' here; did you mean kv_heads"):
        check_names(parse("T=1 and kvheads=8"), ["T", "heads", "kv_heads"])


def test_numbers_are_compared_as_numbers_and_text_as_text() -> None:
    T = np.array([512, 1024, 8192])
    gpu = np.array(["a100", "h100", "a100"], dtype=object)
    assert holds(parse("T >= 1k")[0], T).tolist() == [False, True, True]
    assert holds(parse("T in 512,8k")[0], T).tolist() == [True, False, True]
    assert holds(parse("T != 512")[0], T).tolist() == [False, True, True]
    assert holds(parse("gpu = a100")[0], gpu).tolist() == [True, False, True]
    assert holds(parse("gpu != a100")[0], gpu).tolist() == [False, True, False]
    assert holds(parse("bound=compute")[0], "compute") is True
    assert holds(parse("causal=true")[0], True) is True
    assert holds(parse("intensity < 3")[0], None) is False


def test_an_order_of_text_is_refused() -> None:
    with pytest.raises(StatementError, match="gpu is text here; use =, != or in"):
        holds(parse("gpu < 3")[0], np.array(["a100"], dtype=object))
