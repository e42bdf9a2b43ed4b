"""What the tests of decode share."""

from __future__ import annotations

from typing import Any

from roofcalc.core import Report, Row
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.models import variants
from roofcalc.models.cache import decode_shape

OPTIONS = ("splits", "page_size", "kv_lora_rank", "rope_dim", "expanded")


def decode(variant: str, gpu: str = "h100", S: int | tuple[int, ...] | None = 8192, **sizes: Any) -> Report:
    """The report of a decode variant; `sizes` are those of a shape and the variant's options."""
    options = {name: sizes.pop(name) for name in OPTIONS if name in sizes}
    hardware = load(gpu)
    return estimate(
        variants("decode")[variant].plan(decode_shape(S, **sizes), hardware.limits, options), hardware
    )


def rows(report: Report) -> dict[str, Row]:
    return {row.name: row for row in report.kernels}


def moved(report: Report, *tensors: str, tier: str = "hbm", mode: str = "read") -> int:
    """Bytes of all ledger lines of some tensors, over all kernels and launches."""
    return sum(
        line.bytes * row.launches
        for row in report.kernels
        for line in row.ledger
        if line.tensor in tensors and line.tier == tier and line.mode == mode
    )
