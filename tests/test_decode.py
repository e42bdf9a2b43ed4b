"""Decode attention against values worked out by hand and the published measurements."""

from __future__ import annotations

import pytest
from decode_helpers import decode, moved, rows

from roofcalc.core import Kernel, Tile
from roofcalc.estimate import own_rates
from roofcalc.hardware import load
from roofcalc.models import variants

READ_ONCE = 268_435_456
"""Bytes of K and V at batch 8, 8 KV heads, S = 8192, d = 128, bf16: 2 · 8 · 8 · 8192 · 128 · 2."""

DECODE_A100 = [
    # PyTorch blog 2023-10-13, Flash-Decoding: A100, fp16, 16 query heads, 2 KV heads, d = 128;
    # batch, keys, microseconds of FlashAttention v2.0.9 and of Flash-Decoding
    (128, 512, 366.3, 67.7),
    (64, 1024, 364.8, 77.7),
    (32, 2048, 352.0, 58.5),
    (2, 32768, 1156.1, 60.3),
    (1, 65536, 2300.6, 64.4),
    (1, 131072, 4592.2, 106.6),
]


def test_the_registry_has_the_variants_of_the_command_in_their_order() -> None:
    names = [name for name in variants("decode") if name in VARIANTS]
    assert names == ["naive", "replicated", "flash", "flash-gqa", "split-kv", "paged", "mla"]


VARIANTS = ("naive", "replicated", "flash", "flash-gqa", "split-kv", "paged", "mla")


@pytest.mark.parametrize("variant", ["naive", "flash", "flash-gqa", "split-kv", "paged"])
def test_intensity_is_one_without_grouped_queries(variant: str) -> None:
    # 4 S d FLOP (and 5 S of softmax) for 4 S d bytes of K and V in bf16
    assert decode(variant, batch=8).total.intensity == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("variant", ["flash-gqa", "split-kv"])
def test_a_group_of_four_query_heads_makes_it_four(variant: str) -> None:
    got = decode(variant, batch=8, heads=32, kv_heads=8)
    assert got.total.intensity == pytest.approx(4, rel=0.02)
    assert any(
        "T × heads/kv_heads × 2 / bytes per element = 1 × 4 × 2 / 2 = 4 FLOP/B" in n for n in got.notes
    )


def test_copying_the_heads_gives_all_of_it_back() -> None:
    got = decode("replicated", batch=8, heads=32, kv_heads=8)
    assert rows(got)["attention"].intensity == pytest.approx(1, rel=0.02)
    # per key and KV head: read 1, write 4, read 4 units of bytes for 4 units of FLOP: 4/9
    assert got.total.intensity == pytest.approx(4 / 9, rel=0.02)
    assert rows(got)["replicate"].bytes == READ_ONCE + 4 * READ_ONCE
    assert any("common bug" in note for note in got.notes)


def test_work_units_against_the_sms_of_an_h100() -> None:
    assert decode("flash", batch=8).kernels[0].units == 256
    one = decode("flash", batch=1)
    assert one.kernels[0].units == 32
    assert 1 - one.kernels[0].sm_use == pytest.approx(0.7576, abs=5e-5)  # 100 of 132
    assert any("75.8 % of the SMs idle" in note for note in one.notes)


def test_sixteen_splits_are_chunks_of_512_and_sixteen_times_the_units() -> None:
    whole, split = decode("flash-gqa"), decode("split-kv", splits=16)
    assert rows(split)["split"].units == 16 * whole.kernels[0].units == 512
    # fp32 partial O of every split and row, and its log-sum-exp: 16 · 32 · (128 + 1) · 4 B
    written = moved(split, "O_partial", "L_partial", mode="write")
    assert written == 16 * 32 * 129 * 4 == moved(split, "O_partial", "L_partial")
    assert split.memory == written


@pytest.mark.parametrize("splits", [1, 4, 16, 128])
def test_the_split_kernel_reads_k_and_v_once(splits: int) -> None:
    """K and V are 268.4 MB whatever the splits, and with Q all that it reads from memory, within 2 %."""
    got = decode("split-kv", "h200", batch=8, heads=32, kv_heads=8, splits=splits)
    assert moved(got, "K", "V") == READ_ONCE
    read = sum(line.bytes for line in rows(got)["split"].ledger if line.tier == "hbm" and line.mode == "read")
    assert read == pytest.approx(268.4e6, rel=0.02)


def test_flash_reads_a_groups_keys_from_hbm_once_and_then_from_l2() -> None:
    got = decode("flash", batch=8, heads=32, kv_heads=8)
    assert moved(got, "K", "V") == READ_ONCE
    assert moved(got, "K", "V", tier="l2") == 3 * READ_ONCE


def test_without_splits_one_query_row_costs_a_whole_tile_on_one_sm() -> None:
    """65,536 keys are 1,024 tiles of 128 x 64 on one SM of an A100: 1.49 ms of 2.30 measured."""
    row = decode("flash", "a100", S=65536, heads=16, kv_heads=2, dtype="fp16").kernels[0]
    by_hand = 4 * 128 * 64 * 128 * 1024 / (312e12 / 108)
    assert by_hand == pytest.approx(1.487e-3, rel=5e-4)
    assert row.time == pytest.approx(by_hand, rel=1e-9)
    assert (row.roof, row.bound) == ("tensor", "compute")


def test_flops_stay_useful_while_the_pipe_runs_the_tile() -> None:
    row = decode("flash", S=8192, heads=1).kernels[0]
    useful = sum(work.ops for work in row.work if work.pipe == "tensor")
    run = sum(work.run for work in row.work if work.pipe == "tensor")
    assert useful == 4 * 8192 * 128
    assert run == 128 * useful
    assert row.roofs["tensor"] == pytest.approx(run / (989.4e12 / 132))
    # the vector pipe runs fp32 row by row: no tile to fill
    plain = decode("flash", S=8192, heads=1, dtype="fp32").kernels[0]
    assert plain.executed_flops == plain.flops
    assert any("127 of 128 rows are padding" in note for note in decode("flash").notes)


def test_a_64_row_tile_holds_the_rows_of_a_group() -> None:
    notes = decode("flash-gqa", heads=32, kv_heads=8, T=5).notes
    assert any("44 of 64 rows are padding" in note for note in notes)  # 5 · 4 of 64
    full = decode("flash-gqa", heads=64, kv_heads=1)
    assert not any("padding" in note for note in full.notes)


@pytest.mark.parametrize(("batch", "S", "flash", "split"), DECODE_A100)
def test_the_flash_decoding_table_lies_above_the_roofline(
    batch: int, S: int, flash: float, split: float
) -> None:
    sizes = {"batch": batch, "heads": 16, "kv_heads": 2, "dtype": "fp16"}
    whole = decode("flash", "a100", S=S, **sizes).total.time * 1e6
    parts = decode("split-kv", "a100", S=S, **sizes).total.time * 1e6
    assert whole < flash
    assert parts < split
    assert whole > parts  # never the other way round
    if (batch, S) == (1, 65536):
        assert 15 <= whole / parts <= 60  # published: 36
    if (batch, S) == (64, 1024):
        assert 4 <= whole / parts <= 9  # published: 4.7


@pytest.mark.parametrize(
    ("threads", "blocks", "measured"),
    [
        # an H200 reading DRAM with few thread blocks: GB/s (16-byte loads, 128 B in flight a thread)
        (256, 1, 61.3),
        (256, 8, 474.4),
        (256, 64, 3120.5),
        (256, 132, 4281.3),
        (1024, 1, 190.3),
        (1024, 8, 1159.0),
        (1024, 132, 4516.7),
    ],
)
def test_few_blocks_cannot_fill_the_memory(threads: int, blocks: int, measured: float) -> None:
    kernel = Kernel("read", (), (), grid=blocks, tile=Tile(threads), own_sms=True, in_flight=128 * threads)
    bandwidth, share = own_rates(kernel, load("h200"))
    assert bandwidth == pytest.approx(min(4.8e12, blocks * 128 * threads / 350e-9))
    assert measured * 1e9 <= bandwidth <= 3 * measured * 1e9  # loaded, the latency is longer
    assert share == blocks / 132


def test_other_kernels_see_the_whole_machine() -> None:
    kernel = Kernel("read", (), (), grid=1, tile=Tile(256), in_flight=1)
    assert own_rates(kernel, load("h200")) == (4.8e12, 1)


def test_what_a_block_has_in_flight_is_its_staged_keys() -> None:
    """64 x 128 tile at d = 128: K and V blocks of 32 KiB each, 64 KiB over 350 ns from one block."""
    row = decode("split-kv", S=65536, heads=1, splits=1).kernels[0]
    moved_bytes = (2 * 65536 * 128 + 2 * 128) * 2
    assert row.roofs["hbm"] == pytest.approx(moved_bytes / (65536 / 350e-9))


def test_several_new_tokens_lose_only_a_small_triangle() -> None:
    row = decode("flash-gqa", S=16384, heads=16, kv_heads=1, T=4, batch=4).kernels[0]
    pairs = 4 * 16 * (4 * 16384 - 6)  # 16381 + 16382 + 16383 + 16384 keys
    assert row.flops == pairs * (4 * 128 + 5)
    assert row.units == 4  # 4 · 16 rows in one 64-row tile
    assert row.intensity == pytest.approx(64, rel=0.02)


def test_a_window_leaves_its_keys_alone() -> None:
    got = decode("flash-gqa", S=8192, heads=8, kv_heads=8, window=1024)
    assert moved(got, "K") == 8 * 1024 * 128 * 2
    assert got.total.flops == 8 * 1024 * (4 * 128 + 5)
    spread = decode("flash-gqa", S=8192, heads=8, kv_heads=8, window=1024, T=3)
    assert moved(spread, "K") == 8 * 1026 * 128 * 2  # keys of the first query, and two more


def test_naive_writes_scores_for_one_row_only() -> None:
    got = decode("naive", batch=8, heads=32, kv_heads=8)
    assert [row.name for row in got.kernels] == ["scores", "softmax", "pv"]
    assert moved(got, "K", "V") == READ_ONCE
    assert got.memory == 2 * 8 * 32 * 8192 * 2
