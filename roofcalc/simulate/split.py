"""Decode attention: the keys of a sequence dealt to several units, and what they leave combined."""

from __future__ import annotations

import numpy as np

from roofcalc.models.decode_parts import Units
from roofcalc.simulate.hbm import HBM, Array, blocks, parts
from roofcalc.simulate.layer import ROWS, Layer, block_sizes, visible
from roofcalc.simulate.online import State, fold, log_sum_exp, merge, output, restore, start


def per_head(hbm: HBM, layer: Layer) -> None:
    """`flash`: one query head a unit, every head reads its group's keys for itself."""
    _attend(hbm, layer, "attention", pack=1)


def per_group(hbm: HBM, layer: Layer) -> None:
    """`flash-gqa`: the query heads of a group share a unit and its read of the keys."""
    _attend(hbm, layer, "attention", pack=layer.shape.group)


def split_kv(hbm: HBM, layer: Layer) -> None:
    """`split-kv`: a unit for each chunk of a group's keys, then `combine`."""
    if _attend(hbm, layer, "split", pack=layer.shape.group) > 1:
        _combine(hbm, layer)


def _attend(hbm: HBM, layer: Layer, name: str, pack: int) -> int:
    """Run one attention kernel and give back its number of splits, those without a key included.

    The rows of a unit are those of `pack` query heads, token by token, in tiles of the plan's height.
    """
    shape, kernel = layer.shape, layer.kernel(name)
    block_q, block_kv = block_sizes(kernel.tile)
    tiles = list(blocks(shape.T * pack, block_q))
    assert kernel.tile is not None
    splits = _splits(layer)
    chunks = list(blocks(shape.S, Units(pack, kernel.tile, splits).chunk(shape.S)))
    hbm.allocate("O", (shape.batch, shape.heads, shape.T, shape.dv), layer.dtype)
    if splits > 1:
        hbm.allocate("O_partial", (splits, shape.batch, shape.heads, shape.T, shape.dv), layer.dtype)
        hbm.allocate("L_partial", (splits, shape.batch, shape.heads, shape.T), layer.dtype)
    for b in range(shape.batch):
        for first in range(0, shape.heads, pack):
            for tile in tiles:
                row = np.arange(tile.start, tile.stop)
                heads, tokens = first + row % pack, row // pack
                for s in range(splits):
                    chunk = chunks[s] if s < len(chunks) else slice(shape.S, shape.S)
                    state = _unit(hbm, layer, b, heads, tokens, chunk, block_kv)
                    if splits == 1:
                        hbm.write("O", (b, heads, tokens), output(state))
                    else:
                        hbm.write("O_partial", (s, b, heads, tokens), output(state))
                        hbm.write("L_partial", (s, b, heads, tokens), log_sum_exp(state))
    return splits


def _splits(layer: Layer) -> int:
    return int(layer.kernel("combine").sizes["splits"]) if layer.runs("combine") else 1


def _unit(hbm: HBM, layer: Layer, b: int, heads: Array, tokens: Array, chunk: slice, block_kv: int) -> State:
    """One thread block: its rows against one chunk of keys, blocks that no row sees skipped."""
    shape = layer.shape
    kv = int(heads[0]) // shape.group
    rows = slice(int(tokens[0]), int(tokens[-1]) + 1)
    state = start(len(tokens), shape.dv, layer.dtype)
    q = None
    for keys in parts(chunk, block_kv):
        seen = visible(shape, rows, keys)[tokens - rows.start]
        if not seen.any():
            continue
        q = hbm.read("Q", (b, heads, tokens)) if q is None else q
        k, v = hbm.read("K", (b, kv, keys)), hbm.read("V", (b, kv, keys))
        s = q @ k.T * layer.scale
        state = fold(state, np.where(seen, s, s.dtype.type(-np.inf)), v)
    return state


def _combine(hbm: HBM, layer: Layer) -> None:
    """O from all partial outputs of a row, weighted by their log-sum-exp: the online softmax once more."""
    shape = layer.shape
    splits = _splits(layer)
    for b, h, _ in layer.heads():
        for rows in blocks(shape.T, ROWS):
            state = start(rows.stop - rows.start, shape.dv, layer.dtype)
            for s in range(splits):
                part = hbm.read("O_partial", (s, b, h, rows)), hbm.read("L_partial", (s, b, h, rows))
                state = merge(state, restore(*part))
            hbm.write("O", (b, h, rows), output(state))
