"""Reports as JSON, schema 1: SI units, null where a key does not apply, never NaN or Infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofcalc import __version__
from roofcalc.core import Report, Row
from roofcalc.render import listing
from roofcalc.render.fields import moved, over_launches, plain, row_fields, shape_fields

_TOTAL = ("flops", "executed_flops", "bytes", "intensity", "time", "expected", "launches")


def to_json(
    reports: Sequence[Report], *, command: str, extra: Mapping[str, Any] | None = None, **_style: object
) -> str:
    """The document of one command. Raises ValueError where a report holds NaN or an infinity.

    `extra` are the command's own keys, after the reports.
    """
    fields = [report_fields(report) for report in reports]
    return listing.to_json(roofcalc=__version__, command=command, reports=fields, **(extra or {}))


def report_fields(report: Report) -> dict[str, Any]:
    """One report of the document."""
    return {
        "gpu": report.gpu,
        "variant": report.variant,
        "source": report.source,
        "shape": shape_fields(report),
        "kernels": [kernel_fields(row) for row in report.kernels],
        "total": {name: plain(getattr(report.total, name)) for name in _TOTAL}
        | {"memory": plain(report.memory)}
        | {name: plain(value) for name, value in report.totals.items()},
        "notes": list(report.notes),
    }


def kernel_fields(row: Row) -> dict[str, Any]:
    """One kernel with its ledger; bytes and operations are those of all its launches."""
    ledger = [
        {
            "tensor": access.tensor,
            "mode": access.mode,
            "tier": access.tier,
            "bytes": plain(moved(row, access)),
            "why": over_launches(row, access.why),
        }
        for access in row.ledger
    ]
    work = [
        {
            "pipe": item.pipe,
            "ops": plain(item.ops * row.launches),
            "executed": plain(item.run * row.launches),
            "dtype": item.dtype,
            "why": over_launches(row, item.why),
        }
        for item in row.work
    ]
    return {"name": row.name, **row_fields(row), "ledger": ledger, "work": work}
