"""Predicted against measured: the table of errors by group, and the same as JSON, CSV and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roofcalc.render import units
from roofcalc.render.listing import columns, to_csv, to_json, to_markdown

if TYPE_CHECKING:
    from roofcalc.validation import Errors, Group, Validation

_PERCENT = ("median", "p90", "mean")


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
        lines.append(_line(dict.fromkeys(names, "") | dict.fromkeys(names[:1], "total"), found.total))
    return lines


def _line(keys: Mapping[str, str], group: Group) -> dict[str, str]:
    errors = {**_cells("roofline", group.roofline), **_cells("expected", group.expected)}
    return {**keys, "rows": str(group.count), **errors}


def _cells(name: str, error: Errors | None) -> dict[str, str]:
    """Median, 90th percentile, mean and bias under headings that name the prediction once."""
    texts = [units.NONE] * 4
    if error is not None:
        texts = [*(f"{100 * getattr(error, field):.1f} %" for field in _PERCENT), f"{error.bias:.2f}"]
    apart = "" if name == "roofline" else " "  # the two halves have the same headings, but keys must differ
    headings = (f"{name} median", f"p90{apart}", f"mean{apart}", f"bias{apart}")
    return dict(zip(headings, texts, strict=True))


def _skipped(found: Validation) -> str:
    return "".join(f"skipped {count}: {reason}\n" for reason, count in found.skipped)
