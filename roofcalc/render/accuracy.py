"""Predicted against measured: the table of errors by group, its JSON, and the picture of all points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofcalc.render import plot_format, units
from roofcalc.render.listing import columns, to_csv, to_json, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from roofcalc.validation import Errors, Group, Validation

_PERCENT = ("median", "p90", "mean")
POINTS = 4000
"""Points drawn at most; of more, evenly spaced ones."""


def table(found: Validation, *, width: int | None = None) -> str:
    """One line a group, then all rows, then what was skipped; errors of the roofline and of the expected time."""
    rows = _lines(found)
    if not rows:
        return _skipped(found) or "no rows\n"
    right = [name for name in rows[0] if name not in found.groups[0].keys]
    return columns(rows, right=right, width=width) + _skipped(found)


def markdown(found: Validation) -> str:
    """The same lines as a Markdown table."""
    return to_markdown(_lines(found)) if found.groups else "no rows\n"


def csv_text(found: Validation) -> str:
    """One row a group: its columns, count, and the errors as plain numbers."""
    return to_csv([_flat(group) for group in found.groups])


def json_text(found: Validation) -> str:
    """The JSON document of `as_dict`."""
    return to_json(**as_dict(found))


def as_dict(found: Validation) -> dict[str, Any]:
    """`groups`, `total` and `skipped` as INTERFACE's JSON names them, without the schema."""
    return {
        "groups": [_fields(group) for group in found.groups],
        "total": _fields(found.total) if found.total else None,
        "skipped": [{"reason": reason, "count": count} for reason, count in found.skipped],
    }


def _fields(group: Group) -> dict[str, Any]:
    later = asdict(group.expected) if group.expected else None
    return {**group.keys, "count": group.count, "roofline": asdict(group.roofline), "expected": later}


def _flat(group: Group) -> dict[str, Any]:
    cells: dict[str, Any] = {**group.keys, "count": group.count}
    for name, error in (("roofline", group.roofline), ("expected", group.expected)):
        for field in (*_PERCENT, "bias"):
            cells[f"{name}_{field}"] = getattr(error, field) if error else None
    return cells


def _lines(found: Validation) -> list[dict[str, str]]:
    lines = [_line(group.keys, group) for group in found.groups]
    if found.total and found.groups:
        names = list(found.groups[0].keys)
        lines.append(_line({name: "" for name in names} | {name: "total" for name in names[:1]}, found.total))
    return lines


def _line(keys: Mapping[str, str], group: Group) -> dict[str, str]:
    errors = {**_cells("roofline", group.roofline), **_cells("expected", group.expected)}
    return {**keys, "rows": str(group.count), **errors}


def _cells(name: str, error: Errors | None) -> dict[str, str]:
    """Median, 90th percentile, mean and bias under headings that name the prediction once."""
    texts = [units.NONE] * 4
    if error is not None:
        texts = [*(f"{100 * getattr(error, field):.1f} %" for field in _PERCENT), f"{error.bias:.2f}"]
    return dict(zip((f"{name} median", "p90" + _pad(name), "mean" + _pad(name), "bias" + _pad(name)), texts, strict=True))


def _pad(name: str) -> str:
    """Blanks that keep the headings of the two halves apart as keys."""
    return "" if name == "roofline" else " "


def _skipped(found: Validation) -> str:
    return "".join(f"skipped {count}: {reason}\n" for reason, count in found.skipped)


def plot_accuracy(found: Validation, path: str | Path) -> None:
    """Draw `figure` into `path`; PNG, SVG or PDF by its ending, the same bytes for the same rows."""
    import matplotlib
    import matplotlib.style

    kind = plot_format(path)
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with matplotlib.style.context("default"), matplotlib.rc_context({"svg.hashsalt": "roofcalc"}):
        figure(found).savefig(path, format=kind, metadata=metadata, dpi=150)


def figure(found: Validation) -> Figure:
    """Left: predicted over measured time of every row, both axes logarithmic, the diagonal where they agree.
    Right: predicted / measured by measured time, the band within 10 %."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(11, 5), layout="constrained")
    left, right = drawing.subplots(1, 2)
    every = slice(None, None, max(1, len(found.rows) // POINTS))
    measured = found.rows["time_s"][every]
    for name, values, color in (("roofline", found.roofline, "#b0b0b0"), ("expected", found.expected, "#c44e52")):
        predicted = values[every]
        left.plot(measured, predicted, ".", ms=3, color=color, alpha=0.6, label=name)
        right.plot(measured, predicted / measured, ".", ms=3, color=color, alpha=0.6, label=name)
    if len(measured):
        ends = [float(measured.min()), float(measured.max())]
        left.plot(ends, ends, "-", color="black", lw=0.8)
        right.fill_between(ends, 0.9, 1.1, color="black", alpha=0.08, lw=0)
    right.axhline(1, color="black", lw=0.8)
    for axes, label in ((left, "predicted, s"), (right, "predicted / measured")):
        axes.set(xscale="log", yscale="log", xlabel="measured, s", ylabel=label)
        axes.grid(True, which="major", lw=0.3)
    left.legend(frameon=False)
    left.set_title(f"{len(found.rows)} measured kernels")
    right.set_title("within 10 % in the band")
    return drawing

