"""What the tests of ledgers share: a variant's one kernel, its lines by tensor, and the work on a pipe."""

from __future__ import annotations

from typing import Any

from roofcalc.core import Kernel, Limits, Plan, Report, Row, Shape
from roofcalc.hardware import load
from roofcalc.models import variants

FLASH = ("flash1", "flash2", "flash3")
FUSED = (*FLASH, "chunked")
MIB = 2**20


def plan(variant: str, gpu: str | Limits = "h100", options: dict[str, Any] | None = None, **sizes: Any) -> Plan:
    limits = load(gpu).limits if isinstance(gpu, str) else gpu
    return variants("attention")[variant].plan(Shape.of(**sizes), limits, options)


def kernel(variant: str, gpu: str | Limits = "h100", options: dict[str, Any] | None = None, **sizes: Any) -> Kernel:
    return plan(variant, gpu, options, **sizes).kernels[0]


def lines(found: Kernel) -> dict[tuple[str, str, str], Any]:
    """Bytes by tensor, mode and tier."""
    got: dict[tuple[str, str, str], Any] = {}
    for access in found.accesses:
        key = (access.tensor, access.mode, access.tier)
        assert key not in got
        got[key] = access.bytes
    return got


def hbm(variant: str, gpu: str | Limits = "h100", **sizes: Any) -> Any:
    return sum(k.bytes_through("hbm") for k in plan(variant, gpu, **sizes).kernels)


def executed(found: Kernel, pipe: str) -> Any:
    return sum(work.run for work in found.work if work.pipe == pipe)


def useful(found: Kernel, pipe: str) -> Any:
    return sum(work.ops for work in found.work if work.pipe == pipe)


def moved(rows: tuple[Row, ...], tier: str = "hbm") -> dict[tuple[str, str], int]:
    """Elements by tensor and direction."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        for line in row.ledger:
            if line.tier == tier:
                found[line.tensor, line.mode] = found.get((line.tensor, line.mode), 0) + line.elements
    return found


def kernel_names(got: Report) -> list[str]:
    return [row.name for row in got.kernels]
