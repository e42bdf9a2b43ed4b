"""Laws that hold for the ledger of every fused kernel, whatever the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ledgers import FLASH, FUSED, executed, hbm, kernel, lines, plan, useful

from roofcalc.core import RoofcalcError

head_dims = st.sampled_from([32, 40, 64, 80, 96, 128, 192, 256])
gpus = st.sampled_from(["a100", "h100", "l40s"])


@st.composite
def shapes(draw: st.DrawFn, largest: int = 3000) -> dict[str, Any]:
    kv_heads = draw(st.integers(1, 6))
    return {
        "batch": draw(st.integers(1, 4)),
        "kv_heads": kv_heads,
        "heads": kv_heads * draw(st.integers(1, 6)),
        "T": draw(st.integers(1, largest)),
        "S": draw(st.integers(1, largest)),
        "d": draw(head_dims),
        "causal": draw(st.booleans()),
        "window": draw(st.one_of(st.none(), st.integers(1, largest))),
    }


def runs(variant: str, gpu: str, sizes: dict[str, Any]) -> bool:
    try:
        plan(variant, gpu, **sizes)
    except RoofcalcError:
        return False
    return True


@given(variant=st.sampled_from(FUSED), gpu=gpus, sizes=shapes())
def test_fused_moves_no_more_than_unfused_and_no_less_than_compulsory(
    variant: str, gpu: str, sizes: dict[str, Any]
) -> None:
    assume(runs(variant, gpu, sizes))
    got = hbm(variant, gpu, **sizes)
    assert got >= hbm("ideal", gpu, **sizes)
    if variant != "flash1" or sizes["d"] <= 128:
        assert got <= hbm("naive", gpu, **sizes) <= hbm("eager", gpu, **sizes)


@given(variant=st.sampled_from(FUSED), gpu=gpus, sizes=shapes())
def test_useful_work_is_that_of_one_ideal_kernel_and_none_is_left_unexecuted(
    variant: str, gpu: str, sizes: dict[str, Any]
) -> None:
    assume(runs(variant, gpu, sizes))
    found, least = kernel(variant, gpu, **sizes), kernel("ideal", gpu, **sizes)
    for pipe in ("tensor", "vector", "exp"):
        assert useful(found, pipe) == useful(least, pipe)
        assert executed(found, pipe) >= useful(found, pipe)


@given(
    variant=st.sampled_from(FUSED), sizes=shapes(), times=st.integers(2, 5), field=st.sampled_from(["batch", "heads"])
)
def test_everything_is_linear_in_batch_and_in_heads(
    variant: str, sizes: dict[str, Any], times: int, field: str
) -> None:
    assume(runs(variant, "h100", sizes))
    more = sizes | {field: sizes[field] * times}
    if field == "heads":
        more["kv_heads"] = sizes["kv_heads"] * times
    one, many = plan(variant, **sizes), plan(variant, **more)
    assert many.memory == times * one.memory
    a, b = one.kernels[0], many.kernels[0]
    assert [work.run for work in b.work] == [times * work.run for work in a.work]
    assert lines(b) == {key: times * size for key, size in lines(a).items()}
    assert b.grid is None or b.grid == times * a.grid


@given(variant=st.sampled_from(FUSED), sizes=shapes(), beyond=st.integers(0, 100))
def test_a_window_as_long_as_the_keys_changes_nothing(variant: str, sizes: dict[str, Any], beyond: int) -> None:
    sizes = sizes | {"T": min(sizes["T"], sizes["S"])}
    full, windowed = (sizes | {"window": window} for window in (None, sizes["S"] + beyond))
    assume(runs(variant, "h100", full))
    a, b = plan(variant, **full).kernels[0], plan(variant, **windowed).kernels[0]
    assert (a.work, a.accesses, a.grid, a.tile) == (b.work, b.accesses, b.grid, b.tile)


@given(variant=st.sampled_from(FUSED), sizes=shapes())
def test_as_many_kv_heads_as_heads_is_multi_head_attention(variant: str, sizes: dict[str, Any]) -> None:
    assume(runs(variant, "h100", sizes))
    grouped, plain = (kernel(variant, **(sizes | {"kv_heads": n})) for n in (sizes["kv_heads"], sizes["heads"]))
    assert grouped.work == plain.work
    assert plain.accesses == kernel(variant, **(sizes | {"kv_heads": None})).accesses
    assert grouped.bytes_through("hbm") <= plain.bytes_through("hbm")


@given(variant=st.sampled_from(FLASH), sizes=shapes())
def test_every_query_head_loads_its_keys_whether_or_not_it_shares_them(variant: str, sizes: dict[str, Any]) -> None:
    sizes = sizes | {"S": sizes["T"]}
    assume(runs(variant, "h100", sizes))
    grouped, plain = (kernel(variant, **(sizes | {"kv_heads": n})) for n in (sizes["kv_heads"], sizes["heads"]))
    assert sum(a.bytes for a in grouped.accesses) == sum(a.bytes for a in plain.accesses)


@pytest.mark.parametrize("variant", FUSED)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 700])
def test_arrays_give_the_numbers_of_scalars(variant: str, causal: bool, window: int | None) -> None:
    lengths = [(701, 900), (4096, 4096), (33_000, 131_072), (131_072, 131_072), (5000, 701)]
    batch, heads = np.array([1, 2, 3, 1, 5]), np.array([8, 16, 8, 32, 8])
    T, S = (np.array(column) for column in zip(*lengths, strict=True))
    kv_heads = np.array([8, 2, 1, 8, 4])
    together = kernel(variant, T=T, S=S, batch=batch, heads=heads, kv_heads=kv_heads, causal=causal, window=window)
    for i, (t, s) in enumerate(lengths):
        one = {"batch": int(batch[i]), "heads": int(heads[i]), "kv_heads": int(kv_heads[i]), "T": t, "S": s}
        alone = kernel(variant, **one, causal=causal, window=window)
        for pipe in ("tensor", "vector", "exp"):
            assert np.broadcast_to(executed(together, pipe), 5)[i] == executed(alone, pipe)
        expected = lines(alone)
        got = {key: np.broadcast_to(size, 5)[i] for key, size in lines(together).items()}
        assert {key: size for key, size in got.items() if size or key in expected} == expected
        assert together.grid is None or np.broadcast_to(together.grid, 5)[i] == alone.grid
