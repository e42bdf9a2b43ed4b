"""The backward passes of `naive` and `flash2`, executed with every access counted.

Atomic adds count as the ledger counts them: the first add to a row finds it in slow memory, a read and a
write; every later one sends its addend to L2, which adds, so it is one write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

import numpy as np

from roofcalc.core import Mode
from roofcalc.simulate.hbm import HBM, Array, Index, blocks
from roofcalc.simulate.layer import ROWS, Layer, block_sizes, visible
from roofcalc.simulate.materialised import softmax_rows
from roofcalc.simulate.online import fold, log_sum_exp, shifted_exp, start

GRADIENTS = ("dQ", "dK", "dV")


class Adding(HBM):
    """A slow memory that adds: `add` counts as one write of the addend."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        super().__init__(arrays)
        self.__added: Counter[tuple[str, Mode]] = Counter()

    def add(self, name: str, index: Index, value: Array) -> None:
        self.write(name, index, self.read(name, index) + value)
        self.__added[name, "read"] += np.size(value)

    @property
    def moved(self) -> dict[tuple[str, Mode], int]:
        """Elements moved so far, by array and direction; what an add reads stays in the memory."""
        return {key: count - self.__added[key] for key, count in super().moved.items()}


def saved(layer: Layer, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What the forward pass leaves in memory, in float64: P [.., T, S], O [.., T, dv] and L [.., T]."""
    shape = layer.shape
    P = np.zeros((shape.batch, shape.heads, shape.T, shape.S))
    O = np.zeros((*P.shape[:3], shape.dv))  # noqa: E741 - the papers' letter
    L = np.zeros(P.shape[:3])
    rows, keys = slice(0, shape.T), slice(0, shape.S)
    for b, h, kv in layer.heads():
        Q, K = arrays["Q"][b, h].astype(np.float64), arrays["K"][b, kv].astype(np.float64)
        s = layer.scores(Q, K, rows, keys)
        P[b, h] = softmax_rows(s)
        O[b, h] = P[b, h] @ arrays["V"][b, kv]
        L[b, h] = log_sum_exp(fold(start(shape.T, 0, np.float64), s, np.zeros((shape.S, 0))))
    return {"P": P, "O": O, "L": L}


def run(
    layer: Layer, arrays: Mapping[str, Array], dO: Array
) -> tuple[dict[str, Array], dict[tuple[str, Mode], int]]:
    """The gradients dQ, dK, dV of sum(dO∘O), and the elements that moved by array and direction.

    `layer` holds a plan of the backward pass alone; what it needs of the forward pass is in memory before
    the first kernel starts and is not counted.
    """
    placed = {**arrays, **saved(layer, arrays), "dO": dO}
    hbm = Adding({name: array.astype(layer.dtype) for name, array in placed.items()})
    for name in GRADIENTS:
        hbm.allocate(name, placed[name[1:]].shape, layer.dtype)
    _RUN[layer.plan.variant](hbm, layer)
    moved = hbm.moved
    return {name: hbm.read(name, (slice(None),)) for name in GRADIENTS}, moved


def _sum(parts: Iterable[Array]) -> Array:
    """The sum over a group's query heads."""
    return reduce(np.add, parts)


def one_kernel_per_product(hbm: Adding, layer: Layer) -> None:
    """dV, dP, dS, dQ, dK: every product reads each operand once, a group's query heads in one sum."""
    square = (layer.shape.batch, layer.shape.heads, layer.shape.T, layer.shape.S)
    hbm.allocate("dP", square, layer.dtype)
    hbm.allocate("dS", square, layer.dtype)
    for b, kv, group in layer.groups():
        hbm.write("dV", (b, kv), _sum(hbm.read("P", (b, h)).T @ hbm.read("dO", (b, h)) for h in group))
    for b, kv, group in layer.groups():
        v = hbm.read("V", (b, kv))
        for h in group:
            hbm.write("dP", (b, h), hbm.read("dO", (b, h)) @ v.T)
    for b, h, _ in layer.heads():
        for rows in blocks(layer.shape.T, ROWS):
            p, dp = hbm.read("P", (b, h, rows)), hbm.read("dP", (b, h, rows))
            hbm.write("dS", (b, h, rows), p * (dp - (p * dp).sum(axis=1, keepdims=True)))
    for b, kv, group in layer.groups():
        k = hbm.read("K", (b, kv))
        for h in group:
            hbm.write("dQ", (b, h), hbm.read("dS", (b, h)) @ k * layer.scale)
    for b, kv, group in layer.groups():
        dk = _sum(hbm.read("dS", (b, h)).T @ hbm.read("Q", (b, h)) for h in group)
        hbm.write("dK", (b, kv), dk * layer.scale)


def keys_outer(hbm: Adding, layer: Layer) -> None:
    """FlashAttention-2, Algorithm 2: dK and dV of a block of keys stay on chip, dQ is added up in memory."""
    shape = layer.shape
    grouped = layer.runs("bwd_dk_sum")
    rows_of = (shape.batch, shape.heads, shape.T)
    keys_of = (shape.batch, shape.heads, shape.S)
    hbm.allocate("delta", rows_of, layer.dtype)
    hbm.allocate("dQ_accum", (*rows_of, shape.d), layer.dtype)
    if grouped:
        hbm.allocate("dK_partial", (*keys_of, shape.d), layer.dtype)
        hbm.allocate("dV_partial", (*keys_of, shape.dv), layer.dtype)
    for b, h, _ in layer.heads():
        delta = (hbm.read("dO", (b, h)) * hbm.read("O", (b, h))).sum(axis=1)
        hbm.write("delta", (b, h), delta)
        hbm.write("dQ_accum", (b, h), np.zeros((shape.T, shape.d), layer.dtype))
    block_q, block_kv = block_sizes(layer.kernel("bwd").tile)
    for b, h, kv in layer.heads():
        begun: set[int] = set()
        for keys in blocks(shape.S, block_kv):
            dk, dv = _block_of_keys(hbm, layer, (b, h, kv), keys, block_q, begun)
            hbm.write(*(("dK_partial", (b, h, keys)) if grouped else ("dK", (b, kv, keys))), dk)
            hbm.write(*(("dV_partial", (b, h, keys)) if grouped else ("dV", (b, kv, keys))), dv)
    for b, h, _ in layer.heads():
        hbm.write("dQ", (b, h), hbm.read("dQ_accum", (b, h)) * layer.scale)
    for name in ("dK", "dV") if grouped else ():
        for b, kv, group in layer.groups():
            hbm.write(name, (b, kv), _sum(hbm.read(f"{name}_partial", (b, h)) for h in group))


def _block_of_keys(
    hbm: Adding, layer: Layer, head: tuple[int, int, int], keys: slice, block_q: int, begun: set[int]
) -> tuple[Array, Array]:
    """dK and dV of one block of keys; the query blocks that see it pass by and get their part of dQ."""
    b, h, kv = head
    k, v = hbm.read("K", (b, kv, keys)), hbm.read("V", (b, kv, keys))
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for rows in blocks(layer.shape.T, block_q):
        if not visible(layer.shape, rows, keys).any():
            continue
        q, do = hbm.read("Q", (b, h, rows)), hbm.read("dO", (b, h, rows))
        p = shifted_exp(layer.scores(q, k, rows, keys), hbm.read("L", (b, h, rows))[:, None])
        dv = dv + p.T @ do
        ds = p * (do @ v.T - hbm.read("delta", (b, h, rows))[:, None])
        dk = dk + ds.T @ q * layer.scale
        if rows.start in begun:
            hbm.add("dQ_accum", (b, h, rows), ds @ k)
        else:
            hbm.write("dQ_accum", (b, h, rows), hbm.read("dQ_accum", (b, h, rows)) + ds @ k)
            begun.add(rows.start)
    return dk, dv


_RUN: dict[str, Callable[[Adding, Layer], None]] = {"naive": one_kernel_per_product, "flash2": keys_outer}
