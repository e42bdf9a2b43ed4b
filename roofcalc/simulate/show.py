"""``verify --show online-softmax``: the algebra on one small row, with its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roofcalc.simulate.hbm import Array, blocks
from roofcalc.simulate.online import State, fold, output, shifted_exp, start

SCORES = (1.0, 3.0, 5.0, 2.0)
VALUES = ((1.0, 0.0), (0.0, 1.0), (2.0, 2.0), (-1.0, 1.0))

WHY = """\
Softmax needs the largest score and the sum of a whole row before it can weigh the first value. The online
softmax takes the row in blocks and corrects what it has when a block brings a new maximum. It carries
  m   the largest score so far
  l   the sum of exp(s - m)
  O   the sum of exp(s - m) V, not yet divided by l
A new maximum changes the base of every exponential: exp(s - m2) = exp(s - m1) · exp(m1 - m2). So one
multiplication by exp(m1 - m2) carries l and O over, and nothing is approximated."""


def show_online_softmax(
    scores: Sequence[float] = SCORES, values: Sequence[Sequence[float]] = VALUES, block: int = 2
) -> str:
    """The online softmax of one row, block by block, and the one-pass result beside it.

    `scores` [keys], `values` [keys, dv], blocks of `block` keys. Every number is computed by the code that
    the simulated kernels run.
    """
    s, V = np.asarray(scores, np.float64), np.asarray(values, np.float64)
    state = start(1, V.shape[1], np.float64)
    lines = [WHY, "", f"s = {_row(s)}", f"V = {', '.join(_row(v) for v in V)}"]
    for number, keys in enumerate(blocks(len(s), block), 1):
        after = fold(state, s[None, keys], V[keys])
        lines += ["", *_block(number, state, after, s[keys], V[keys])]
        state = after
    online = output(state)[0]
    weights = np.exp(s - s.max())
    one_pass = (weights / weights.sum()) @ V
    lines += [
        "",
        "end: one division",
        f"  O / l = {_row(state.O[0])} / {_n(state.l[0])} = {_row(online)}",
        "",
        "the same in one pass over the whole row",
        f"  m = {_n(s.max())}, l = {_n(weights.sum())}, weights = {_row(weights / weights.sum())}",
        f"  weights V = {_row(one_pass)}",
        f"  largest difference {np.abs(online - one_pass).max():.1e} (float64)",
    ]
    return "\n".join(lines)


def _block(i: int, before: State, after: State, s: Array, V: Array) -> list[str]:
    """One step: what is new, the correction, what is carried on."""
    m, p = after.m[0], shifted_exp(s, after.m)
    lines = [
        f"block {i}: s = {_row(s)}",
        f"  m{i} = max({'' if i == 1 else f'm{i - 1}, '}s) = {_n(m)}",
        f"  p = exp(s - m{i}) = {_row(p)}",
    ]
    if i == 1:
        return [*lines, f"  l{i} = sum(p) = {_n(after.l[0])}", f"  O{i} = p V = {_row(after.O[0])}"]
    correction = shifted_exp(before.m, after.m)[0]
    c = _n(correction)
    return [
        *lines,
        f"  correction exp(m{i - 1} - m{i}) = exp({_n(before.m[0])} - {_n(m)}) = {c}",
        f"  l{i} = {c} · l{i - 1} + sum(p) = {c} · {_n(before.l[0])} + {_n(p.sum())} = {_n(after.l[0])}",
        f"  O{i} = {c} · O{i - 1} + p V = {c} · {_row(before.O[0])} + {_row(p @ V)} = {_row(after.O[0])}",
    ]


def _n(x: float) -> str:
    """A number with as many as six decimals."""
    return f"{x:.6f}".rstrip("0").rstrip(".") if x else "0"


def _row(x: Array) -> str:
    return f"[{', '.join(_n(float(value)) for value in x)}]"
