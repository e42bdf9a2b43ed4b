"""What a run has shown: counts beside the ledger, and how far the result is from the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from roofcalc.core import Mode, Shape

TOLERANCE = 1e-12
"""The largest float64 error of a right result: sums of some thousand terms of size 1 stay far below it."""


@dataclass(frozen=True)
class TensorCount:
    """Elements of one array read or written: as counted in the run and as the ledger has them."""

    tensor: str
    mode: Mode
    counted: int
    ledger: int


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`.

    `error64` and `error32` are the largest absolute errors of the run in float64 and in float32 against
    softmax(Q Kᵀ / sqrt(d)) V in float64; NaN where an output was never written. `tolerance` is the largest
    `error64` of a right result, `against` what the result was held to.
    """

    variant: str
    shape: Shape
    tensors: tuple[TensorCount, ...]
    error64: float
    error32: float
    tolerance: float = TOLERANCE
    against: str = "softmax(QKᵀ)V"

    @property
    def agree(self) -> bool:
        """Whether every count equals the ledger's and the float64 result is right."""
        return self.error64 <= self.tolerance and all(line.counted == line.ledger for line in self.tensors)

    def to_dict(self) -> dict[str, Any]:
        """The JSON output; an error that is no number is null."""
        return {
            "schema": 1,
            "variant": self.variant,
            "tensors": [
                {"tensor": line.tensor, "mode": line.mode, "counted": line.counted, "ledger": line.ledger}
                for line in self.tensors
            ],
            "error": self.error64 if math.isfinite(self.error64) else None,
            "error32": self.error32 if math.isfinite(self.error32) else None,
            "agree": self.agree,
        }

    def to_text(self) -> str:
        """A table of the counts and two lines of verdict."""
        s = self.shape
        heads = f"heads {s.heads}" if s.kv_heads == s.heads else f"heads {s.heads} · KV heads {s.kv_heads}"
        mask = ("causal" if s.causal else "no mask") + (f", window {s.window}" if s.window is not None else "")
        title = f"{self.variant} · batch {s.batch} · {heads} · T={s.T} · S={s.S} · d={s.d} · dv={s.dv} · {mask}"
        lines: list[tuple[str, str, int, int]] = [
            (line.tensor, line.mode, line.counted, line.ledger) for line in self.tensors
        ]
        lines.append(("total", "", sum(line[2] for line in lines), sum(line[3] for line in lines)))
        rows = [("elements of", "", "counted", "ledger", "")]
        rows += [(name, mode, f"{c:,}", f"{n:,}", "" if c == n else f"{c - n:+,}") for name, mode, c, n in lines]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        table = [
            f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}"
            for row in rows
        ]
        return "\n".join([title, "", *(line.rstrip() for line in table), "", *self._verdict()])

    def _verdict(self) -> list[str]:
        wrong = [f"{line.tensor} {line.mode}" for line in self.tensors if line.counted != line.ledger]
        counts = f"count and ledger differ: {', '.join(wrong)}" if wrong else "count equals ledger, tensor by tensor"
        right = "" if self.error64 <= self.tolerance else f" (above {self.tolerance:g}: the result is wrong)"
        errors = f"{self.error64:.1e} in float64{right}, {self.error32:.1e} in float32"
        return [counts, f"largest error against {self.against}: {errors}"]
