"""What must hold for every decode shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from decode_helpers import decode, moved, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcalc.core import Shape, Tile
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.models import variants
from roofcalc.models.cache import decode_shape, visible
from roofcalc.models.decode_parts import Units
from roofcalc.models.tiles import MixedTiles, tiling

DENSE = ("naive", "replicated", "flash", "flash-gqa", "split-kv", "paged")
ALL = (*DENSE, "mla")
H100 = load("h100")

sizes = st.fixed_dictionaries(
    {
        "S": st.integers(8, 3000),
        "T": st.integers(1, 8),
        "batch": st.integers(1, 40),
        "kv_heads": st.integers(1, 8),
        "d": st.sampled_from([64, 128, 192]),
        "window": st.none() | st.integers(1, 4000),
        "dtype": st.sampled_from(["bf16", "fp16", "fp32"]),
        "kv_dtype": st.sampled_from([None, "fp8", "int8", "int4"]),
    }
)


def full(shape: dict[str, Any], group: int) -> dict[str, Any]:
    return {**shape, "heads": shape["kv_heads"] * group}


@settings(max_examples=60, deadline=None)
@given(sizes, st.sampled_from([1, 4, 9, 16]))
def test_one_split_is_flash_gqa_and_needs_no_combine(shape: dict[str, Any], group: int) -> None:
    whole, one = decode("flash-gqa", **full(shape, group)), decode("split-kv", splits=1, **full(shape, group))
    assert [row.name for row in one.kernels] == ["split"]
    assert replace(one.kernels[0], name="attention", expected=None, terms=()) == replace(
        whole.kernels[0], expected=None, terms=()
    )
    assert one.memory == 0


@settings(max_examples=60, deadline=None)
@given(sizes, st.sampled_from([1, 4, 9]), st.integers(1, 8), st.integers(1, 8))
def test_more_splits_never_read_k_or_v_more_often(shape: dict[str, Any], group: int, a: int, b: int) -> None:
    few, many = sorted((a, b))
    names = ("K", "V", "K_scale", "V_scale")
    shape = {**shape, "window": None}
    got = [decode("split-kv", splits=n, **full(shape, group)) for n in (few, many)]
    for tier in ("hbm", "l2"):
        assert moved(got[0], *names, tier=tier) == moved(got[1], *names, tier=tier)
    assert got[1].total.flops == got[0].total.flops
    assert rows(got[1])["split"].executed_flops >= rows(got[0])["split"].executed_flops


@settings(max_examples=40, deadline=None)
@given(sizes, st.sampled_from(ALL), st.integers(2, 9))
def test_the_batch_changes_bytes_and_not_the_intensity(
    shape: dict[str, Any], variant: str, times: int
) -> None:
    options = {"splits": 3} if "splits" in variants("decode")[variant].options else {}
    shape = {**shape, "window": None, **options}
    one = decode(variant, **full(shape, 4))
    more = decode(variant, **full({**shape, "batch": shape["batch"] * times}, 4))
    assert more.total.intensity == pytest.approx(one.total.intensity, rel=1e-4)
    assert more.total.flops == times * one.total.flops
    assert more.total.bytes == pytest.approx(
        times * one.total.bytes, rel=1e-4
    )  # an odd int4 number rounds up


@settings(max_examples=40, deadline=None)
@given(sizes, st.sampled_from(ALL), st.integers(0, 100))
def test_a_window_as_long_as_the_cache_changes_nothing(
    shape: dict[str, Any], variant: str, more: int
) -> None:
    plain = decode(variant, **full({**shape, "window": None}, 4))
    windowed = decode(variant, **full({**shape, "window": shape["S"] + more}, 4))
    assert windowed.kernels == plain.kernels
    assert windowed.memory == plain.memory


@settings(max_examples=40, deadline=None)
@given(sizes, st.sampled_from([1, 4]))
def test_pages_of_one_token_are_the_contiguous_cache_and_a_table(shape: dict[str, Any], group: int) -> None:
    pages, plain = (
        decode("paged", page_size=1, **full(shape, group)),
        decode("split-kv", **full(shape, group)),
    )
    lines = [line for row in pages.kernels for line in row.ledger]
    # 64 numbers of 4 bits are a 32-byte sector, and a scale and zero of each head 4 B
    odd = {"K_scale_sectors", "V_scale_sectors"}
    assert [a for a in lines if a.tensor not in {"block_table", *odd}] == [
        a for row in plain.kernels for a in row.ledger
    ]
    assert pages.total.flops == plain.total.flops
    keys = visible(decode_shape(**full(shape, group))).S
    assert moved(pages, "block_table") == 4 * shape["batch"] * keys


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 60),
    st.booleans(),
    st.none() | st.integers(1, 90),
    st.sampled_from([1, 3, 8]),
)
def test_key_blocks_are_those_that_some_row_of_the_tile_sees(
    T: int, before: int, causal: bool, window: int | None, pack: int
) -> None:
    shape = Shape.of(T=T, S=T + before, heads=8 * pack, kv_heads=8, causal=causal, window=window)
    rows_, keys = 16, 8
    count = 0
    for start in range(0, T * pack, rows_):
        seen = set()
        for row in range(start, min(start + rows_, T * pack)):
            position = row // pack + before
            for key in range(T + before):
                back = position - key
                near = window is None or (back < window and (causal or -back < window))
                if near and not (causal and back < 0):
                    seen.add(key // keys)
        count += len(seen)
    assert Units(pack, Tile(128, block_q=rows_, block_kv=keys)).key_blocks(shape) == count
    if pack == 1:
        assert tiling(shape, rows_, keys).tiles == count


@pytest.mark.parametrize("variant", ALL)
@pytest.mark.parametrize("vary", ["S", "batch", "T", "heads"])
def test_an_array_of_sizes_gives_each_size_its_own_numbers(variant: str, vary: str) -> None:
    values = {"S": [64, 300, 8192, 100_000], "batch": [1, 7, 300], "T": [1, 2, 5, 40], "heads": [8, 16, 128]}[
        vary
    ]
    fixed = {"S": 5000, "batch": 2, "T": 2, "heads": 32, "kv_heads": 8, "window": 2000, "kv_dtype": "int4"}

    def report(value: Any) -> Any:
        shape = decode_shape(**{**fixed, "causal": True, vary: value})
        return estimate(variants("decode")[variant].plan(shape, H100.limits, {"splits": 5}), H100)

    together, apart = report(np.array(values)), [report(value) for value in values]
    for name in ("flops", "executed_flops", "bytes", "time"):
        wanted = [getattr(one.total, name) for one in apart]
        got = np.broadcast_to(getattr(together.total, name), len(values))
        assert list(got) == pytest.approx(wanted), name
    attention = [row.name for row in together.kernels if row.name in ("split", "attention", "scores")]
    for name in attention:
        units = np.broadcast_to(rows(together)[name].units, len(values))
        assert list(units) == [rows(one)[name].units for one in apart]
    assert list(np.broadcast_to(together.memory, len(values))) == [one.memory for one in apart]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(8, 5000), min_size=1, max_size=6), st.sampled_from(ALL))
def test_equal_lengths_are_a_batch_and_unlike_ones_add_up(lengths: list[int], variant: str) -> None:
    def totals(S: Any, **more: int) -> tuple[Any, ...]:
        got = decode(variant, S=S, heads=32, kv_heads=8, **options, **more)
        return got.total.flops, got.total.executed_flops, got.total.bytes, got.kernels[-1].units

    options = {"splits": 3} if "splits" in variants("decode")[variant].options else {}
    same = (lengths[0],) * len(lengths)
    assert totals(same) == totals(lengths[0], batch=len(lengths))
    assert totals(tuple(lengths)) == tuple(map(sum, zip(*(totals(one) for one in lengths), strict=True)))


def test_sizes_that_are_split_and_sizes_that_are_not_have_other_kernels() -> None:
    plan = variants("decode")["split-kv"].plan
    apart = [plan(decode_shape(8192, batch=batch), H100.limits) for batch in (1, 4, 64)]
    splits = [plan.kernels[0].sizes["splits"] for plan in apart]
    # 32, 128 and 2048 units on 264 places: 7 splits fill 224, within 85 % of the 256 of 8; 2 fill 256
    assert splits == [7, 2, 1]
    together = plan(decode_shape(8192, batch=np.array([1, 4])), H100.limits)
    assert list(together.kernels[0].sizes["splits"]) == splits[:2]
    with pytest.raises(MixedTiles, match="one by one"):
        plan(decode_shape(8192, batch=np.array([1, 4, 64])), H100.limits)
