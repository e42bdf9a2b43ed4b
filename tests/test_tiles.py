"""Tiles of the flash kernels: which are shipped, which fit, and how many of them a mask leaves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcalc.core import RoofcalcError, Shape, Tile
from roofcalc.hardware import load
from roofcalc.models import variants
from roofcalc.models.tiles import MixedTiles, TileError, tiling


def tile(variant: str, gpu: str, options: dict[str, Any] | None = None, **sizes: Any) -> Tile:
    plan = variants("attention")[variant].plan(Shape.of(**({"T": 4096} | sizes)), load(gpu).limits, options)
    found = plan.kernels[0].tile
    assert found is not None
    return found


def blocks(variant: str, gpu: str, **sizes: Any) -> tuple[int | None, int | None]:
    found = tile(variant, gpu, **sizes)
    return found.block_q, found.block_kv


# --- what a mask leaves, against a walk over every pair


def sees(shape: Shape, i: int, j: int) -> bool:
    position = i + shape.S - shape.T
    if shape.causal and j > position:
        return False
    return shape.window is None or (position - j < shape.window and (shape.causal or j - position < shape.window))


def walked(shape: Shape, m: int, n: int) -> tuple[int, int, int, int, int]:
    """Query blocks, tiles, query blocks that see a key, keys loaded, rows that pass: one pair at a time."""
    tiles = seeing = keys = rows = 0
    starts = range(0, shape.T, m)
    for start in starts:
        block = range(start, min(start + m, shape.T))
        columns = {j // n for i in block for j in range(shape.S) if sees(shape, i, j)}
        run = max(columns) - min(columns) + 1 if columns else 0
        tiles, seeing, rows = tiles + run, seeing + bool(columns), rows + len(block) * max(run, 1)
        if columns:
            keys += min((max(columns) + 1) * n, shape.S) - min(columns) * n
    return len(starts), tiles, seeing, keys, rows


sizes = st.integers(1, 40)


@given(
    T=sizes,
    S=sizes,
    causal=st.booleans(),
    window=st.one_of(st.none(), sizes),
    m=st.integers(1, 17),
    n=st.integers(1, 17),
)
def test_tiles_are_those_that_a_walk_over_every_pair_finds(
    T: int, S: int, causal: bool, window: int | None, m: int, n: int
) -> None:
    shape = Shape.of(T=T, S=S, causal=causal, window=window)
    got = tiling(shape, m, n)
    assert (got.blocks, got.tiles, got.seeing, got.keys, got.rows) == walked(shape, m, n)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 5, 23])
def test_arrays_of_sizes_give_the_walk_s_counts_element_by_element(causal: bool, window: int | None) -> None:
    draw = random.Random(7)
    T, S = (np.array([draw.randint(1, 40) for _ in range(60)]) for _ in range(2))
    got = tiling(Shape.of(T=T, S=S, causal=causal, window=window), 7, 5)
    for i in range(T.size):
        shape = Shape.of(T=int(T[i]), S=int(S[i]), causal=causal, window=window)
        counts = (got.blocks, got.tiles, got.seeing, got.keys, got.rows)
        assert tuple(int(np.broadcast_to(c, T.shape)[i]) for c in counts) == walked(shape, 7, 5)


@pytest.mark.parametrize(
    ("T", "excess"),
    # T²/2 + T·128/2 executed over T²/2: 163,840 / 131,072; (16·17/2) / (16·16/2) of Dao-AILab/flash-attention#1310;
    # 129/128 at 16k, "+25 % at T = 512, +0.8 % at 16k"
    [(512, 1.25), (2048, 1.0625), (16384, 1.0078125)],
)
def test_square_tiles_execute_half_the_square_and_half_a_tile_per_row(T: int, excess: float) -> None:
    got = tiling(Shape.of(T=T, causal=True), 128, 128)
    assert got.pairs == T * T // 2 + T * 128 // 2
    assert got.pairs / (T * T / 2) == excess


def test_a_causal_window_runs_a_band_of_tiles() -> None:
    # T = 512, window 128, tiles 128 x 128: the first block sees 1 tile, the others the diagonal and the one before
    assert tiling(Shape.of(T=512, causal=True, window=128), 128, 128).tiles == 1 + 3 * 2
    # a window of 130 reaches 129 back: from row 256 to key 127, which is one tile further
    assert tiling(Shape.of(T=512, causal=True, window=130), 128, 128).tiles == 1 + 2 + 2 * 3


def test_a_ragged_end_executes_whole_tiles_and_loads_only_what_exists() -> None:
    got = tiling(Shape.of(T=130, S=200), 128, 64)
    assert (got.blocks, got.tiles, got.pairs) == (2, 8, 8 * 128 * 64)
    assert got.keys == 2 * 200  # each query block loads the 200 keys
    assert got.rows == 4 * 130  # four blocks of keys meet the 130 rows


# --- what the libraries ship: Dao-AILab/flash-attention at 0251105, flash_fwd_launch_template.h and
# hopper/tile_size.h


@pytest.mark.parametrize(
    ("d", "shipped", "kib", "threads"),
    # Q + K + V in shared memory: (128 + 2·128)·64·2 B = 48 KiB; (128 + 2·64)·128·2 B = 64 KiB; an H200's counters say
    # 50,176 and 66,560 B for these two, 1,024 of them the driver's, and 128 threads
    [
        (32, (128, 128), 24, 128),
        (64, (128, 128), 48, 128),
        (96, (128, 64), 48, 128),
        (128, (128, 64), 64, 128),
        (192, (128, 64), 96, 256),
        (256, (128, 64), 128, 256),
    ],
)
def test_flash2_tiles_of_an_a100(d: int, shipped: tuple[int, int], kib: int, threads: int) -> None:
    for causal in (False, True):
        got = tile("flash2", "a100", d=d, causal=causal)
        assert (got.block_q, got.block_kv) == shipped
        assert (got.smem, got.threads) == (kib * 1024, threads)


def test_flash2_takes_a_smaller_tile_at_d_256_where_two_blocks_fit_an_sm() -> None:
    got = tile("flash2", "h100", d=256)
    assert (got.block_q, got.block_kv, got.threads, got.smem) == (64, 64, 128, 96 * 1024)
    assert load("h100").limits.resident(got) == 2


@pytest.mark.parametrize(
    ("sizes", "shipped"),
    [
        ({"d": 64}, (128, 128)),
        ({"d": 96}, (128, 64)),
        ({"d": 96, "causal": True}, (64, 64)),
        ({"d": 128}, (128, 32)),
        ({"d": 128, "causal": True}, (64, 64)),
        ({"d": 128, "causal": True, "window": 1024}, (128, 32)),  # flash_api.cpp: a window is not "causal"
        ({"d": 256}, (64, 64)),
    ],
)
def test_flash2_tiles_of_a_gpu_with_99_kib(sizes: dict[str, Any], shipped: tuple[int, int]) -> None:
    assert blocks("flash2", "l40s", **sizes) == shipped


@pytest.mark.parametrize(
    ("sizes", "shipped"),
    [
        ({"d": 64}, (192, 192)),
        ({"d": 64, "causal": True}, (192, 128)),
        ({"d": 64, "window": 512}, (192, 128)),
        ({"d": 96}, (192, 144)),
        ({"d": 96, "window": 512, "causal": True}, (192, 128)),
        ({"d": 128}, (128, 176)),
        ({"d": 128, "causal": True}, (128, 128)),
        ({"d": 128, "window": 512}, (128, 128)),
        ({"d": 192}, (128, 112)),
        ({"d": 192, "dv": 128}, (128, 128)),
        ({"d": 192, "window": 512}, (128, 96)),
        ({"d": 256}, (128, 80)),
        ({"d": 256, "causal": True}, (128, 80)),
        ({"d": 256, "window": 512}, (128, 64)),
        ({"d": 64, "dtype": "fp8"}, (192, 160)),
        ({"d": 128, "dtype": "fp8"}, (128, 224)),
        ({"d": 192, "dtype": "fp8"}, (128, 160)),
        ({"d": 256, "dtype": "fp8"}, (128, 128)),
    ],
)
def test_flash3_tiles(sizes: dict[str, Any], shipped: tuple[int, int]) -> None:
    got = tile("flash3", "h100", **sizes)
    assert (got.block_q, got.block_kv) == shipped
    assert got.threads == (512 if shipped[0] == 192 else 384)  # a producer and 3 or 2 consumer warpgroups
    assert got.smem <= 227 * 1024


def test_flash3_at_d_256_fills_the_shared_memory_of_an_h100() -> None:
    # 128·256·2 B of Q and two stages of 2·80·256·2 B: 64 + 160 KiB of 227
    assert tile("flash3", "h100", d=256).smem == 224 * 1024


def test_flash3_registers_are_what_counters_show() -> None:
    # launch__registers_per_thread of cuDNN's 384-thread kernel on an H200: 168, one block an SM
    got = tile("flash3", "h200", d=128)
    assert (got.registers, load("h200").limits.resident(got)) == (168, 1)


def test_flash2_blocks_on_an_sm_are_what_counters_show() -> None:
    # launch__occupancy_limit_registers of FlashAttention-2 on an H200, d = 64 and 128: 2
    assert [load("h200").limits.resident(tile("flash2", "h200", d=d)) for d in (64, 128)] == [2, 2]


@pytest.mark.parametrize("gpu", ["a100", "a100-40gb", "h100", "h200", "l40s", "b200"])
def test_shipped_tiles_fit_the_gpus_that_they_are_shipped_for(gpu: str) -> None:
    hardware = load(gpu)
    names = ("flash2", "flash3") if hardware.architecture in ("hopper", "blackwell") else ("flash2",)
    for name in names:
        for d in (32, 64, 96, 128, 192, 256):
            for causal, window in ((False, None), (True, None), (True, 512)):
                got = tile(name, gpu, d=d, causal=causal, window=window)
                assert hardware.limits.resident(got) >= 1


@pytest.mark.parametrize(("d", "head"), [(40, 64), (80, 96), (112, 128), (160, 192), (200, 256)])
def test_head_dims_between_the_shipped_ones_round_up(d: int, head: int) -> None:
    # HEADDIM_SWITCH of FlashAttention-2, round_up_headdim of FlashAttention-3
    for name in ("flash2", "flash3"):
        between, shipped = (tile(name, "h100", d=size) for size in (d, head))
        assert between == shipped


def test_head_dims_that_are_not_shipped_are_padded_in_the_executed_products_only() -> None:
    padded, exact = (
        variants("attention")["flash2"].plan(Shape.of(T=1024, d=d), load("a100").limits).kernels[0].work[0]
        for d in (80, 96)
    )
    assert padded.ops == 2 * 1024 * 1024 * 80 * 32
    assert padded.run == exact.run == 2 * 1024 * 1024 * 96 * 32


# --- refusals


@pytest.mark.parametrize(
    ("variant", "gpu", "options", "sizes", "words"),
    [
        # (128 + 2·256)·128·2 B = 160 KiB
        ("flash2", "l40s", {"block_kv": 256}, {}, ["128 x 256", "160 KiB", "99 KiB", "--block-kv"]),
        # 128·128·2 + 2·2·176·128·2 B = 208 KiB
        ("flash3", "a100", {}, {}, ["128 x 176", "208 KiB", "163 KiB"]),
        # (256 + 2·256)·256·2 B = 384 KiB
        ("flash2", "h100", {"block_q": 256, "block_kv": 256}, {"d": 256}, ["384 KiB", "227 KiB"]),
        # Q, K, V, O: 2·(16 + 1024)·128·2 B = 520 KiB
        ("flash1", "a100", {"block_kv": 1024}, {}, ["16 x 1024", "520 KiB", "163 KiB"]),
        ("flash2", "h100", {}, {"d": 512}, ["d = 512", "256", "--block-q", "--block-kv"]),
        ("flash3", "h100", {"block_q": 64}, {"d": 320}, ["d = 320", "256"]),
        ("flash2", "h100", {"block_q": 0}, {}, ["--block-q is 0", "at least 1"]),
    ],
)
def test_a_tile_that_cannot_run_is_refused_with_the_reason(
    variant: str, gpu: str, options: dict[str, int], sizes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(TileError) as refused:
        tile(variant, gpu, options, **sizes)
    text = str(refused.value)
    assert isinstance(refused.value, RoofcalcError)
    assert "\n" not in text
    assert [word for word in words if word not in text] == []


def test_given_block_sizes_replace_the_shipped_ones() -> None:
    got = tile("flash2", "h100", {"block_q": 64}, d=128)
    assert (got.block_q, got.block_kv, got.smem) == (64, 64, (64 + 2 * 64) * 128 * 2)
    got = tile("flash2", "h100", {"block_q": 32, "block_kv": 32}, d=512)
    assert got.smem == (32 + 2 * 32) * 512 * 2


def test_one_tile_serves_an_array_or_it_is_refused() -> None:
    assert blocks("flash2", "h100", d=np.array([40, 48, 64])) == (128, 128)
    with pytest.raises(MixedTiles, match="one by one"):
        tile("flash2", "h100", d=np.array([64, 128]))
    with pytest.raises(MixedTiles, match="128 x 176"):
        tile("flash3", "h100", T=np.array([64, 4096]), window=128)
