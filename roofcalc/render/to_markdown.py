"""Reports as a Markdown table: one row per kernel, the names of the JSON, numbers with their units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from roofcalc.core import Report, Row
from roofcalc.render import listing, units, words
from roofcalc.render.fields import gpu_line, shape_fields, shape_line

_CELLS: dict[str, Callable[[Row], str]] = {
    "flops": lambda row: units.si(row.flops),
    "executed_flops": lambda row: units.si(row.executed_flops),
    "bytes": lambda row: units.size(row.bytes),
    "intensity": lambda row: units.intensity(row.intensity),
    "ridge": lambda row: units.intensity(row.ridge),
    "bound": lambda row: units.NONE if row.bound is None else str(row.bound),
    "roof": lambda row: units.NONE if row.roof is None else str(row.roof),
    "time": lambda row: units.seconds(row.time),
    "expected": lambda row: units.seconds(row.expected, 2),
    "launches": lambda row: units.count(row.launches),
    "share": lambda row: units.percent(row.share),
}


def to_markdown(reports: Sequence[Report], *, explain: bool = False, **_style: object) -> str:
    """The GPUs and the sizes that do not vary, the table, the closing sentences and the notes.

    Sizes that vary from report to report have a column; a ``|`` in a name is escaped. With `explain`
    the ledger follows as a block of code.
    """
    fixed, varied = _sizes(reports)
    head = list(dict.fromkeys(gpu_line(report) for report in reports))
    head += [fixed] if fixed else []
    rows = [_row(report, row, varied) for report in reports for row in report.kernels]
    parts = ["  \n".join(head), listing.to_markdown(rows).rstrip() if rows else ""]
    parts += [" ".join(words.closing(reports)), "\n".join(f"- {note}" for note in words.notes(reports))]
    if explain:
        from roofcalc.render.explain import explanation

        parts.append(f"```\n{explanation(reports)}```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _sizes(reports: Sequence[Report]) -> tuple[str, list[str]]:
    """The line of sizes that all reports share, and the names of those that vary."""
    shapes = [shape_fields(report) for report in reports]
    names = list(dict.fromkeys(name for shape in shapes for name in shape))
    varied = [name for name in names if len({str(shape.get(name)) for shape in shapes}) > 1]
    if not varied:
        return shape_line(reports[0]), []
    same = [
        f"{name}={shapes[0][name]}" for name in names if name not in varied and shapes[0][name] is not None
    ]
    return " · ".join(same), varied


def _row(report: Report, row: Row, varied: Sequence[str]) -> dict[str, Any]:
    sizes = shape_fields(report)
    return {
        "gpu": report.gpu,
        "variant": report.variant,
        **{name: sizes.get(name, "") for name in varied},
        "kernel": row.name,
        **{name: cell(row) for name, cell in _CELLS.items()},
    }
