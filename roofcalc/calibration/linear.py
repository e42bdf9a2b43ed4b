"""Products with a weight matrix: tiles, waves, split-K, against the bytes of the weights."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from roofcalc.calibration.machine import Machine, bytes_time, overlapped
from roofcalc.core import Kernel, Term
from roofcalc.numeric import Num, ceil_div, minimum, where

if TYPE_CHECKING:
    from roofcalc.constants import Linear

TILES = (
    (128, 256), (256, 128), (128, 128), (128, 192), (192, 128), (64, 256), (64, 192), (64, 128), (64, 64),
)  # fmt: skip
"""Tiles of the result that cuBLAS and CUTLASS ship for Hopper and Ampere (rows x columns)."""

SPLITS = (1, 2, 4, 8)


def linear(kernel: Kernel, c: Linear, gpu: Machine) -> tuple[Term, ...]:
    """A linear layer: the library picks the tile and the split of K that finish first.

    Weights come from HBM at almost a copy's rate. A large product runs at 64 to 84 % of the boost-clock
    rate: at 700 W an H200 falls to about 1500 MHz, and `rate` is that clock's share. Matrix work and
    bytes hide behind each other, but for the corner.
    """
    m, n, k = kernel.sizes["m"], kernel.sizes["n"], kernel.sizes["k"]
    products = reduce(minimum, (_waves(m, n, k, tile, s, c, gpu) for tile in TILES for s in SPLITS))
    return (
        Term("floor", c.floor, "start, first loads and last stores"),
        *overlapped(
            Term("memory", bytes_time(kernel, gpu, c.hbm, 1), f"weights and activations at {c.hbm:.0%} of HBM"),
            Term("products", products, f"whole waves of tiles at {c.rate:.0%} of the boost-clock rate"),
            c.overlap,
        ),
    )


def _waves(m: Num, n: Num, k: Num, tile: tuple[int, int], splits: int, c: Linear, gpu: Machine) -> Num:
    """Seconds of the matrix work with this tile and split: waves, each as long as one tile's K loop."""
    rows, columns = tile
    tiles = ceil_div(m, rows) * ceil_div(n, columns)
    one = 2 * rows * columns * k / splits / (gpu.tensor / gpu.sms * c.rate)
    waves = ceil_div(tiles * splits, gpu.sms) * one
    if splits == 1:
        return waves
    return where(tiles < gpu.sms, waves + c.split, float("inf") + 0 * waves)
