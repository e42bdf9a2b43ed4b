"""The split planner and the rules of FlashAttention-2 and -3, against choices worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcalc.core import RoofcalcError
from roofcalc.hardware import load
from roofcalc.models import variants
from roofcalc.models.cache import decode_shape
from roofcalc.models.splitting import flash3_choice
from roofcalc.planner import best_splits, resolved, split_plan
from roofcalc.splits import flash3_splits, flash_splits

GQA = {"heads": 32, "kv_heads": 8}


@pytest.mark.parametrize(
    ("gpu", "sizes", "splits"),
    [
        # 2 units, 216 places, 512 blocks: 103 splits fill 206 of 216; 104 to 127 leave the longest split as long
        ("a100", {"S": 65536, "heads": 16, "kv_heads": 2}, 103),
        # 64 units, 264 places: 4 splits fill 256; 3 fill 192, less than 85 % of that
        ("h100", {"S": 8192, "batch": 8, **GQA}, 4),
        # 8 units: 32 splits fill 256 (2 blocks each); 22 fill 176
        ("h200", {"S": 8192, **GQA}, 32),
        # 128 units are fewer than 0.8 · 264 = 211 and are split, 256 are not (an H200 falls from 4.3 to 2.7 TB/s)
        ("h200", {"S": 8192, "batch": 16, **GQA}, 2),
        ("h200", {"S": 8192, "batch": 32, **GQA}, 1),
        # one block of 128 keys
        ("h200", {"S": 128, **GQA}, 1),
        # several new tokens are rows of the same 8 units
        ("h200", {"S": 8192, "T": 4, **GQA}, 32),
        # 32 blocks in the window: 32 splits fill 256, 16 fill 128; a window of one block
        ("h200", {"S": 8192, "window": 4096, **GQA}, 32),
        ("h200", {"S": 8192, "window": 128, "heads": 64, "kv_heads": 8, "d": 64}, 1),
    ],
)
def test_the_default_is_flash2s_rule_on_the_kernels_units(gpu: str, sizes: dict[str, Any], splits: int) -> None:
    hardware, shape = load(gpu), decode_shape(**sizes)
    assert variants("decode")["split-kv"].plan(shape, hardware.limits).kernels[0].sizes["splits"] == splits
    assert split_plan(shape, hardware).rules["flash2"] == splits


@pytest.mark.parametrize(
    ("sizes", "splits"),
    [
        # 8 units on 132 SMs, 47 blocks of 176 keys: 33 splits fill two waves, 15 are the first above 85 % (120/132)
        ({"S": 8192, **GQA}, 15),
        # 106 units are more than 80 % of 132
        ({"S": 8192, "heads": 106}, 1),
        # 704 keys are 4 blocks of 176, 705 are 5
        ({"S": 704, **GQA}, 1),
        ({"S": 705, **GQA}, 5),
        # a window of 1000 and a tile of 128 rows leave 9 blocks of 128 keys: 9 splits fill 72 of 132 SMs, 8 fill 64
        ({"S": 65536, "window": 1000, **GQA}, 8),
    ],
)
def test_flash3_chooses(sizes: dict[str, Any], splits: int) -> None:
    assert flash3_choice(decode_shape(**sizes), load("h100").limits) == splits


def test_flash3_splits_a_head_that_exceeds_l2() -> None:
    rule = {"tiles": 264, "sms": 132, "blocks": 2000, "row_tiles": 264, "head_bytes": 120 * 2**20}
    assert flash3_splits(**rule, bounded=False) == 3  # ceil(120 / 50)
    assert flash3_splits(**rule, bounded=True) == 1
    assert flash3_splits(**{**rule, "row_tiles": 263}, bounded=False) == 1
    assert flash3_splits(**{**rule, "head_bytes": 50 * 2**20}, bounded=False) == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 600), st.booleans())
def test_the_rule_is_the_search_that_the_library_writes(
    tiles: int, slots: int, blocks: int, repeats: bool
) -> None:
    def search() -> int:
        if tiles >= 0.8 * slots:
            return 1
        found = []
        for splits in range(1, min(128, slots, blocks) + 1):
            if not repeats and splits > 1 and -(-blocks // splits) == -(-blocks // (splits - 1)):
                continue
            waves = tiles * splits / slots
            found.append((splits, waves / -(-tiles * splits // slots)))
        return min(splits for splits, full in found if full >= 0.85 * max(f for _, f in found))

    assert flash_splits(tiles, slots, blocks, repeats=repeats) == search()
    assert list(flash_splits(np.array([tiles, slots]), slots, blocks, repeats=repeats)) == [search(), 1]


@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "l40s"])
def test_the_best_number_is_the_fastest_row_of_the_table(gpu: str) -> None:
    plan = split_plan(decode_shape(8192, **GQA), load(gpu))
    assert plan.best.seconds <= min(row.seconds for row in plan.rows) * 1.000001
    assert [row.splits for row in plan.rows] == sorted({row.splits for row in plan.rows})
    assert {1, 2, 4, 8, 16, 32, 64, 128} <= {row.splits for row in plan.rows}
    assert all(ratio >= 0.999999 for ratio in plan.over_best.values())
    assert plan.best.splits == best_splits(decode_shape(8192, **GQA), load(gpu))
    labels = {label: row.splits for row in plan.rows for label in row.chosen_by}
    assert labels == {"best": plan.best.splits, **plan.rules}


def test_a_row_of_the_table_by_hand() -> None:
    plan = split_plan(decode_shape(8192, **GQA), load("h100"))
    sixteen = next(row for row in plan.rows if row.splits == 16)
    assert (sixteen.chunk, sixteen.units) == (512, 8 * 16)
    assert sixteen.partial_bytes == 16 * 32 * 129 * 4
    assert sixteen.waves == pytest.approx(128 / 264)  # 80 KiB of 228: two blocks an SM
    assert sixteen.sm_use == pytest.approx(128 / 132)
    # both kernels are bound by HBM: K, V and Q, the partial results written and read, O
    kv, q, partial = 2 * 8192 * 8 * 128 * 2, 32 * 128 * 2, 16 * 32 * 129 * 4
    assert sixteen.time == pytest.approx((kv + 2 * q + 2 * partial) / 3.35e12)


def test_splitting_buys_much_for_one_sequence_and_little_for_a_full_machine() -> None:
    alone = split_plan(decode_shape(65536, heads=16, kv_heads=2), load("a100"))
    assert alone.rows[0].time / alone.best.time > 15
    full = split_plan(decode_shape(8192, batch=64, **GQA), load("a100"))
    assert full.rows[0].time / full.best.time < 1.05


def test_auto_becomes_a_number_for_variants_with_splits() -> None:
    shape, h100 = decode_shape(8192, **GQA), load("h100")
    best = best_splits(shape, h100)
    assert resolved({"splits": "auto", "page_size": 16}, shape, h100, "split-kv") == {
        "splits": best,
        "page_size": 16,
    }
    assert resolved({"splits": 4}, shape, h100, "split-kv") == {"splits": 4}
    assert resolved({"splits": "auto"}, shape, h100, "flash") == {"splits": "auto"}
    assert resolved({"splits": "auto"}, shape, h100, "mla")["splits"] >= 1
    with pytest.raises(RoofcalcError, match=r"flash has no splits; these have: .*split-kv"):
        best_splits(shape, h100, "flash")


def test_the_rules_see_the_latent_of_mla() -> None:
    # one KV head, 128 rows in 2 tiles, 128 blocks of 64 keys at d = 576: 128 splits fill 256 of 264 places
    plan = split_plan(decode_shape(8192, heads=128), load("h100"), "mla")
    assert plan.rules["flash2"] == 128
    assert plan.best.units == 2 * plan.best.splits


def test_splits_without_keys_are_no_units() -> None:
    # 64 blocks of 128 keys in 15 splits of 5 blocks: 13 of them have keys, 8 · 13 = 104 of 132 SMs
    shape, h100 = decode_shape(8192, **GQA), load("h100")
    plan = split_plan(shape, h100)
    row = next(row for row in plan.rows if row.splits == 15)
    assert (row.with_keys, row.chunk, row.units) == (13, 640, 104)
    assert row.sm_use == pytest.approx(104 / 132)
    # the empty ones write their zeros, as FlashAttention-2's kernel does: 15 · 32 rows · 129 · 4 B
    assert row.partial_bytes == 15 * 32 * 129 * 4
    assert row.chosen_by == ("flash3",)  # no row but a rule's has empty splits
    assert all(row.with_keys == row.splits for row in plan.rows if row.splits != 15)
    # 1000 keys are 8 blocks; above 8 splits ceil(1000/s) keys: 64 have 16 (63 have keys), 128 have 8 (125)
    few = split_plan(decode_shape(1000, **GQA), h100)
    assert {row.splits for row in few.rows} & {8, 16, 32, 64, 128} == {8, 16, 32}


@pytest.mark.parametrize("name", ["split-kv", "paged", "mla", "replicated"])
def test_unlike_lengths_are_planned_by_the_longest(name: str) -> None:
    plan = split_plan(decode_shape((1024, 32768), heads=32, kv_heads=8), load("h100"), name)
    assert plan.variant == name
    two = next(row for row in plan.rows if row.splits == 2)
    assert two.chunk == 16384
    default = variants("decode")[name].plan(decode_shape((1024, 32768), **GQA), load("h100").limits)
    assert plan.rules["flash2"] == default.kernels[-2].sizes["alone"][-1].sizes["splits"]


def test_few_keys_bound_the_candidates() -> None:
    plan = split_plan(decode_shape(3, **GQA), load("h100"))
    assert {row.splits for row in plan.rows} <= {1, 2, 3}
    assert split_plan(decode_shape((1024, 32768), **GQA), load("h100")).best.units > 16
