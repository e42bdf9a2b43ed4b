"""Formulas for the numbers of a built-in variant's plan, found by planning it at other sizes as well.

A formula is a product of sizes and of tile counts, and it must hold at every size that was tried; a
number for which there is none stays a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import lcm, prod
from typing import Any

from roofcalc.core import Plan, RoofcalcError, Shape, Tile
from roofcalc.design.expressions import evaluate
from roofcalc.numeric import Num

Rebuild = Callable[[Shape], Plan]

SIZES = ("batch", "heads", "kv_heads", "T", "S", "d", "dv")
_MOST_FACTORS = 5
_MOST_DIVISOR = 8


@dataclass(frozen=True)
class Sample:
    """A plan of the variant, and the sizes that it is for."""

    names: Mapping[str, Num]
    plan: Plan


@dataclass(frozen=True)
class Fitted:
    """A number as text, and the sizes for which alone it is known to hold (`SIZES`: no formula was found)."""

    text: str
    held: tuple[str, ...] = ()

    @property
    def fixed(self) -> bool:
        """Whether it is the number of the exported sizes."""
        return self.held == SIZES


def samples(plan: Plan, rebuild: Rebuild | None) -> tuple[Sample, ...]:
    """The plan and, where it can be rebuilt, its like at other sizes: those with the same kernels and lines."""
    shape: Any = plan.shape
    if not isinstance(shape, Shape) or shape.lengths is not None:
        rebuild, shape = None, Shape.of(T=1)
    found = [Sample(_names(shape), plan)]
    for other in _others(shape) if rebuild is not None else ():
        try:
            probe = rebuild(other)  # type: ignore[misc]  # not None here
        except RoofcalcError:
            continue
        if _form(probe) == _form(plan):
            found.append(Sample(_names(other), probe))
    return tuple(found)


def pairs(found: Sequence[Sample]) -> dict[str, str]:
    """`pairs` and what its formula needs, by name, in the order of their use; a number where none fits."""
    shape: Any = found[0].plan.shape
    few = "max(min(window - 1 - S + T, T), 0)"
    ways: list[dict[str, str]] = [
        {"pairs": "batch*heads*T*S"},
        {"pairs": "batch*heads*(T*S - T*(T - 1)/2)"},
        {
            "window": str(shape.window),
            "few": few,
            "pairs": "batch*heads*(T*window - few*(window - 1 - S + T) + few*(few - 1)/2)",
        },
    ]
    for way in ways:
        if shape.window is None and "window" in way:
            continue
        if all(_calculated(way, sample.names) == sample.names["pairs"] for sample in found):
            return way
    return {"pairs": str(found[0].names["pairs"])}


def fit(
    found: Sequence[Sample],
    number: Callable[[Plan], Num],
    kernel: int | None = None,
    sizes: bool = False,
    why: str = "",
) -> Fitted:
    """The text of what `number` takes from a plan; with `kernel` its tile's counts may be factors.

    A formula may ignore samples in which the kernel has another tile. With `sizes` only sizes are
    factors (a tensor's shape). `why` is the ledger's formula: the rounded-up divisions in it may be factors.
    """
    tile = None if kernel is None else found[0].plan.kernels[kernel].tile
    texts = SIZES if sizes else ("pairs", *SIZES, *_counts(tile), *re.findall(r"ceil\([A-Za-z]+ / [0-9]+\)", why))
    alike = [s for s in found if kernel is None or _blocks(s.plan.kernels[kernel].tile) == _blocks(tile)]
    for chosen in (found, alike):
        columns = {text: [_column(text, tuple(sample.names.items())) for sample in chosen] for text in texts}
        moving = {text: column for text, column in columns.items() if len(set(column)) > 1}
        text = _product([Fraction(number(sample.plan)) for sample in chosen], moving)
        if text is not None and len(chosen) > 1:
            return Fitted(text, tuple(name for name in SIZES if name not in moving))
    return Fitted(literal(number(found[0].plan)), SIZES)


@lru_cache(maxsize=4096)
def _column(text: str, names: tuple[tuple[str, int], ...]) -> int:
    return int(evaluate(text, dict(names)))


def literal(value: Num) -> str:
    exact = Fraction(value)
    return str(exact.numerator) if exact.denominator == 1 else f"{exact.numerator} / {exact.denominator}"


def _names(shape: Shape) -> dict[str, Num]:
    return {name: getattr(shape, name) for name in (*SIZES, "pairs")} | {"window": shape.window or 0}


def _others(shape: Shape) -> Iterator[Shape]:
    """Sizes near those of `shape`, one or two changed at a time, odd ones too, so that no two factors coincide."""
    square = shape.T == shape.S
    yield replace(shape, batch=2 * shape.batch + 1)
    yield replace(shape, kv_heads=3 * shape.kv_heads, heads=3 * shape.heads)
    yield replace(shape, heads=2 * shape.heads)
    yield replace(shape, T=2 * shape.T, S=2 * shape.S)
    yield replace(shape, S=shape.S + shape.T + 101)
    yield replace(shape, S=3 * shape.S + 37, T=3 * shape.T + 37 * square)
    yield replace(shape, d=2 * shape.d, dv=2 * shape.dv)
    yield replace(shape, d=2 * shape.d)
    yield replace(shape, dv=shape.dv + 256)
    yield replace(shape, d=shape.d // 2 + shape.d % 2, dv=shape.dv // 2 + shape.dv % 2)


def _form(plan: Plan) -> object:
    """What two plans must share for their numbers to be compared one by one."""
    return [
        (
            kernel.name,
            kernel.grid is None,
            kernel.tile is None,
            kernel.in_flight is None,
            [(a.tensor, a.mode, a.tier, a.dtype) for a in kernel.accesses],
            [(item.pipe, item.dtype) for item in kernel.work],
        )
        for kernel in plan.kernels
    ]


def held(plan: Plan) -> dict[str, int | None]:
    """The options of a variant that keep the tile of its first kernel with one at any size."""
    tile = next((kernel.tile for kernel in plan.kernels if kernel.tile is not None), None)
    return {} if tile is None else {"block_q": tile.block_q, "block_kv": tile.block_kv}


def _blocks(tile: Tile | None) -> object:
    return None if tile is None else replace(tile, smem=0)


def _counts(tile: Tile | None) -> tuple[str, ...]:
    """What a kernel's numbers are products of beside sizes: tiles, query heads of a group, rows of O, l and m."""
    m, n = (None, None) if tile is None else (tile.block_q, tile.block_kv)
    rows = (f"ceil(T / {m})",) if m else ()
    columns = (f"ceil(S / {n})", f"ceil(dv / {n})", f"(ceil(S / {n}) - 1)") if n else ()
    return (*rows, *columns, "(heads / kv_heads)", "(dv + 1)", "(dv + 2)")


def _product(values: Sequence[Fraction], columns: Mapping[str, Sequence[Num]]) -> str | None:
    """The simplest product of columns, times a constant, that is `values` everywhere."""
    if len(set(values)) == 1:
        return literal(values[0])
    found: list[tuple[int, int, str]] = []
    scale = lcm(*(value.denominator for value in values))
    counts = [int(value * scale) for value in values]
    for number in range(1, _MOST_FACTORS + 1):
        for texts in combinations(columns, number):
            products = (prod(row) for row in zip(*(columns[text] for text in texts), strict=True))
            first = next(products)
            if not first or any(n * first != counts[0] * p for n, p in zip(counts[1:], products, strict=True)):
                continue
            constant = values[0] / first
            if constant.denominator <= _MOST_DIVISOR:
                found.append((constant.numerator * constant.denominator, number, _written(constant, texts)))
        if found and min(found)[0] <= 2 * _MOST_DIVISOR:
            break
    return min(found)[2] if found else None


def _written(constant: Fraction, texts: Sequence[str]) -> str:
    head = [] if constant.numerator == 1 else [str(constant.numerator)]
    tail = "" if constant.denominator == 1 else f" / {constant.denominator}"
    return "*".join([*head, *texts]) + tail


def _calculated(way: Mapping[str, str], names: Mapping[str, Num]) -> Num:
    known = {name: value for name, value in names.items() if name not in ("pairs", "window")}
    for name, text in way.items():
        known[name] = evaluate(text, known)
    return known["pairs"]
