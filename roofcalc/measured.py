"""Measured kernel times: rows of a CSV file as columns, empty cells filled with the defaults."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from roofcalc.core import RoofcalcError
from roofcalc.statements import check_names, holds, parse

Array = np.ndarray[Any, Any]

TEXT = {
    "gpu": "", "op": "attention", "variant": "", "kernel": "", "library": "", "model": "", "dtype": "bf16",
    "kv_dtype": "", "pass": "fwd", "elementwise": "", "cache": "cold", "source": "", "note": "",
}  # fmt: skip
"""The text columns with what an empty cell means; an empty kv_dtype is the row's dtype."""

NUMBERS = {
    "batch": 1, "heads": 32, "kv_heads": 0, "T": 0, "S": 0, "d": 128, "causal": 0, "window": 0, "splits": 0,
    "m": 0, "n": 0, "k": 0,
}  # fmt: skip
"""The counts; 0 stands for: kv_heads as heads, T one token (decode) or S, S as T, no window, splits unknown."""

COLUMNS = (*TEXT, *NUMBERS, "time_s")
_FLAGS = {"true": 1, "false": 0, "yes": 1, "no": 0}


class MeasurementError(RoofcalcError):
    """A measurement file that cannot be read."""


@dataclass(frozen=True)
class Rows:
    """Measurements as columns of equal length: text, whole numbers, and `time_s` in seconds."""

    columns: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.columns["time_s"])

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def where(self, mask: Array) -> Rows:
        """The rows where `mask` is true."""
        return Rows({name: column[mask] for name, column in self.columns.items()})


def read(path: str | Path) -> Rows:
    """The rows of a measurement file (.csv or .csv.gz). Unknown columns are ignored, empty cells take defaults.

    Raises MeasurementError, with ``file:line``, for a file that cannot be read, one without a `time_s`
    column, and a cell that is no number where one is wanted.
    """
    with _opened(Path(path)) as lines:
        reader = csv.reader(lines)
        try:
            header = next(reader, [])
            if "time_s" not in header:
                raise MeasurementError(f"{path}:1: no column time_s; the columns are {', '.join(COLUMNS)}")
            table = [row for row in reader if row]
        except (csv.Error, UnicodeDecodeError, EOFError, OSError) as error:
            raise MeasurementError(f"{path}: {error}") from None
    for line, row in enumerate(table, 2):
        if len(row) != len(header):
            raise MeasurementError(f"{path}:{line}: {len(row)} cells, but the header has {len(header)}")
    cells = dict(zip(header, zip(*table, strict=True), strict=True)) if table else {}
    return Rows(_columns(cells, len(table), str(path)))


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        raw = path.open("rb")
    except OSError as error:
        raise MeasurementError(f"{path}: {error.strerror or error}") from None
    with raw:
        plain = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        yield io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")


def _columns(cells: Mapping[str, Sequence[str]], count: int, origin: str) -> dict[str, Array]:
    columns: dict[str, Array] = {}
    for name, default in TEXT.items():
        column = np.array(cells.get(name, [""] * count), dtype=object)
        columns[name] = np.where(column == "", default, column)
    for name, least in NUMBERS.items():
        columns[name] = _whole(name, cells.get(name, [""] * count), least, origin)
    columns["time_s"] = _seconds(cells.get("time_s", ()), origin)
    columns["kv_dtype"] = np.where(columns["kv_dtype"] == "", columns["dtype"], columns["kv_dtype"])
    heads, T, S = columns["heads"], columns["T"], columns["S"]
    columns["kv_heads"] = np.where(columns["kv_heads"] == 0, heads, columns["kv_heads"])
    one = columns["op"] == "decode"
    columns["T"] = np.where(T == 0, np.where(one, 1, S), T)
    columns["S"] = np.where((S == 0) & ~one, T, S)
    return columns


def _whole(name: str, cells: Sequence[str], default: int, origin: str) -> Array:
    known = {"": default, **{text: _FLAGS[text] for text in _FLAGS}}
    values = np.empty(len(cells), dtype=np.int64)
    for i, text in enumerate(cells):
        value = known.get(text)
        if value is None:
            value = known[text] = _count(text, name, f"{origin}:{i + 2}")
        values[i] = value
    return values


def _count(text: str, name: str, place: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0 or value != int(value) or value > 2**53:
        raise MeasurementError(f"{place}: {name} is {text!r}; a whole number is wanted")
    return int(value)


def _seconds(cells: Sequence[str], origin: str) -> Array:
    try:
        values = np.array(cells, dtype=np.float64)
    except ValueError:
        values = np.full(len(cells), np.nan)
    for i in np.flatnonzero(~(values > 0) | ~np.isfinite(values)):
        text = cells[int(i)]
        try:
            good = 0 < float(text) < float("inf")
        except ValueError:
            good = False
        if not good:
            raise MeasurementError(f"{origin}:{i + 2}: time_s is {text!r}; seconds above 0 are wanted")
        values[i] = float(text)
    return values


def select(rows: Rows, statement: str | None) -> Rows:
    """The rows that a statement on their columns leaves. Raises StatementError for an unknown column."""
    if statement is None:
        return rows
    conditions = parse(statement)
    check_names(conditions, COLUMNS)
    mask = np.ones(len(rows), dtype=bool)
    for condition in conditions:
        mask &= holds(condition, rows[condition.name])
    return rows.where(mask)
