"""What all layers of a model keep for its sequences: windows, latents, states, scales, pages."""

from __future__ import annotations

import pytest

from roofcalc.hf import kv_bytes, load_model
from roofcalc.kvcache import fit, model_cache
from roofcalc.models.cache import decode_shape


@pytest.mark.parametrize(
    ("name", "tokens", "per_token", "growth", "per_sequence"),
    [
        # Gemma 2 9B: 42 layers of 2 · 8 heads · 256 · 2 B = 8192 B a token, 21 of them with a window of 4096
        ("gemma-2-9b", 131_072, 344_064, 172_032, 21 * 8192 * (131_072 + 4096)),
        ("gemma-2-9b", 1000, 344_064, 344_064, 344_064_000),
        # gpt-oss-120b: 36 layers of 2 · 8 heads · 64 · 2 B = 2048 B a token, 18 of them with a window of 128
        ("gpt-oss-120b", 8192, 73_728, 36_864, 18 * 2048 * (128 + 8192)),
        # DeepSeek-V3: 61 latents of 576 numbers
        ("deepseek-v3", 4096, 70_272, 70_272, 70_272 * 4096),
        ("llama-3-8b", 4096, 131_072, 131_072, 131_072 * 4096),
    ],
)
def test_a_models_cache_is_that_of_all_its_layers(
    name: str, tokens: int, per_token: int, growth: int, per_sequence: int
) -> None:
    model = load_model(name)
    got = model_cache(model, decode_shape(tokens, batch=3, layers=1, window=77))
    assert (got.per_token, got.growth, got.per_sequence) == (per_token, growth, per_sequence)
    assert got.batch == 3 * per_sequence
    assert kv_bytes(model, tokens) == per_sequence
    assert fit(got, 10 * per_sequence).sequences == 10
    assert (fit(got, 10 * per_sequence).tokens is None) == (growth < per_token)


def test_a_models_cache_adds_lengths_states_scales_and_pages() -> None:
    # lengths of 100 and 8192 in gpt-oss-120b: 18 layers keep at most 128 tokens, 18 all
    ragged = model_cache(load_model("gpt-oss-120b"), decode_shape((100, 8192)))
    assert ragged.batch == 18 * 2048 * (100 + 100 + 128 + 8192)
    # Jamba: 4 of 32 layers attend, 2 · 8 heads · 128 · 2 B = 4096 B; 28 Mamba layers keep 8192 channels of
    # 16 fp32 numbers and 4 bf16 inputs: 8192 · (64 + 8) B
    jamba = model_cache(load_model("jamba"), decode_shape(1000, batch=2))
    assert (jamba.layers, jamba.per_token, jamba.state) == (4, 16_384, 28 * 8192 * 72)
    assert jamba.batch == 2 * (16_384_000 + 28 * 8192 * 72)
    # int8: 8 heads · (2 · 128 numbers of a byte + 2 · 4 B of scale and zero), 32 layers, 2 pages of 64
    llama = model_cache(load_model("llama-3-8b"), decode_shape(100, kv_dtype="int8"), page_size=64)
    assert llama.per_sequence == 128 * 32 * 8 * (256 + 8)
    # expanded: 128 heads of 192 + 128 numbers in 61 layers
    wide = model_cache(load_model("deepseek-v3"), decode_shape(100), expanded=True)
    assert wide.per_token == 61 * 128 * 320 * 2
