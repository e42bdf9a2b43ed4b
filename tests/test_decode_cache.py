"""Narrow caches, pages, latents, unlike lengths, the size of a cache, and input that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from decode_helpers import decode, moved, rows

from roofcalc.core import RoofcalcError
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.kvcache import fit, kv_cache, mla_arrays
from roofcalc.models import variants
from roofcalc.models.cache import decode_shape

GQA = {"heads": 32, "kv_heads": 8}


@pytest.mark.parametrize(
    ("kv_dtype", "cached", "scales"),
    [
        # 8192 tokens of 8 heads: K of 128 numbers each
        ("bf16", 8192 * 8 * 128 * 2, 0),
        ("fp8", 8192 * 8 * 128, 0),  # one scale a tensor (vLLM, quantized KV cache)
        (
            "int8",
            8192 * 8 * 128,
            8192 * 8 * 4,
        ),  # fp16 scale and zero a token and head (LMDeploy, kv_quant.md)
        ("int4", 8192 * 8 * 64, 8192 * 8 * 4),
    ],
)
@pytest.mark.parametrize("variant", ["naive", "flash", "flash-gqa", "split-kv", "paged"])
def test_a_narrow_cache_moves_its_bytes_and_its_scales(
    variant: str, kv_dtype: str, cached: int, scales: int
) -> None:
    got = decode(variant, kv_dtype=kv_dtype, **GQA)
    assert moved(got, "K") == moved(got, "V") == cached
    assert moved(got, "K_scale") == moved(got, "V_scale") == scales


def test_the_query_dtype_does_not_shrink_the_cache() -> None:
    # the products run in bf16, at its rate; fp8 halves the bytes and doubles the intensity
    wide, narrow = decode("flash-gqa", **GQA), decode("flash-gqa", kv_dtype="fp8", **GQA)
    assert narrow.total.intensity == pytest.approx(2 * wide.total.intensity, rel=1e-3)
    assert narrow.kernels[0].roofs["tensor"] == wide.kernels[0].roofs["tensor"]
    assert any("1 × 4 × 2 / 1 = 8 FLOP/B" in note for note in narrow.notes)
    # int4 with 4 B of scale and zero for 128 numbers: 0.53125 B each
    tiny = decode("flash-gqa", kv_dtype="int4", **GQA)
    assert any(
        "1 × 4 × 2 / 0.5312 (int4 with its fp16 scale and zero) = 15.06" in note for note in tiny.notes
    )
    assert tiny.total.intensity == pytest.approx(15.06, rel=0.02)


def test_unpacking_is_executed_and_not_useful() -> None:
    wide, narrow = (decode("flash-gqa", kv_dtype=kv, **GQA).total for kv in ("bf16", "int4"))
    assert narrow.flops == wide.flops
    # scale and add zero: 2 for each of 2 · 8192 · 8 · 128 cached numbers
    assert narrow.executed_flops - wide.executed_flops == 2 * 2 * 8192 * 8 * 128


def test_pages_are_allocated_whole_and_found_by_a_table() -> None:
    got = decode("paged", S=8190, batch=4, page_size=64, **GQA)
    assert moved(got, "block_table") == 4 * 128 * 4  # 128 pages a sequence, an int32 each
    assert moved(got, "block_table", tier="l2") == 7 * 4 * 128 * 4  # the other 7 KV heads
    assert moved(got, "K") == 4 * 8190 * 8 * 128 * 2
    said = "\n".join(got.notes)
    assert "32768 tokens are allocated in whole pages, 32760 of them valid" in said
    assert "[page, token, KV head, d]" in said
    assert "stock kernel" in said
    default = decode("paged", **GQA)
    assert moved(default, "block_table") == 8192 // 16 * 4  # vLLM's 16 tokens a page


def test_a_page_that_ends_inside_a_sector_wastes_the_rest() -> None:
    # one head of 40 numbers of 4 bits: 20 B a token, fetched as 32 B; K and V of 100 pages
    got = decode("paged", S=100, heads=1, d=40, kv_dtype="int4", page_size=1)
    assert moved(got, "K_sectors", "V_sectors") == 2 * 100 * 12
    # 8 of them are 160 B, five sectors
    assert (
        moved(decode("paged", S=96, heads=1, d=40, kv_dtype="int4", page_size=8), "K_sectors", "V_sectors")
        == 0
    )


def test_pages_behind_a_window_are_not_read() -> None:
    got = decode("paged", S=100, heads=1, window=20, page_size=16)
    assert moved(got, "block_table") == 4 * 2  # keys 80 ... 99 lie in pages 5 and 6
    assert moved(got, "K") == 20 * 128 * 2


def test_one_latent_serves_all_heads() -> None:
    got = decode("mla", S=4096, batch=2, heads=128, splits=4)
    assert moved(got, "latent") == 2 * 4096 * 576 * 2
    assert moved(got, "latent", tier="l2") == 2 * 4096 * 576 * 2  # 128 rows are two tiles of 64
    assert not moved(got, "K", "V")
    assert (got.shape.kv_heads, got.shape.d, got.shape.dv) == (1, 576, 512)
    products = sum(work.ops for work in rows(got)["split"].work if work.pipe == "tensor")
    assert products == 2 * 2 * 128 * 4096 * (576 + 512)
    # formulas of FlashMLA's documentation: 2 · 128 · 1088 / (2 · 576) = 241.8 FLOP/B
    assert products / moved(got, "latent") == pytest.approx(241.8, rel=1e-3)
    assert any("of the cache's reads alone" in note and "= 241.8 FLOP/B" in note for note in got.notes)
    small = decode("mla", S=4096, heads=128, kv_lora_rank=256, rope_dim=32, splits=4)
    assert moved(small, "latent") == 4096 * 288 * 2


def test_partial_results_that_are_most_of_the_traffic_are_named() -> None:
    got = decode("mla", S=8192, heads=128)
    # FlashAttention-2's rule: 128 splits of 128 rows of 512 + 1 fp32 numbers = 33.6 MB, written and read; the
    # latent is 8192 · 1152 B = 9.44 MB, Q 147 kB, O 131 kB
    said = "\n".join(got.notes)
    assert "67.2 of the 77.0 MB that move at 128 splits" in said.replace("are 67.2", "67.2")
    assert "--splits auto" in said
    # 2.285 GFLOP in 77.0 MB
    assert "it is 29.7 FLOP/B" in said
    assert "of the" not in "".join(n for n in decode("mla", S=8192, heads=128, splits=1).notes if "partial" in n)


def test_one_is_no_plural_and_a_table_is_an_input() -> None:
    got = decode("paged", S=1, heads=1, page_size=1)
    said = "\n".join(got.notes)
    assert "pages of 1 token, " in said
    assert "1 token is allocated" in said
    assert "1 work unit on" in said
    assert got.memory == 0


def test_the_library_of_the_expected_time_is_named() -> None:
    for variant, library in (("split-kv", "FlashAttention-2"), ("paged", "Triton")):
        notes = decode(variant, splits=4, **GQA).notes
        assert any(f"{library};" in note and note.startswith("expected is for") for note in notes)
        assert not any(note.startswith("expected is for") for note in decode(variant, splits=1, **GQA).notes)


def test_an_fp8_latent_is_656_bytes_a_token() -> None:
    got = decode("mla", S=4096, heads=128, kv_dtype="fp8", splits=4)
    # FlashMLA: 512 fp8, 4 fp32 scales, 64 bf16
    lines = ("latent", "latent_scale", "latent_rope")
    assert [moved(got, name) for name in lines] == [4096 * 512, 4096 * 16, 4096 * 128]


def test_expanded_latents_are_keys_and_values_of_every_head() -> None:
    got = decode("mla", S=4096, heads=128, expanded=True)
    assert moved(got, "K") == 4096 * 128 * 192 * 2
    assert moved(got, "V") == 4096 * 128 * 128 * 2
    # DeepSeek-V2: absorbing costs 1088 / 320 = 3.4 times the work
    absorbed = decode("mla", S=4096, heads=128, splits=4)
    work = [sum(w.ops for w in r.kernels[0].work if w.pipe == "tensor") for r in (absorbed, got)]
    assert work[0] / work[1] == 3.4


def test_unlike_lengths_run_in_one_launch() -> None:
    lengths = (1024, 8192, 32768)
    got = decode("flash-gqa", S=lengths, **GQA)
    assert got.shape.lengths == lengths
    assert got.kernels[0].units == 3 * 8
    assert got.kernels[0].launches == 1
    assert moved(got, "K", "V") == 2 * sum(lengths) * 8 * 128 * 2
    # 32768 of a mean of 13994.7
    assert any("the longest reads 32768 keys, 2.34 times the mean" in note for note in got.notes)
    split = decode("split-kv", S=(1, 4096), splits=8, **GQA)
    assert rows(split)["split"].units == 8 * (1 + 8)  # one key makes one split


@pytest.mark.parametrize("variant", ["flash", "flash-gqa", "split-kv"])
def test_a_launch_lasts_until_its_longest_sequence_is_done(variant: str) -> None:
    options = {"splits": 2} if variant == "split-kv" else {}
    alone, pair = (decode(variant, S=S, **GQA, **options) for S in (32768, (1, 32768)))
    assert pair.total.time >= alone.total.time
    for name in ("hbm", "tensor"):
        assert pair.kernels[0].roofs[name] >= alone.kernels[0].roofs[name]


def test_the_roofs_of_the_longest_sequence_by_hand() -> None:
    row = decode("flash-gqa", S=(1, 32768), **GQA).kernels[0]
    # a unit reads 32768 keys and values of 128 in bf16, its 4 query rows, and writes them; 64 KiB in 350 ns
    assert row.roofs["hbm"] == pytest.approx((2 * 32768 * 256 + 2 * 4 * 256) / (65_536 / 350e-9))
    # and runs 32768 keys of a 64-row tile on one SM
    assert row.roofs["tensor"] == pytest.approx(4 * 64 * 32768 * 128 / (989.4e12 / 132))
    layers = decode("flash-gqa", S=(1, 32768), layers=3, **GQA)
    assert layers.total.time == pytest.approx(3 * row.time)
    # warm, 4096 keys of 8 KV heads are 16.8 MB in L2, and HBM moves nothing
    h100 = load("h100")
    plan = variants("decode")["flash-gqa"].plan(decode_shape((1, 4096), **GQA), h100.limits)
    assert estimate(plan, h100, cache="warm").kernels[0].roofs["hbm"] is None


@pytest.mark.parametrize("variant", ["naive", "replicated", "flash", "flash-gqa", "split-kv", "paged", "mla"])
def test_equal_lengths_are_a_batch(variant: str) -> None:
    listed, batch = decode(variant, S=(32768, 32768), **GQA), decode(variant, S=32768, batch=2, **GQA)
    assert listed.kernels == batch.kernels
    assert listed.total == batch.total
    assert listed.notes == batch.notes


def test_the_size_of_a_cache() -> None:
    shape = decode_shape(4096, batch=8, layers=32, **GQA)  # Llama-3-8B
    cache = kv_cache(shape)
    # 2 · 32 layers · 8 heads · 128 · 2 B = 131,072 B a token
    assert (cache.per_token, cache.per_sequence, cache.batch) == (131_072, 536_870_912, 8 * 536_870_912)
    assert cache.growth == 131_072
    assert kv_cache(decode_shape(4096, layers=32, kv_dtype="int4", **GQA)).per_token == 2 * 32 * 8 * (64 + 4)
    assert kv_cache(decode_shape(4096, layers=61, heads=128), arrays=mla_arrays()).per_token == 61 * 576 * 2


def test_pages_lengths_and_windows_change_what_is_held() -> None:
    pages = kv_cache(decode_shape(100, batch=3, **GQA), page_size=64)
    assert pages.batch == 3 * 128 * pages.per_token
    ragged = kv_cache(decode_shape((1, 65, 64), **GQA), page_size=64)
    assert ragged.batch == (64 + 128 + 64) * ragged.per_token
    assert ragged.per_sequence == 128 * ragged.per_token
    window = kv_cache(decode_shape(8192, window=1000, **GQA))
    assert (window.per_sequence, window.growth) == (1000 * window.per_token, 0)
    below = kv_cache(decode_shape(500, window=1000, **GQA))
    assert (below.per_sequence, below.growth) == (500 * below.per_token, below.per_token)


def test_what_fits_beside_the_weights() -> None:
    cache = kv_cache(decode_shape(131_072, batch=4, layers=32, **GQA))  # 17.18 GB a sequence
    got = fit(cache, capacity=80_000_000_000, weights=16_060_522_496)
    assert not got.fits
    assert got.free == 80_000_000_000 - 16_060_522_496 - 4 * 17_179_869_184
    assert got.tokens == 63_939_477_504 // 131_072 == 487_819
    assert fit(kv_cache(decode_shape(8192, layers=32, **GQA)), 80_000_000_000, 16_060_522_496).fits
    assert fit(cache, capacity=10, weights=20).tokens == 0
    with pytest.raises(RoofcalcError, match="at least 0"):
        fit(cache, 10, -1)


@pytest.mark.parametrize(
    ("variant", "arguments", "message"),
    [
        ("flash", {"S": None}, "decode needs --S"),
        ("flash", {"S": 0}, "--S is 0; it must be at least 1"),
        ("flash", {"S": (1024, 0)}, "--S 1024,0: every length must be at least 1"),
        ("flash", {"S": (1024, 2048), "batch": 3}, "--batch 3: --S has 2 lengths"),
        ("flash", {"S": 4, "T": 5}, "--T 5 is more than --S 4"),
        ("naive", {"S": (8, 4), "T": 5}, "--T 5 is more than --S 4"),
        ("split-kv", {"S": 16, "splits": 17}, "--splits 17 is more than the 16 keys"),
        ("paged", {"S": 16, "splits": 17}, "--splits 17 is more than the 16 keys"),
        ("mla", {"S": 16, "splits": 17}, "--splits 17 is more than the 16 keys"),
        ("split-kv", {"S": 4096, "window": 32, "splits": 33}, "--splits 33 is more than the 32 keys"),
        ("split-kv", {"splits": 0}, "--splits is 0; it must be at least 1"),
        ("split-kv", {"splits": "many"}, "--splits 'many' is not known; give a number or auto"),
        ("paged", {"page_size": 0}, "--page-size is 0; it must be at least 1"),
        ("mla", {"kv_lora_rank": 0}, "--kv-lora-rank is 0; it must be at least 1"),
        ("mla", {"rope_dim": -1}, "--rope-dim is -1; it must be at least 0"),
    ],
)
def test_what_cannot_be_decoded_is_named_in_one_line(
    variant: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(RoofcalcError) as error:
        decode(variant, **arguments)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
