"""Statements: ``NAME op VALUE`` joined by ``and``, as ``--where`` takes them.

The operators are ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` (or ``eq ne lt le gt ge``) and ``in a,b,c``.
A value that looks like a number is one: ``8k`` is 8192, ``20ms`` is 0.02.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from roofcalc.core import RoofcalcError
from roofcalc.numeric import Num, is_array
from roofcalc.quantities import nearest

_WORDS = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CLAUSE = re.compile(r"\s*([\w.\-]+)\s*(<=|>=|!=|=|<|>|\s(?:eq|ne|lt|le|gt|ge|in)\s)\s*(.*?)\s*", re.ASCII | re.DOTALL)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_VALUE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ]*)", re.ASCII)
_UNITS = {
    "": 1.0, "k": 2.0**10, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30,
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
_WISH = "NAME op VALUE is wanted, such as 'T >= 1024' or 'scores.bound = compute'"


class StatementError(RoofcalcError):
    """A statement that cannot be read, or that names what is not there."""


@dataclass(frozen=True)
class Condition:
    """One comparison: `name` against each of `values` (more than one only for `in`)."""

    name: str
    op: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.op} {','.join(self.values)}"


def parse(text: str, option: str = "--where") -> tuple[Condition, ...]:
    """The conditions of a statement, all of which must hold. Raises StatementError."""
    if not text.strip():
        raise StatementError(f"{option}: the statement is empty; {_WISH}")
    return tuple(_condition(clause, option) for clause in _AND.split(text.strip()))


def _condition(clause: str, option: str) -> Condition:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise StatementError(f"{option} {clause!r} is no statement; {_WISH}")
    name, op, value = match[1], match[2].strip(), match[3]
    if value.startswith("="):
        raise StatementError(f"{option} {clause!r}: write one = for equal; {_WISH}")
    op = _WORDS.get(op, op)
    values = tuple(part.strip() for part in value.split(",")) if op == "in" else (value,)
    if "" in values:
        raise StatementError(f"{option} {clause!r}: the value is missing; {_WISH}")
    if op in _ORDER and number(value) is None:
        raise StatementError(f"{option} {clause!r}: {op} compares numbers, found {value!r}")
    return Condition(name, op, values)


def check_names(conditions: Iterable[Condition], allowed: Iterable[str], option: str = "--where") -> None:
    """Raise StatementError for the first name that is not allowed, with the nearest one that is."""
    names = list(allowed)
    for condition in conditions:
        if condition.name not in names:
            hint = nearest(condition.name, names)
            raise StatementError(f"{option} {str(condition)!r}: no {condition.name!r} here{hint}")


def number(text: str) -> float | None:
    """The number that `text` means, with a binary k, M or G or a unit of time; None for anything else."""
    match = _VALUE.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS:
        return None
    return float(match[1]) * _UNITS[match[2]]


def holds(condition: Condition, value: Num) -> Num:
    """Whether a value, or each element of an array, meets the condition.

    Numbers are compared as numbers, text as text. An absent value (None) meets only ``!=``. Raises
    StatementError where an order is asked of text.
    """
    textual = value.dtype.kind in "OUS" if is_array(value) else isinstance(value, str | bool | type(None))
    if condition.op in _ORDER:
        bound = number(condition.values[0])
        if value is None:
            return False
        if textual:
            raise StatementError(f"{str(condition)!r}: {condition.name} is text here; use =, != or in")
        return _ORDER[condition.op](value, bound)
    found = _equal(value, condition.values, textual)
    if condition.op == "!=":
        return ~found if is_array(found) else not found
    return found


def _equal(value: Num, wanted: tuple[str, ...], textual: bool) -> Num:
    if textual and is_array(value):
        found = value == wanted[0]
        for text in wanted[1:]:
            found = found | (value == text)
        return found
    if textual:
        shown = "none" if value is None else str(value).lower() if isinstance(value, bool) else value
        return shown in wanted
    numbers = [n for n in map(number, wanted) if n is not None]
    found = value != value  # all false, and an array where the value is one
    for n in numbers:
        found = found | (value == n)
    return found
