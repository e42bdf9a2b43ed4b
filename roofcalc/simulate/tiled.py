"""Attention that never materialises the scores: one kernel, tile by tile."""

from __future__ import annotations

import numpy as np

from roofcalc.models.flash import QUERY_CHUNK
from roofcalc.simulate.hbm import HBM, blocks, parts
from roofcalc.simulate.layer import ROWS, Layer, block_sizes
from roofcalc.simulate.materialised import softmax_rows
from roofcalc.simulate.online import State, fold, log_sum_exp, merge, output, shifted_exp, start


def _allocate_output(hbm: HBM, layer: Layer) -> None:
    shape = layer.shape
    hbm.allocate("O", (shape.batch, shape.heads, shape.T, shape.dv), layer.dtype)


def ideal(hbm: HBM, layer: Layer) -> None:
    """All of a KV head's keys and values on chip, whole rows of scores: everything moves once."""
    _allocate_output(hbm, layer)
    seeing, seen = layer.reach()
    for b, kv, group in layer.groups():
        k, v = hbm.read("K", (b, kv, seen)), hbm.read("V", (b, kv, seen))
        for h in group:
            _blind(hbm, layer, b, h, seeing.start)
            for rows in parts(seeing, ROWS):
                q = hbm.read("Q", (b, h, rows))
                hbm.write("O", (b, h, rows), softmax_rows(layer.scores(q, k, rows, seen)) @ v)


def _blind(hbm: HBM, layer: Layer, b: int, h: int, rows: int) -> None:
    """The zeros of the first `rows` queries, which see no key."""
    hbm.write("O", (b, h, slice(0, rows)), np.zeros((rows, layer.shape.dv)))


def two_pass(hbm: HBM, layer: Layer) -> None:
    """All of a group's queries on chip: m and l from a first pass over the keys, O from a second."""
    _allocate_output(hbm, layer)
    shape = layer.shape
    seeing, seen = layer.reach()
    count = seeing.stop - seeing.start
    nothing = np.zeros((ROWS, 0), layer.dtype)
    for b, kv, group in layer.groups():
        q = {h: hbm.read("Q", (b, h, seeing)) for h in group}
        states = dict.fromkeys(group, start(count, 0, layer.dtype))
        for keys in parts(seen, ROWS):
            k = hbm.read("K", (b, kv, keys))
            for h in group:
                states[h] = fold(states[h], layer.scores(q[h], k, seeing, keys), nothing[: len(k)])
        O = dict.fromkeys(group, np.zeros((count, shape.dv), layer.dtype))  # noqa: E741
        for keys in parts(seen, ROWS):
            k, v = hbm.read("K", (b, kv, keys)), hbm.read("V", (b, kv, keys))
            for h in group:
                p = shifted_exp(layer.scores(q[h], k, seeing, keys), states[h].m[:, None])
                O[h] = O[h] + (p / states[h].l[:, None]) @ v
        for h in group:
            _blind(hbm, layer, b, h, seeing.start)
            hbm.write("O", (b, h, seeing), O[h])


def chunked(hbm: HBM, layer: Layer) -> None:
    """Rabe & Staats: each chunk of keys gives a summary (m, l, O) of its own, and the summaries merge.

    All query heads of a group share a chunk's keys; no chunk is skipped for a mask.
    """
    _allocate_output(hbm, layer)
    shape = layer.shape
    step = int(np.ceil(np.sqrt(shape.S)))
    for b, kv, group in layer.groups():
        for rows in blocks(shape.T, QUERY_CHUNK):
            q = {h: hbm.read("Q", (b, h, rows)) for h in group}
            none = start(rows.stop - rows.start, shape.dv, layer.dtype)
            states = dict.fromkeys(group, none)
            for keys in blocks(shape.S, step):
                k, v = hbm.read("K", (b, kv, keys)), hbm.read("V", (b, kv, keys))
                for h in group:
                    summary = fold(none, layer.scores(q[h], k, rows, keys), v)
                    states[h] = merge(states[h], summary)
            for h in group:
                hbm.write("O", (b, h, rows), output(states[h]))


def keys_outer(hbm: HBM, layer: Layer) -> None:
    """FlashAttention-1: a block of keys stays on chip while the query blocks that see it pass by.

    O is normalised in memory at every step (Algorithm 1, line 12), beside it l and m (here one array L). A
    query block's first step starts from nothing instead of reading them; a block without a step still
    gets its zeros. Keys that no query sees are not loaded.
    """
    _allocate_output(hbm, layer)
    shape = layer.shape
    hbm.allocate("L", (shape.batch, shape.heads, 2, shape.T), layer.dtype)
    block_q, block_kv = block_sizes(layer.kernel("attention").tile)
    rows_of = list(blocks(shape.T, block_q))
    live = {rows.start: {keys.start for keys in layer.live(rows, block_kv)} for rows in rows_of}
    for b, h, kv in layer.heads():
        begun: set[int] = set()
        for keys in blocks(shape.S, block_kv):
            passing = [rows for rows in rows_of if keys.start in live[rows.start]]
            if not passing:
                continue
            k, v = hbm.read("K", (b, kv, keys)), hbm.read("V", (b, kv, keys))
            for rows in passing:
                q = hbm.read("Q", (b, h, rows))
                state = _resume(hbm, b, h, rows) if rows.start in begun else start(len(q), shape.dv, layer.dtype)
                begun.add(rows.start)
                _suspend(hbm, b, h, rows, fold(state, layer.scores(q, k, rows, keys), v))
        for rows in rows_of:
            if rows.start not in begun:
                _suspend(hbm, b, h, rows, start(rows.stop - rows.start, shape.dv, layer.dtype))


def _resume(hbm: HBM, b: int, h: int, rows: slice) -> State:
    l, m = hbm.read("L", (b, h, slice(0, 2), rows))  # noqa: E741
    return State(m, l, hbm.read("O", (b, h, rows)) * l[:, None])


def _suspend(hbm: HBM, b: int, h: int, rows: slice, state: State) -> None:
    hbm.write("L", (b, h, slice(0, 2), rows), np.stack([state.l, state.m]))
    hbm.write("O", (b, h, rows), output(state))


def queries_outer(hbm: HBM, layer: Layer) -> None:
    """FlashAttention-2 and 3: a query block owns its output and reads the keys that it sees.

    A block that sees no key writes its zeros and reads nothing, as the release does (flash_fwd_kernel.h,
    "exit early"). Every query head reads its group's keys for itself.
    """
    _allocate_output(hbm, layer)
    shape = layer.shape
    hbm.allocate("L", (shape.batch, shape.heads, shape.T), layer.dtype)
    block_q, block_kv = block_sizes(layer.kernel("attention").tile)
    tiles = [(rows, layer.live(rows, block_kv)) for rows in blocks(shape.T, block_q)]
    for b, h, kv in layer.heads():
        for rows, live in tiles:
            state = start(rows.stop - rows.start, shape.dv, layer.dtype)
            if live:
                q = hbm.read("Q", (b, h, rows))
            for keys in live:
                k, v = hbm.read("K", (b, kv, keys)), hbm.read("V", (b, kv, keys))
                state = fold(state, layer.scores(q, k, rows, keys), v)
            hbm.write("O", (b, h, rows), output(state))
            hbm.write("L", (b, h, rows), log_sum_exp(state))
