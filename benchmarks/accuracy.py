"""How far predictions are from measured times: roofline and expected, on fitted and on held-out rows.

    python benchmarks/accuracy.py measurements.csv

A fixed tenth of the rows, chosen by a hash of what was measured, is never fitted on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import sha256

import numpy as np

from roofcalc.constants import constants, families
from roofcalc.hardware import load
from roofcalc.measured import COLUMNS, Array, Rows, read
from roofcalc.validation import Errors, errors, predictions

WHAT = tuple(name for name in COLUMNS if name not in ("time_s", "source", "note"))


def held_out(rows: Rows) -> Array:
    """The rows that no constant is fitted on: one in ten, by a hash of everything but the time."""
    columns = [rows[name].astype(str) for name in WHAT]
    digests = (sha256("|".join(cells).encode()).digest()[0] for cells in zip(*columns, strict=True))
    return np.fromiter((digest % 10 == 0 for digest in digests), dtype=bool, count=len(rows))


def text(rows: Rows, name: str) -> Array:
    return rows[name].astype(str)


def _attention(variants: tuple[str, ...], passes: tuple[str, ...]) -> Callable[[Rows], Array]:
    return lambda r: (r["op"] == "attention") & np.isin(text(r, "variant"), variants) & np.isin(text(r, "pass"), passes)


def _wall(rows: Rows) -> Array:
    return np.char.find(text(rows, "variant"), "_wall") >= 0


GROUPS: dict[str, Callable[[Rows], Array]] = {
    "fused attention forward": _attention(("flash2", "flash3"), ("fwd",)),
    "fused attention backward": _attention(("flash2", "flash3"), ("bwd", "fwd+bwd")),
    "decode, split-kv": lambda r: (r["op"] == "decode") & (r["variant"] == "split-kv"),
    "linear": lambda r: r["op"] == "linear",
    "elementwise": lambda r: (r["op"] == "elementwise") & ~_wall(r),
    "eager attention": _attention(("eager", "naive"), ("fwd", "bwd", "fwd+bwd")),
    "step, CUDA graph": lambda r: (r["op"] == "step") & (np.char.find(text(r, "variant"), "graph") == 0) & ~_wall(r),
    "decode, naive and replicated": lambda r: (r["op"] == "decode") & (r["variant"] != "split-kv"),
}
"""The groups of the table and the rows of each."""


def shown(error: Errors | None) -> str:
    return "-" if error is None else f"{error.median:.1%} / {error.p90:.1%} ({error.bias:.2f})"


def line(name: str, rows: Rows, roofline: Array, expected: Array, held: Array, mask: Array) -> str:
    """One row of the table: median / 90th percentile (bias), or a dash for an empty part."""
    known = mask & ~np.isnan(expected)
    cells = []
    for part in (known & ~held, known & held):
        for predicted in (roofline, expected):
            cells.append(errors(predicted[part], rows["time_s"][part]) if part.any() else None)
    skipped = int((mask & np.isnan(expected)).sum())
    counts = f"{int((known & ~held).sum())} + {int((known & held).sum())}" + (f", {skipped} skipped" if skipped else "")
    return f"| {name} | {counts} | " + " | ".join(map(shown, (*cells[:2], *cells[2:]))) + " |"


def main(path: str) -> None:
    rows = read(path)
    roofline, expected, reasons = predictions(rows)
    held = held_out(rows)
    parts = ("roofline, fitted", "expected, fitted", "roofline, held out", "expected, held out")
    print(f"| group | rows: fitted + held out | {' | '.join(parts)} |\n|---|---|---|---|---|---|")
    for name, chosen in GROUPS.items():
        print(line(name, rows, roofline, expected, held, chosen(rows)))
    for gpu in sorted(set(text(rows, "gpu"))):
        calibration = load(gpu).calibration
        if calibration is not None:
            counts = {path: 0 for path, _ in families(calibration)}
            for constant in constants(calibration):
                counts[constant.path.rpartition(".")[0]] += 1
            print(f"\nConstants of {gpu}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    dropped = {reason for reason in reasons if reason and "is not predicted" not in reason}
    for reason in sorted(dropped):
        print(f"skipped {reasons.count(reason)}: {reason}")


if __name__ == "__main__":
    main(sys.argv[1])
