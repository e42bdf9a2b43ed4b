"""Attention whose scores pass through memory: the kernels of `naive` and `eager`.

Each product reads every operand once, the KV head's keys once for all query heads of its group.
"""

from __future__ import annotations

import numpy as np

from roofcalc.core import BITS
from roofcalc.numeric import ceil_div
from roofcalc.simulate.hbm import HBM, Array, blocks
from roofcalc.simulate.layer import KEEP, ROWS, Layer
from roofcalc.simulate.online import shifted_exp


def chain(hbm: HBM, layer: Layer) -> None:
    """Run the kernels that the plan names, one after the other."""
    shape = layer.shape
    square = (shape.batch, shape.heads, shape.T, shape.S)
    hbm.allocate("S", square, layer.dtype)
    hbm.allocate("P", square, layer.dtype)
    hbm.allocate("O", (*square[:3], shape.dv), layer.dtype)
    if layer.runs("dropout"):
        hbm.allocate("D", square, np.int8)
    for kernel in layer.plan.kernels:
        _KERNELS[kernel.name](hbm, layer)


def scores(hbm: HBM, layer: Layer) -> None:
    """S = Q Kᵀ, scaled here unless a kernel of its own does that."""
    factor = 1.0 if layer.runs("scale") else layer.scale
    for b, kv, group in layer.groups():
        k = hbm.read("K", (b, kv))
        for h in group:
            for rows in blocks(layer.shape.T, ROWS):
                hbm.write("S", (b, h, rows), hbm.read("Q", (b, h, rows)) @ k.T * factor)


def scale(hbm: HBM, layer: Layer) -> None:
    """S / sqrt(d), in place."""
    for b, h, _ in layer.heads():
        for rows in blocks(layer.shape.T, ROWS):
            hbm.write("S", (b, h, rows), hbm.read("S", (b, h, rows)) * layer.scale)


def mask(hbm: HBM, layer: Layer) -> None:
    """S + M, in place; a block of M serves every head while M as a whole fits L2."""
    shape = layer.shape
    heads = [(b, h) for b, h, _ in layer.heads()]
    once = ceil_div(shape.T * shape.S * BITS[shape.dtype], 8) <= layer.limits.l2
    for together in [heads] if once else [[head] for head in heads]:
        for rows in blocks(shape.T, ROWS):
            m = hbm.read("M", (rows,))
            for b, h in together:
                hbm.write("S", (b, h, rows), hbm.read("S", (b, h, rows)) + m)


def softmax(hbm: HBM, layer: Layer) -> None:
    """P = softmax(S) with whole rows on chip; it masks by index unless a mask was added."""
    for b, h, _ in layer.heads():
        for rows in blocks(layer.shape.T, ROWS):
            s = hbm.read("S", (b, h, rows))
            s = s if layer.runs("mask") else layer.masked(s, rows, slice(0, layer.shape.S))
            hbm.write("P", (b, h, rows), softmax_rows(s))


def softmax_rows(s: Array) -> Array:
    """The softmax of whole rows; a row of -inf becomes 0."""
    p = shifted_exp(s, s.max(axis=1, keepdims=True))
    total = p.sum(axis=1, keepdims=True)
    weights: Array = p / np.where(total == 0, np.ones_like(total), total)
    return weights


def dropout(hbm: HBM, layer: Layer) -> None:
    """P with some weights dropped and the others raised, in place; which ones goes to D, a byte each."""
    for b, h, _ in layer.heads():
        keep = layer.keep(b, h)
        for rows in blocks(layer.shape.T, ROWS):
            p = hbm.read("P", (b, h, rows))
            hbm.write("D", (b, h, rows), keep[rows].astype(np.int8))
            hbm.write("P", (b, h, rows), np.where(keep[rows], p / KEEP, np.zeros_like(p)))


def pv(hbm: HBM, layer: Layer) -> None:
    """O = P V."""
    for b, kv, group in layer.groups():
        v = hbm.read("V", (b, kv))
        for h in group:
            for rows in blocks(layer.shape.T, ROWS):
                hbm.write("O", (b, h, rows), hbm.read("P", (b, h, rows)) @ v)


_KERNELS = {"scores": scores, "scale": scale, "mask": mask, "softmax": softmax, "dropout": dropout, "pv": pv}
