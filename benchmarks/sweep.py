"""Configurations per second: one evaluation over an array of lengths, every kernel, roof and expected time.

    python benchmarks/sweep.py
"""

from __future__ import annotations

import time

import numpy as np

from roofcalc.core import Shape
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.models import variants

COUNT = 200_000


def main() -> None:
    h100 = load("h100")
    shape = Shape.of(T=np.arange(1, COUNT + 1), heads=32, kv_heads=8, causal=True)
    for name in ("naive", "flash3"):
        variant = variants("attention")[name]
        start = time.perf_counter()
        estimate(variant.plan(shape, h100.limits), h100)
        print(f"{name:8s} {COUNT / (time.perf_counter() - start):12,.0f} configurations a second")


if __name__ == "__main__":
    main()
