"""Numbers that practitioners reported in public, recomputed; each source stands beside its values."""

from __future__ import annotations

import pytest
from decode_helpers import decode, moved, rows

from roofcalc.core import Row
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.kvcache import kv_cache, mla_arrays
from roofcalc.models import variants
from roofcalc.models.cache import decode_shape


def products(row: Row) -> int:
    return sum(work.ops for work in row.work if work.pipe == "tensor")


def test_fa3_with_one_kv_head_on_a_pcie_card() -> None:
    """Dao-AILab/flash-attention#1236: 26.93 us with 22 splits, 402.86 us without."""
    sizes = {"S": 16384, "T": 4, "batch": 4, "heads": 16, "kv_heads": 1, "dtype": "fp16"}
    got = decode("split-kv", "h100-pcie", splits=22, **sizes)
    assert moved(got, "K", "V") == 33_554_432
    assert products(rows(got)["split"]) / 33_554_432 == pytest.approx(64, rel=1e-3)  # causal: 6 keys fewer
    assert decode("flash-gqa", "h100-pcie", **sizes).kernels[0].units == 4
    assert decode("flash-gqa", "h100-pcie", **sizes).kernels[0].sm_use == pytest.approx(0.03509, rel=1e-3)
    assert rows(got)["split"].sm_use == pytest.approx(0.7719, rel=1e-3)  # 88 of 114
    assert 16.78e-6 < got.total.time < 26.93e-6
    assert decode("flash", "h100-pcie", **sizes).total.time < 402.86e-6


def test_flash_decoding_on_an_a100() -> None:
    """PyTorch blog, Flash-Decoding: every row of its first table reads 67,108,864 B of K and V."""
    sizes = {"heads": 16, "kv_heads": 2, "dtype": "fp16"}
    for batch, keys in ((1, 65536), (8, 8192), (256, 256)):
        got = decode("split-kv", "a100", S=keys, batch=batch, **sizes)
        assert moved(got, "K", "V") == 67_108_864
        assert got.total.time > 32.91e-6  # at 2.039 TB/s
    assert decode("split-kv", "a100-40gb", S=8192, batch=8, **sizes).total.time > 43.16e-6
    assert decode("split-kv", "a100-40gb", S=8192, batch=8, **sizes).total.time < 56.4e-6
    assert decode("flash", "a100", S=65536, **sizes).kernels[0].sm_use == pytest.approx(0.1481, rel=1e-3)


def test_small_pages_cost_time_and_not_bytes() -> None:
    """Dao-AILab/flash-attention#1572: pages of 8 tokens, 292 us measured, 16 kB of table."""
    sizes = {"batch": 16, "heads": 32, "page_size": 8}
    got = decode("paged", S=2000, **sizes)
    assert moved(got, "block_table") == 16_000
    assert got.total.bytes - 16_000 == 524_550_144
    assert got.total.intensity == pytest.approx(1, rel=0.02)
    assert got.total.time == pytest.approx(156.6e-6, rel=1e-3)
    assert decode("paged", S=128, **sizes).total.time == pytest.approx(10.09e-6, rel=2e-3)


def test_binary_units_are_no_gigabytes() -> None:
    """flashinfer-ai/flashinfer#1415: its "4915 GB/s" are MiB/ms; decimal, with the output, 5174."""
    got = decode("paged", "b200", S=1024, batch=128, heads=64, kv_heads=8, d=64, page_size=16, splits=1)
    assert moved(got, "K", "V") == 268_435_456
    assert moved(got, "Q") == 1_048_576
    bytes_ = moved(got, "K", "V", "Q") + moved(got, "O", mode="write")
    assert bytes_ / 52.284801e-6 / 1e9 == pytest.approx(5174, abs=0.5)
    assert got.total.time < 52.28e-6


def test_a_clean_memory_bound_anchor() -> None:
    """pytorch/pytorch#137036, RTX A6000: as many FLOP as bytes, 87.5 % of 768 GB/s reached."""
    row = decode("flash-gqa", S=1024, batch=64, heads=16, d=64).kernels[0]
    assert products(row) == 268_435_456
    assert sum(line.bytes for line in row.ledger if line.tensor in "KV") == 268_435_456


def test_a_long_cache_reaches_the_roof() -> None:
    """flagos-ai/FlagAttention#17, RTX 3090: 2.429 ms measured at 2.294 ms of roof (936.2 GB/s)."""
    card = load("l40s", ["memory.hbm.bandwidth=936.2 GB/s"])
    shape = decode_shape(131072, batch=2, heads=32, d=64, dtype="fp16")
    got = estimate(variants("decode")["split-kv"].plan(shape, card.limits), card)
    assert moved(got, "K", "V") == 2_147_483_648
    assert got.total.time == pytest.approx(2.294e-3, rel=2e-3)
    assert got.total.time < 2.42941e-3


def test_a_latent_is_read_once_for_keys_and_values() -> None:
    """tenstorrent/tt-metal#55764: V passed apart made 34 tiles of 18."""
    shared = decode("mla", S=4096, batch=8, heads=16, splits=1)
    apart = decode("flash-gqa", S=4096, batch=8, heads=16, kv_heads=1, d=576, dv=512)
    assert moved(apart, "K", "V") / moved(shared, "latent") == pytest.approx(34 / 18)


def test_latent_bytes_on_a_4090() -> None:
    """flashinfer-ai/flashinfer#551: 4.5 GiB of latents; above the rows of a tile they are read again."""
    got = decode("mla", S=16384, batch=256, heads=8, dtype="fp16")
    assert moved(got, "latent") == 4_831_838_208
    assert moved(got, "latent", tier="l2") == 0
    assert (
        moved(decode("mla", S=16384, batch=256, heads=128, dtype="fp16"), "latent", tier="l2")
        == 4_831_838_208
    )


def test_an_fp8_cache_saves_half_of_the_cache_bytes() -> None:
    """vllm-project/vllm#42058, Qwen3-8B: 147,456 B a token, 19.33 GB a step at 8 x 16,384 tokens."""
    sizes = {"batch": 8, "heads": 32, "kv_heads": 8, "layers": 36}
    cache = kv_cache(decode_shape(16384, **sizes))
    assert cache.per_token == 147_456
    assert cache.batch == pytest.approx(19.33e9, rel=1e-3)
    wide, narrow = (decode("split-kv", "a100", S=16384, kv_dtype=kv, **sizes) for kv in ("bf16", "fp8"))
    assert moved(wide, "K", "V") == cache.batch == 2 * moved(narrow, "K", "V")
    assert wide.total.time - narrow.total.time == pytest.approx(4.739e-3, rel=1e-3)


def test_five_tokens_fill_more_of_the_tile() -> None:
    """NVIDIA/TensorRT-LLM#2372: rows of the tile are T · heads/kv_heads; the roofline has fp8 never slower."""
    for tokens, rows_ in ((1, 4), (2, 8), (4, 16), (5, 20)):
        sizes = {"S": 8192, "batch": 64, "heads": 32, "kv_heads": 8, "T": tokens, "dtype": "fp16"}
        got = decode("split-kv", **sizes)
        assert any(f"{64 - rows_} of 64 rows are padding" in note for note in got.notes)
        assert decode("split-kv", kv_dtype="fp8", **sizes).total.time <= got.total.time


def test_the_cache_counts_and_not_the_new_token() -> None:
    """intel/sycl-tla#778: 1.621 TFLOP/s, and 640 times the bytes that were printed."""
    row = decode("flash-gqa", S=10241, batch=16, heads=80, kv_heads=8).kernels[0]
    assert sum(line.bytes for line in row.ledger if line.tensor in "KV") == 671_154_176
    assert products(row) / 4.1408e-3 / 1e12 == pytest.approx(1.621, abs=5e-4)


@pytest.mark.parametrize(
    ("sizes", "bytes_"),
    [
        # NVIDIA/TensorRT-LLM#16707, DeepSeek-V3.2 as if it had 128 plain heads of 7168 // 128
        ({"layers": 61, "heads": 128, "d": 56}, 1_748_992),
        # alvarobartt/hf-mem#60, gpt-oss-120b: all 36 layers, and the 18 that grow past the window
        ({"layers": 36, "heads": 64, "kv_heads": 8, "d": 64}, 73_728),
        ({"layers": 18, "heads": 64, "kv_heads": 8, "d": 64}, 36_864),
        # jranaraki/vllm-fit#2, 32 plain heads over 4096
        ({"layers": 32, "heads": 32}, 524_288),
        # lightseekorg/tokenspeed#194, Jamba: 4 of 32 layers attend
        ({"layers": 4, "heads": 32, "kv_heads": 8}, 16_384),
        ({"layers": 32, "heads": 32, "kv_heads": 8}, 131_072),
    ],
)
def test_bytes_of_a_cached_token(sizes: dict[str, int], bytes_: int) -> None:
    assert kv_cache(decode_shape(1, **sizes)).per_token == bytes_


def test_a_latent_cache_is_a_25th_of_what_plain_heads_would_take() -> None:
    """NVIDIA/TensorRT-LLM#16707: 61 · 576 · 2."""
    assert kv_cache(decode_shape(1, layers=61, heads=128), arrays=mla_arrays()).per_token == 70_272


def test_a_page_of_the_layers_that_attend() -> None:
    """jundot/omlx#2725: 4 MiB a page of 64 tokens for 16 layers, not 16 MiB for all 64."""
    page = {
        layers: kv_cache(decode_shape(1, layers=layers, heads=4, d=256), page_size=64) for layers in (16, 64)
    }
    assert page[16].batch == 4 * 2**20
    assert page[64].batch == 16 * 2**20
