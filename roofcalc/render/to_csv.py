"""Reports as CSV: one row per kernel, the names of the JSON, full precision, empty where null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofcalc.core import Report
from roofcalc.render import listing
from roofcalc.render.fields import row_fields, shape_fields


def to_csv(reports: Sequence[Report], **_style: object) -> str:
    """One row per kernel: gpu, variant, the sizes, kernel, then the JSON names; lines end in ``\\n``."""
    rows = kernel_rows(reports)
    names = dict.fromkeys(name for row in rows for name in row)
    return listing.to_csv([{name: _cell(row.get(name)) for name in names} for row in rows])


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def kernel_rows(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Flat rows of plain values: the time of each roof is a column of its own, ``roofs.hbm`` and so on."""
    rows = []
    for report in reports:
        head = {"gpu": report.gpu, "variant": report.variant}
        sizes = shape_fields(report)
        for row in report.kernels:
            fields = row_fields(row)
            roofs = {f"roofs.{name}": time for name, time in fields.pop("roofs").items()}
            rows.append({**head, **sizes, "kernel": row.name, **fields, **roofs})
    return rows
