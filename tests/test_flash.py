"""FlashAttention 1, 2, 3 and chunked attention, against counters and the papers' counts.

Ledger values are worked out by hand beside each test. bf16 is 2 bytes, log-sum-exp and l, m are 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import report
from ledgers import FLASH, MIB, executed, hbm, kernel, lines, plan, useful

from roofcalc.core import RoofcalcError
from roofcalc.hardware import load

# --- counters: Nsight Compute on an H200 (torch 2.11, cuDNN 9.19, 2026-11-29), dram__bytes_read.sum and
# dram__bytes_write.sum of one launch, bf16; cuDNN's kernel stands for flash3

LONG = {"T": 8192, "d": 128}
GQA = {"T": 8192, "d": 128, "kv_heads": 8, "causal": True}
D64 = {"T": 1024, "d": 64, "batch": 16}
D64_LONG = {"T": 16384, "d": 64, "causal": True}
SHORT = {"T": 2048, "d": 128}
COUNTERS = [
    ("flash2", LONG, 219_911_168, 75_419_392),
    ("flash3", LONG, 201_639_424, 59_380_736),
    ("flash3", LONG | {"causal": True}, 201_354_240, 60_164_096),
    ("flash2", GQA, 100_889_600, 62_150_144),
    ("flash3", GQA, 100_690_176, 53_760_256),
    ("flash2", D64, 201_398_528, 66_398_208),
    ("flash3", D64, 201_360_384, 60_214_272),
    ("flash2", D64_LONG, 202_349_824, 89_027_328),
    ("flash3", D64_LONG, 201_372_160, 61_562_880),
]


@pytest.mark.parametrize(("variant", "sizes", "read", "written"), COUNTERS)
def test_memory_bytes_are_what_counters_show(variant: str, sizes: dict[str, Any], read: int, written: int) -> None:
    assert hbm(variant, "h200", **sizes) == pytest.approx(read + written, rel=0.10)


def test_causal_flash2_moves_more_than_its_ledger_and_the_note_says_why() -> None:
    found = plan("flash2", "h200", **LONG, causal=True)
    # Q, K, V, O of 67,108,864 B each and L of 1,048,576 B; the counters read 236,850,688 and wrote 77,061,376 B
    assert found.kernels[0].bytes_through("hbm") == 4 * 67_108_864 + 1_048_576
    assert (236_850_688 + 77_061_376) / found.kernels[0].bytes_through("hbm") == pytest.approx(1.165, abs=0.001)
    assert any("drift apart" in note and "evicted" in note for note in found.notes)
    assert plan("flash2", "h200", **LONG).notes == ()


@pytest.mark.parametrize(
    ("variant", "read", "written"), [("flash2", 50_916_096, 9_446_144), ("flash3", 50_357_760, 7_484_928)]
)
def test_at_2048_queries_part_of_the_output_is_still_in_l2_when_the_counters_stop(
    variant: str, read: int, written: int
) -> None:
    got = lines(kernel(variant, "h200", **SHORT))
    assert sum(size for (_, mode, tier), size in got.items() if (mode, tier) == ("read", "hbm")) == pytest.approx(
        read, rel=0.02
    )
    assert written < got["O", "write", "hbm"] == 32 * 2048 * 128 * 2  # 16.8 MB, of 50 MiB of L2


def test_l2_bytes_are_within_the_traffic_that_counters_show() -> None:
    # lts__t_bytes.sum of FlashAttention-2: every byte of the ledger passes L2, which also counts fills and tags
    for sizes, counted in ((LONG, 11_242_611_744), (SHORT, 661_180_704), (D64, 1_400_972_928)):
        found = kernel("flash2", "h200", **sizes)
        passing = found.bytes_through("hbm") + found.bytes_through("l2")
        assert 0.7 * counted < passing <= counted


def test_blocks_of_a_launch_are_the_counted_grid() -> None:
    # launch__grid_size and launch__waves_per_multiprocessor of FlashAttention-2
    for sizes, grid, waves in ((LONG, 64 * 32, 7.76), (SHORT, 16 * 32, 1.94), (D64, 8 * 16 * 32, 15.52)):
        got = report("flash2", "h200", **sizes).kernels[0]
        assert got.units == grid
        assert got.waves == pytest.approx(waves, abs=0.005)


# --- FlashAttention-1


def test_flash1_counts_what_its_paper_counts() -> None:
    # d = 64: 1024 keys are c = 4 blocks of 256. A head: K and V 2·1024·64; Q c·T·d; O written c and read c - 1 times;
    # l and m written c and read c - 1 times, in fp32
    got = lines(kernel("flash1", T=1024, heads=1, d=64))
    one = 1024 * 64 * 2
    assert got == {
        ("K", "read", "hbm"): one,
        ("V", "read", "hbm"): one,
        ("Q", "read", "hbm"): 4 * one,
        ("O", "read", "hbm"): 3 * one,
        ("O", "write", "hbm"): 4 * one,
        ("L", "read", "hbm"): 3 * 2 * 1024 * 4,
        ("L", "write", "hbm"): 4 * 2 * 1024 * 4,
    }
    # c (2 T d + 4 T) + (c - 1) T d - 2 T elements beside K and V, T = 1024, d = 64, c = 4
    elements = sum(a.elements for a in kernel("flash1", T=1024, heads=1, d=64).accesses if a.tensor in "QOL")
    assert elements == 4 * (2 * 65_536 + 4_096) + 3 * 65_536 - 2_048


def test_flash1_with_a_causal_mask_passes_only_the_rows_below_the_diagonal() -> None:
    # d = 128, 128 keys a block, T = 512: blocks 0 to 3 meet the last 512, 384, 256, 128 rows: 1280 rows of 128·2 B
    got = lines(kernel("flash1", T=512, heads=1, causal=True))
    assert got["Q", "read", "hbm"] == got["O", "write", "hbm"] == 1280 * 256
    assert got["O", "read", "hbm"] == (1280 - 512) * 256


def test_flash1_moves_each_tensor_once_when_a_block_holds_all_keys() -> None:
    for sizes in ({"T": 512, "S": 256, "d": 64}, {"T": 100, "S": 128, "d": 128, "kv_heads": 8, "causal": True}):
        found = kernel("flash1", **sizes)
        beside = [a for a in found.accesses if a.tensor != "L" and a.tier == "hbm"]
        assert sorted((a.tensor, a.mode) for a in beside) == [
            ("K", "read"),
            ("O", "write"),
            ("Q", "read"),
            ("V", "read"),
        ]
        assert sum(a.bytes for a in beside) == hbm("ideal", **sizes)
    roomy = replace(load("h100").limits, smem_per_block=64 * MIB, smem_per_sm=65 * MIB)
    got = lines(kernel("flash1", roomy, {"block_kv": 8192}, T=8192, heads=1))
    assert got["Q", "read", "hbm"] == got["O", "write", "hbm"] == 8192 * 128 * 2
    assert ("O", "read", "hbm") not in got


def test_flash1_has_one_thread_block_a_head() -> None:
    got = report("flash1", "a100", T=1024, batch=2, heads=16).kernels[0]
    assert got.units == 32
    assert got.sm_use == pytest.approx(32 / 108)


def test_flash1_says_that_its_release_stops_at_128() -> None:
    assert any("128" in note for note in plan("flash1", T=512, d=256).notes)
    assert plan("flash1", T=512, d=128).notes == ()


def test_flash2_runs_fewer_vector_operations_than_flash1() -> None:
    # T = 512, d = 128, one head. Both: 4 a pair of 512². flash1: every row and block of 128 keys 4·128 + 4;
    # flash2: every row and block of 64 keys but the first 128 + 2, and 128 + 2 a row at the end
    one, two = (kernel(name, T=512, heads=1) for name in ("flash1", "flash2"))
    assert executed(one, "vector") == 4 * 512**2 + 512 * 4 * 516
    assert executed(two, "vector") == 4 * 512**2 + 512 * 7 * 130 + 512 * 130
    assert useful(one, "vector") == useful(two, "vector") == 4 * 512**2


# --- FlashAttention-2 and 3: re-reads


def test_flash2_reads_k_and_v_again_for_every_query_block() -> None:
    # T = 1024, 128 rows a block: 8 query blocks a head; K of a KV head is 1024·128·2 B
    one = 1024 * 128 * 2
    got = lines(kernel("flash2", T=1024, heads=8, kv_heads=2))
    assert got == {
        ("Q", "read", "hbm"): 8 * one,
        ("K", "read", "hbm"): 2 * one,
        ("V", "read", "hbm"): 2 * one,
        ("K", "read", "l2"): (8 * 8 - 2) * one,
        ("V", "read", "l2"): (8 * 8 - 2) * one,
        ("O", "write", "hbm"): 8 * one,
        ("L", "write", "hbm"): 8 * 1024 * 4,
    }


def test_a_causal_query_block_reads_no_tile_above_the_diagonal() -> None:
    # tiles of 128 x 64: query block k of 8 reads 128·(k + 1) keys, 128·36 in all
    got = lines(kernel("flash2", T=1024, heads=1, causal=True))
    assert got["K", "read", "hbm"] + got["K", "read", "l2"] == 128 * 36 * 128 * 2


def test_k_and_v_beyond_l2_come_from_memory_once_per_wave() -> None:
    # K and V of one head at T = 131,072, d = 128: 64 MiB, more than the 50 MiB of an H100. 1024 query blocks of 128
    # rows, 2 x 132 at once: ceil(1024 / 264) = 4 waves
    one = 131_072 * 128 * 2
    found = plan("flash2", T=131_072, heads=2)
    got = lines(found.kernels[0])
    assert got["K", "read", "hbm"] == 4 * 2 * one
    assert got["K", "read", "l2"] == (1024 - 4) * 2 * one
    assert any("wave" in note and "50 MiB" in note for note in found.notes)
    # half the keys are 32 MiB a head
    half = plan("flash2", T=65_536, heads=2)
    assert lines(half.kernels[0])["K", "read", "hbm"] == one
    assert half.notes == ()


def test_a_causal_wave_reads_only_the_keys_that_its_rows_see() -> None:
    # waves end at rows 264·128 = 33,792, 67,584, 101,376 and 131,072: so many keys each
    got = lines(kernel("flash2", T=131_072, heads=1, causal=True))
    assert got["K", "read", "hbm"] == (33_792 + 67_584 + 101_376 + 131_072) * 128 * 2
    # tiles of 128 x 64: 128·(1 + ... + 1024) keys in all
    assert got["K", "read", "hbm"] + got["K", "read", "l2"] == 128 * (1024 * 1025 // 2) * 128 * 2


def test_a_window_keeps_the_live_keys_in_l2() -> None:
    found = plan("flash2", T=131_072, heads=1, causal=True, window=4096)
    assert lines(found.kernels[0])["K", "read", "hbm"] == 131_072 * 128 * 2
    assert not any("wave" in note for note in found.notes)


def test_query_heads_of_a_group_share_the_waves_of_their_kv_head() -> None:
    # chunked prefill: 8192 rows are 64 query blocks, 8 query heads 512 of them: ceil(512 / 264) = 2 waves
    got = lines(kernel("flash2", T=8192, S=131_072, heads=8, kv_heads=1))
    assert got["K", "read", "hbm"] == 2 * 131_072 * 128 * 2
    # with a KV head each, a head's 64 query blocks start together
    alone = lines(kernel("flash2", T=8192, S=131_072, heads=8))
    assert alone["K", "read", "hbm"] == 8 * 131_072 * 128 * 2


# --- roofs


@pytest.mark.parametrize(("sizes", "share"), [({"d": 64}, 1.0), ({"d": 128}, 0.5), ({"d": 128, "dtype": "fp8"}, 1.0)])
def test_exp_meets_the_tensor_pipe_at_d_64_in_bf16_and_at_d_128_in_fp8(sizes: dict[str, Any], share: float) -> None:
    # an H100 runs 4096 (fp8: 8192) FLOP and 16 exponentials a clock and SM: (4096 / 16) / (4 d) = 64 / d, fp8 128 / d
    # (arXiv:2407.08608, section 3.1; Dao-AILab/flash-attention#1160); its file rounds 989.43 and 3.86496 to four digits
    for name in ("flash3",) if "dtype" in sizes else FLASH:
        found = kernel(name, T=5000, causal=True, **sizes)
        assert executed(found, "tensor") == 4 * sizes["d"] * executed(found, "exp")
        roofs = report(name, T=5000, causal=True, **sizes).kernels[0].roofs
        assert roofs["exp"] / roofs["tensor"] == pytest.approx(share, rel=1e-4)


def test_every_roof_of_a_flash_kernel_is_there() -> None:
    for name in FLASH:
        roofs = report(name, T=4096).kernels[0].roofs
        assert [roof for roof in ("hbm", "l2", "tensor", "vector", "exp") if not roofs[roof]] == []


def test_flash3_moves_what_flash2_moves_with_the_same_tile() -> None:
    given = {"block_q": 128, "block_kv": 64}
    two, three = (kernel(name, "h100", given, T=4096, causal=True, kv_heads=8) for name in ("flash2", "flash3"))
    assert lines(two) == lines(three)


def test_fp8_halves_every_tensor_but_the_statistics() -> None:
    sixteen, eight = (lines(kernel("flash3", T=2048, dtype=dtype)) for dtype in ("bf16", "fp8"))
    for key, size in eight.items():
        assert size == sixteen[key] if key[0] == "L" else size == sixteen[key] / 2


@pytest.mark.parametrize(
    ("variant", "dtype", "words"),
    [
        ("flash1", "fp8", "flash3 takes fp8"),
        ("flash2", "fp8", "flash3 takes fp8"),
        ("flash2", "fp32", "naive"),
        ("flash3", "fp32", "ideal"),
        ("flash1", "tf32", "tf32"),
        ("flash3", "int8", "int8"),
    ],
)
def test_a_dtype_without_a_kernel_is_refused(variant: str, dtype: str, words: str) -> None:
    with pytest.raises(RoofcalcError, match=words):
        plan(variant, T=512, dtype=dtype)


def test_a_cache_in_another_dtype_moves_as_such_with_a_note() -> None:
    found = plan("flash3", T=2048, kv_dtype="fp8")
    assert lines(found.kernels[0])["K", "read", "hbm"] == 32 * 2048 * 128
    assert any("one dtype" in note for note in found.notes)


# --- chunked attention


def test_chunked_reads_k_and_v_once_per_query_chunk() -> None:
    one = 32 * 4096 * 128 * 2
    got = lines(kernel("chunked", T=4096))
    assert got == {
        ("Q", "read", "hbm"): one,
        ("K", "read", "hbm"): 4 * one,  # queries in chunks of 1024
        ("V", "read", "hbm"): 4 * one,
        ("O", "write", "hbm"): one,
    }


def test_chunked_holds_the_root_of_the_keys_for_every_query_of_a_chunk() -> None:
    # one head, S = 16,384, d = 64: 1024 queries x (128 scores, 64 of O, l and m) x 4 B
    assert plan("chunked", T=16_384, heads=1, d=64).memory == 1024 * (128 + 64 + 2) * 4
    assert plan("chunked", T=16_385, heads=1, d=64).memory == 1024 * (129 + 64 + 2) * 4
    # naive holds S and P of 16,384² numbers; the paper's own chunks (4096 keys, fp32) saved 59 x of the scores alone
    assert plan("naive", T=16_384, heads=1, d=64).memory == 2 * 16_384**2 * 2
