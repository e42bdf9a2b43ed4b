"""One attention layer as the kernels see it: sizes, mask, inputs, and the answer that they must reach."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from roofcalc.core import Kernel, Limits, Plan, RoofcalcError, Shape, Tile
from roofcalc.simulate.hbm import HBM, Array, blocks

ROWS = 128
"""Query rows that a kernel without a tile of its own takes at a time; its traffic does not depend on it."""

KEEP = 0.9
"""The share of the weights that dropout keeps."""


@dataclass(frozen=True)
class Layer:
    """A plan about to run: the tiles come from it, the arithmetic is in `dtype`."""

    plan: Plan
    limits: Limits
    dtype: DTypeLike

    @property
    def shape(self) -> Shape:
        return self.plan.shape

    @property
    def scale(self) -> float:
        """1 / sqrt(d), a plain number so that it takes the precision of what it multiplies."""
        return 1.0 / math.sqrt(self.shape.d)

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name."""
        return next(kernel for kernel in self.plan.kernels if kernel.name == name)

    def runs(self, name: str) -> bool:
        """Whether the plan has a kernel of that name."""
        return any(kernel.name == name for kernel in self.plan.kernels)

    def heads(self) -> Iterator[tuple[int, int, int]]:
        """Every (sequence, query head, KV head)."""
        for b in range(self.shape.batch):
            for h in range(self.shape.heads):
                yield b, h, h // self.shape.group

    def groups(self) -> Iterator[tuple[int, int, range]]:
        """Every (sequence, KV head, query heads that share it)."""
        for b in range(self.shape.batch):
            for kv in range(self.shape.kv_heads):
                yield b, kv, range(kv * self.shape.group, (kv + 1) * self.shape.group)

    def masked(self, s: Array, rows: slice, keys: slice) -> Array:
        """The scores `s` of a tile, -inf where the mask hides the key from the query."""
        return np.where(visible(self.shape, rows, keys), s, s.dtype.type(-np.inf))

    def scores(self, q: Array, k: Array, rows: slice, keys: slice) -> Array:
        """Scaled and masked scores of a tile."""
        return self.masked(q @ k.T * self.scale, rows, keys)

    def live(self, rows: slice, step: int) -> list[slice]:
        """The blocks of `step` keys of which some query of `rows` sees at least one."""
        return [keys for keys in blocks(self.shape.S, step) if visible(self.shape, rows, keys).any()]

    def reach(self) -> tuple[slice, slice]:
        """The queries that see a key and the keys that some query sees."""
        every = slice(0, self.shape.S)
        masks = [visible(self.shape, rows, every) for rows in blocks(self.shape.T, ROWS)]
        seeing = np.concatenate([mask.any(axis=1) for mask in masks])
        seen = np.any([mask.any(axis=0) for mask in masks], axis=0)
        return _span(seeing), _span(seen)

    def keep(self, b: int, h: int) -> Array:
        """Dropout's mask of one head [T, S], from a generator that every kernel can run again."""
        sizes = (self.shape.T, self.shape.S)
        return np.random.default_rng((1, b, h)).random(sizes) < KEEP


def _span(hit: Array) -> slice:
    """From the first True to the last."""
    places = np.flatnonzero(hit)
    return slice(int(places[0]), int(places[-1]) + 1)


def block_sizes(tile: Tile | None) -> tuple[int, int]:
    """Query rows and keys of a tile that has both."""
    if tile is None or tile.block_q is None or tile.block_kv is None:
        raise RoofcalcError("the plan names no tile for this kernel, so there is nothing to run")
    return int(tile.block_q), int(tile.block_kv)


def visible(shape: Shape, rows: slice, keys: slice) -> Array:
    """Which keys each query sees [rows, keys], element by element from the definition of the mask.

    Query i stands at position p = i + S - T. Causal: 0 <= p - j < window; else |p - j| < window.
    """
    p = np.arange(rows.start, rows.stop)[:, None] + (shape.S - shape.T)
    distance = p - np.arange(keys.start, keys.stop)[None, :]
    allowed = distance >= 0 if shape.causal else np.full(distance.shape, True)
    if shape.window is not None:
        allowed = allowed & (np.abs(distance) < shape.window)
    return allowed


def inputs(shape: Shape) -> dict[str, Array]:
    """Q, K and V with one head per matrix, values that float32 holds exactly.

    Q is three times a standard normal: the scores then spread enough to move the running maximum.
    """
    draw = np.random.default_rng(0)
    sizes = {
        "Q": (shape.batch, shape.heads, shape.T, shape.d),
        "K": (shape.batch, shape.kv_heads, shape.S, shape.d),
        "V": (shape.batch, shape.kv_heads, shape.S, shape.dv),
    }
    arrays = {name: draw.standard_normal(size, np.float32) for name, size in sizes.items()}
    return {**arrays, "Q": 3 * arrays["Q"]}


def memory(layer: Layer, arrays: dict[str, Array]) -> HBM:
    """The slow memory with the inputs in it, in the precision of the run."""
    placed = {name: array.astype(layer.dtype) for name, array in arrays.items()}
    if layer.runs("mask"):
        everything = visible(layer.shape, slice(0, layer.shape.T), slice(0, layer.shape.S))
        placed["M"] = np.where(everything, 0.0, -np.inf).astype(layer.dtype)
    return HBM(placed)


def error(layer: Layer, arrays: dict[str, Array], O: Array) -> float:  # noqa: E741
    """The largest |O - softmax(Q Kᵀ / sqrt(d)) V|, the right-hand side in float64, 0 for rows without a key.

    The reference takes whole rows and normalises before it multiplies by V. NaN where O holds one.
    """
    shape = layer.shape
    worst = 0.0
    for b, h, kv in layer.heads():
        keep = layer.keep(b, h) / KEEP if layer.runs("dropout") else None
        for rows in blocks(shape.T, max(1, 4_000_000 // shape.S)):
            places = {"Q": (b, h, rows), "K": (b, kv), "V": (b, kv)}
            Q, K, V = (arrays[name][place].astype(np.float64) for name, place in places.items())
            seen = visible(shape, rows, slice(0, shape.S))
            s = np.where(seen, np.einsum("id,jd->ij", Q, K) / np.sqrt(shape.d), -np.inf)
            top = np.max(s, axis=1, keepdims=True, where=seen, initial=-1e300)
            weights = np.where(seen, np.exp(np.where(seen, s - top, 0.0)), 0.0)
            weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
            weights = weights if keep is None else weights * keep[rows]
            worst = float(np.maximum(worst, np.abs(O[b, h, rows] - weights @ V).max()))
    return worst
