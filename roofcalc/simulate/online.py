"""The online softmax: a row's statistics and its output, one block of scores at a time.

Milakov & Gimelshein 2018 (arXiv:1805.02867), Algorithm 3, with the output carried along as in
FlashAttention-2 (arXiv:2307.08691, section 3.1): O stays unnormalised and is divided by l once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from roofcalc.simulate.hbm import Array


@dataclass(frozen=True)
class State:
    """What is known of some rows after the blocks seen so far.

    `m` is the row maximum [rows], `l` the sum of exp(s - m) [rows], `O` the sum of exp(s - m) V
    [rows, dv]. A row that has seen no key has m = -inf and l = 0.
    """

    m: Array
    l: Array  # noqa: E741 - the papers' letter
    O: Array  # noqa: E741


def start(rows: int, dv: int, dtype: DTypeLike) -> State:
    """The state of `rows` rows before their first block."""
    return State(np.full(rows, -np.inf, dtype), np.zeros(rows, dtype), np.zeros((rows, dv), dtype))


def shifted_exp(x: Array, m: Array) -> Array:
    """exp(x - m), with exp(-inf - -inf) = 0: a row without a key has no weight."""
    weights: Array = np.exp(x - np.where(np.isneginf(m), np.zeros_like(m), m))
    return weights


def fold(state: State, s: Array, V: Array) -> State:
    """The state after one more block of scores `s` [rows, keys] (-inf where masked) and values `V`."""
    m = np.maximum(state.m, s.max(axis=1))
    p = shifted_exp(s, m[:, None])
    correction = shifted_exp(state.m, m)
    return State(m, state.l * correction + p.sum(axis=1), state.O * correction[:, None] + p @ V)


def merge(a: State, b: State) -> State:
    """The state of the union of two disjoint sets of keys: the same correction, applied to both."""
    m = np.maximum(a.m, b.m)
    ca, cb = shifted_exp(a.m, m), shifted_exp(b.m, m)
    return State(m, a.l * ca + b.l * cb, a.O * ca[:, None] + b.O * cb[:, None])


def output(state: State) -> Array:
    """The attention output O / l [rows, dv]; 0 for a row that has seen no key."""
    return state.O / np.where(state.l == 0, np.ones_like(state.l), state.l)[:, None]


def log_sum_exp(state: State) -> Array:
    """L = m + log l [rows]: with the output, all that a later merge needs. -inf without a key."""
    return state.m + np.log(np.where(state.l == 0, np.ones_like(state.l), state.l))


def restore(output: Array, log_sum: Array) -> State:
    """The state that a normalised output and its L stand for: m = L and l = 1."""
    return State(log_sum, (~np.isneginf(log_sum)).astype(log_sum.dtype), output)
