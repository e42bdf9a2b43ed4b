"""Predicted against measured: every row of a measurement file priced, and the error by group.

Rows that differ in nothing but sizes are one evaluation: batch, heads, T and S are arrays, all else is plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roofcalc.core import RoofcalcError
from roofcalc.measured import COLUMNS, TEXT, Array, Rows
from roofcalc.predict import Asked, Unpredictable, hardware_of, question
from roofcalc.quantities import nearest

BY = ("gpu", "op", "variant", "library")
PLAIN = (
    "gpu", "op", "variant", "kernel", "library", "model", "d", "causal", "window", "dtype", "kv_dtype", "pass",
    "splits", "elementwise", "cache",
)  # fmt: skip
"""The columns that choose what is evaluated; the others are the sizes it is evaluated at."""

SIZES = ("batch", "heads", "kv_heads", "T", "S", "m", "n", "k")
PREDICTED = ("attention", "decode", "linear", "elementwise", "launch", "step")
METRICS = ("median", "p90", "mean", "bias")
RETRIES = 4096


@dataclass(frozen=True)
class Errors:
    """Errors of a group: |predicted / measured - 1| as median, 90th percentile and mean; bias as the median
    of predicted / measured."""

    median: float
    p90: float
    mean: float
    bias: float


@dataclass(frozen=True)
class Group:
    """One line of a validation: what its rows share, their number, and both predictions' errors."""

    keys: Mapping[str, str]
    count: int
    roofline: Errors
    expected: Errors | None


@dataclass(frozen=True)
class Validation:
    """The groups, all rows together, the reasons for skipped rows, and the points themselves, in seconds."""

    groups: tuple[Group, ...]
    total: Group | None
    skipped: tuple[tuple[str, int], ...]
    rows: Rows
    roofline: Array
    expected: Array


def validate(rows: Rows, overrides: Sequence[str] = (), by: Sequence[str] = BY) -> Validation:
    """Every row predicted at the GPU that it names, with `overrides` of its hardware, grouped by columns.

    Rows of operations that are no prediction's subject (ceilings) are left out; those that cannot be
    predicted count as skipped, with the reason. Raises RoofcalcError for a column that does not exist.
    """
    for name in by:
        if name not in COLUMNS:
            raise RoofcalcError(f"--by {name!r} is no column{nearest(name, COLUMNS)}")
    rows = rows.where(np.isin(rows["op"].astype(str), PREDICTED))
    for gpu in set(rows["gpu"]):
        hardware_of(gpu, tuple(overrides))  # a wrong override is the caller's error, not a reason to skip
    roofline, expected, reasons = predictions(rows, overrides)
    kept = np.array([not reason for reason in reasons], dtype=bool)
    skipped = Counter(reason for reason in reasons if reason).most_common()
    rows, roofline, expected = rows.where(kept), roofline[kept], expected[kept]
    groups = tuple(
        _group(dict(zip(by, key, strict=True)), rows["time_s"][at], roofline[at], expected[at])
        for key, at in sorted(together(rows, by).items())
    )
    total = _group({}, rows["time_s"], roofline, expected) if len(rows) else None
    return Validation(groups, total, tuple(skipped), rows, roofline, expected)


def together(rows: Rows, names: Sequence[str]) -> dict[tuple[str, ...], Array]:
    """The indices of the rows that agree in `names`, by what they agree on."""
    count = len(rows)
    codes = np.zeros(count, dtype=np.int64)
    for name in names:
        column = rows[name].astype(str) if name in TEXT else rows[name]
        values, inverse = np.unique(column, return_inverse=True)
        codes = np.unique(codes * len(values) + inverse, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1)) if count else np.array([], dtype=np.int64)
    found = np.split(order, starts[1:]) if count else []
    return {tuple(str(rows[name][at[0]]) for name in names): at for at in found}


def predictions(rows: Rows, overrides: Sequence[str] = ()) -> tuple[Array, Array, list[str]]:
    """Seconds by the roofline and expected for every row, and why a row has none (empty where it has)."""
    roofline, expected = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    asked, reasons = questions(rows, overrides)
    for one, at in asked:
        try:
            roofline[at], expected[at] = one.times()
        except RoofcalcError as error:
            for i in at:
                reasons[i] = str(error)
    return roofline, expected, reasons


def questions(rows: Rows, overrides: Sequence[str] = ()) -> tuple[list[tuple[Asked, Array]], list[str]]:
    """What the rows ask, with the indices of the rows that each question covers; and why some ask nothing."""
    window, keys = rows["window"], rows["S"]
    binding = Rows({**rows.columns, "window": np.where(window >= keys, 0, window)})  # a window of S changes nothing
    found: list[tuple[Asked, Array]] = []
    reasons = [""] * len(rows)
    for at in together(binding, PLAIN).values():
        found += _asked(binding, at, tuple(overrides), reasons)
    return found, reasons


def _asked(rows: Rows, at: Array, overrides: tuple[str, ...], reasons: list[str]) -> list[tuple[Asked, Array]]:
    """The questions of the rows `at`, which agree in PLAIN.

    Where they take more than one tile, or some is at fault, they are halved until all parts agree; sorted
    by what decides on splits and tiles, so that few parts are needed.
    """
    plain = {name: rows[name][at[0]] for name in PLAIN}
    units = rows["batch"][at] * rows["kv_heads"][at]
    pending, left, found = [at[np.lexsort((rows["S"][at], units))]], RETRIES, []
    while pending:
        part = pending.pop()
        try:
            found.append((question(plain, {name: rows[name][part] for name in SIZES}, overrides), part))
        except RoofcalcError as error:
            if isinstance(error, Unpredictable) or len(part) == 1 or left <= 0:
                for i in part:
                    reasons[i] = str(error)
            else:
                left -= 1
                pending += np.array_split(part, 2)
    return found


def _group(keys: Mapping[str, str], measured: Array, roofline: Array, expected: Array) -> Group:
    later = errors(expected, measured) if not np.isnan(expected).any() else None
    return Group(keys, len(measured), errors(roofline, measured), later)


def errors(predicted: Array, measured: Array) -> Errors:
    """The errors of predictions in the unit of the measurements."""
    ratio = predicted / measured
    off = np.abs(ratio - 1)
    return Errors(float(np.median(off)), float(np.percentile(off, 90)), float(off.mean()), float(np.median(ratio)))


def over_limit(validation: Validation, limits: Iterable[str]) -> list[str]:
    """One line for each group whose expected error is above one of the limits (``median=0.1``, ``p90=0.3``).

    Raises RoofcalcError for a limit that is none.
    """
    lines = []
    for text in limits:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in METRICS or name == "bias":
            raise RoofcalcError(f"--limit {text!r}: {name!r} is no error{nearest(name, METRICS[:3])}")
        try:
            bound = float(value)
        except ValueError:
            bound = -1.0
        if not 0 <= bound < float("inf"):
            raise RoofcalcError(f"--limit {text!r}: a number of at least 0 is wanted, such as median=0.1")
        for group in validation.groups:
            error = getattr(group.expected or group.roofline, name)
            if error > bound:
                lines.append(f"{label(group)}: {name} {error:.3f} is above {bound:g}")
    return lines


def label(group: Group) -> str:
    """What a group's rows share, as text."""
    return " ".join(value for value in group.keys.values() if value) or "total"
