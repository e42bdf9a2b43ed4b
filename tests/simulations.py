"""A run of the simulator in one call, for the tests."""

from __future__ import annotations

from typing import Any

from roofcalc.core import Limits, Shape
from roofcalc.hardware import load
from roofcalc.simulate import Verification, verify

H100 = load("h100").limits
DECODE = ("flash", "flash-gqa", "split-kv")
TILED = ("flash1", "flash2", "flash3")


def ran(variant: str, limits: Limits = H100, **given: Any) -> Verification:
    """The verification of one head of head dim 2 unless said otherwise; what is no size is an option."""
    known = ("elementwise", "block_q", "block_kv", "splits")
    options = {name: given.pop(name) for name in known if name in given}
    return verify(variant, Shape.of(**{"heads": 1, "d": 2, **given}), limits, options)


def counted(variant: str, **given: Any) -> dict[str, int]:
    """What a run counted, by "tensor mode"; the ledger must say the same and the result must be right."""
    found = ran(variant, **given)
    assert found.agree, found.to_text()
    return {f"{line.tensor} {line.mode}": line.counted for line in found.tensors}
