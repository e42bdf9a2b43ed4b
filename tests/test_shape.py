"""The one place where causal masks and windows are counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcalc.core import Shape, ShapeError
from roofcalc.numeric import floor_sum

SMALL = st.integers(1, 12)


def counted(T: int, S: int, causal: bool, window: int | None) -> int:
    """Every pair looked at: query i stands at position i + S - T."""
    seen = 0
    for i in range(T):
        position = i + S - T
        for j in range(S):
            back = position - j
            near = window is None or (back < window and (causal or -back < window))
            seen += near and (not causal or back >= 0)
    return seen


@given(SMALL, SMALL, st.booleans(), st.none() | st.integers(1, 14))
def test_pairs_are_the_pairs_that_the_mask_leaves(T: int, S: int, causal: bool, window: int | None) -> None:
    shape = Shape.of(T=T, S=S, causal=causal, window=window, heads=3, batch=2)
    assert shape.pairs == 6 * counted(T, S, causal, window)


@pytest.mark.parametrize(
    ("sizes", "pairs"),
    [
        # formulas.md, section 1: causal exact T(T+1)/2
        ({"T": 2048, "causal": True}, 2048 * 2049 // 2),
        # xformers#1402: Tq = 4, Tk = 10, bottom right: 7 + 8 + 9 + 10
        ({"T": 4, "S": 10, "causal": True}, 34),
        # ROCm/triton#742: sum(4096 - 128 + i + 1 for i in range(128))
        ({"T": 128, "S": 4096, "causal": True}, 516_160),
        # aiter#5662: window 1024 over 32768 tokens, 1024·32768 - 1024·1023/2
        ({"T": 32768, "causal": True, "window": 1024}, 33_030_656),
        # Megatron-LM#3280: mean of 448.1 keys a query = 917,760 / 2048
        ({"T": 2048, "causal": True, "window": 512}, 917_760),
        # decode: one query sees every key, causal or not
        ({"T": 1, "S": 8192, "causal": True}, 8192),
    ],
)
def test_pairs_that_were_counted_by_hand(sizes: dict[str, int], pairs: int) -> None:
    assert Shape.of(heads=1, **sizes).pairs == pairs  # type: ignore[arg-type]


@given(st.lists(SMALL, min_size=1, max_size=5), SMALL, st.booleans(), st.none() | SMALL)
def test_an_array_of_sizes_gives_each_size_its_own_count(
    T: list[int], S: int, causal: bool, window: int | None
) -> None:
    together = Shape.of(T=np.array(T), S=S, causal=causal, window=window).pairs
    assert list(together) == [Shape.of(T=t, S=S, causal=causal, window=window).pairs for t in T]


@given(st.integers(0, 40), st.integers(1, 50), st.integers(0, 60), st.integers(0, 60))
def test_floor_sum_is_the_sum(n: int, m: int, a: int, b: int) -> None:
    assert floor_sum(n, m, a, b) == sum((a * i + b) // m for i in range(n))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"T": 0}, "--T is 0"),
        ({"T": 8, "heads": 32, "kv_heads": 5}, "--heads 32 is not a multiple of --kv-heads 5"),
        ({"T": 8, "window": -1}, "--window is -1"),
        ({"T": 8, "dtype": "int4"}, "--dtype 'int4' is not known; choose from fp32"),
        ({"T": 8, "kv_dtype": "int2"}, "--kv-dtype 'int2' is not known"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(sizes: dict[str, object], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Shape.of(**sizes)  # type: ignore[arg-type]
