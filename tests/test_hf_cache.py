"""KV caches and states: what others got wrong (each with its address), and what is right by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hf_files import read

from roofcalc.hf import (
    describe,
    kv_bytes,
    kv_bytes_per_token,
    load_model,
    state_bytes,
)
from roofcalc.hf.build import build


def test_latent_cache_is_not_heads_times_head_dim() -> None:
    # NVIDIA/TensorRT-LLM#16707: 2 * 61 * 128 * (7168 // 128) * 2 = 1,748,992 was 24.9 times too much
    model = load_model("deepseek-v3")
    assert kv_bytes_per_token(model) == 61 * 576 * 2
    keys = json.loads((Path(__file__).parent / "data/configs/deepseek_v3.json").read_text(encoding="utf-8"))
    keys |= {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
    sparse = describe(build(keys, "V3.2", "f"))["model"]
    # the indexer's keys: (128 in fp8 + 4) a layer
    assert (sparse["kv_bytes_per_token"], sparse["index_bytes_per_token"]) == (70_272, 8_052)
    # transformers 5.24.0 on the meta device
    assert sparse["parameters"] == 671_877_929_216


def test_only_attention_layers_cache() -> None:
    # jundot/omlx#2725: 64 layers counted where 16 attend; 64 tokens take 4 MiB
    model = build(
        {
            "model_type": "qwen3_5_text",
            "hidden_size": 5120,
            "intermediate_size": 17408,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 48,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "vocab_size": 248320,
        },
        "m",
        "f",
    )
    assert kv_bytes_per_token(model) * 64 == 4 * 2**20
    assert kv_bytes(model, 64) == 4 * 2**20
    # 48 states of 48 heads x 128 x 128 in fp32
    assert state_bytes(model)[0] == 48 * 48 * 128 * 128 * 4


def test_pools_of_a_hybrid() -> None:
    # lightseekorg/tokenspeed#194: pages divided by all 32 layers where 4 attend
    assert kv_bytes_per_token(load_model("jamba")) == 16_384


def test_allocation_and_growth_differ() -> None:
    # alvarobartt/hf-mem#60: a tool said 36,864, the engine allocated 73,728; 5.38 GiB hold 78,352 tokens
    model = load_model("gpt-oss-120b")
    figures = describe(model)["model"]
    assert figures["kv_bytes_per_token"] == 73_728
    assert figures["kv_bytes_per_token_beyond_window"] == 36_864
    assert round(5.38 * 2**30 / figures["kv_bytes_per_token"]) == 78_352
    # below the window both are one: 100 tokens; above it 18 layers stay at 128
    assert kv_bytes(model, 100) == 100 * 73_728
    assert kv_bytes(model, 1000) == 1000 * 36_864 + 128 * 36_864


def test_head_dim_of_the_file_wins() -> None:
    # NVIDIA/Model-Optimizer#2482: hidden / heads is 25 % too much for one and 30 % too little for the other
    small = read(
        model_type="mistral",
        hidden_size=5120,
        intermediate_size=32768,
        head_dim=128,
        num_hidden_layers=40,
        sliding_window=None,
    )
    assert kv_bytes_per_token(small) == 2 * 40 * 8 * 128 * 2
    assert describe(load_model("gpt-oss-120b"))["model"]["head_dim"] == 64


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("head_dim", 96),
        ("attention_head_dim", 96),
        ("hidden_size_per_head", 96),
        ("kv_channels", 96),
        ("d_kv", 96),
    ],
)
def test_names_of_the_head_dim(key: str, value: int) -> None:
    # vllm-project/vllm#2622 and #24221 list the names
    model = read(**{key: value})
    assert kv_bytes_per_token(model) == 2 * 32 * 8 * 96 * 2
    assert model.sources["head dim"] == key


def test_null_means_absent() -> None:
    model = read(head_dim=None, kv_channels=96)
    assert model.sources["head dim"] == "kv_channels"
    assert read(head_dim=None).sources["head dim"] == "hidden_size / num_attention_heads"


def test_heads_times_hidden_has_one_head_too_many() -> None:
    # jranaraki/vllm-fit#2: right for 32 layers of width 4096 is 2 * 32 * 4096 * 2
    assert kv_bytes_per_token(load_model("llama-2-7b"), "fp16") == 524_288


def test_one_layer_of_gemma_2() -> None:
    # ai-dynamo/dynamo#14431: 7,168 where 2 * 8 * 256 * 2 = 8,192 is right
    assert kv_bytes_per_token(load_model("gemma-2-9b")) == 42 * 8_192


def test_the_pattern_says_which_layers_attend() -> None:
    # NVIDIA/TensorRT-LLM#5371, inference-sim/inference-sim#1558: 13 times too much over all 52 layers
    model = build(
        {
            "model_type": "nemotron_h",
            "hidden_size": 4096,
            "intermediate_size": 21504,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "attention_head_dim": 128,
            "vocab_size": 131072,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "conv_kernel": 4,
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        },
        "nano",
        "f",
    )
    assert kv_bytes_per_token(model) == 16_384
    assert state_bytes(model)[0] == 24 * 128 * 64 * 128 * 4
    assert len(model.layers) == 52


@pytest.mark.parametrize(
    ("dtype", "kv"), [("fp8", 65_536), ("int8", 65_536), ("int4", 32_768), ("fp32", 262_144)]
)
def test_kv_dtype_scales_the_cache(dtype: str, kv: int) -> None:
    model = describe(load_model("llama-3-8b"), dtype)["model"]
    assert (model["kv_bytes_per_token"], model["kv_dtype"]) == (kv, dtype)


def test_kv_heads_and_their_widths_do_not_apply_to_latent_attention() -> None:
    # the class of deepseek_v3 gives 128 KV heads, and 1000 / 32 is no head dim: neither is used
    keys = json.loads((Path(__file__).parent / "data/configs/deepseek_v3.json").read_text(encoding="utf-8"))
    keys |= {"num_attention_heads": 32, "hidden_size": 1000}
    del keys["num_key_value_heads"]
    model = build(keys, "m", "config.json")
    figures = describe(model)["model"]
    assert (figures["heads"], figures["kv_heads"], figures["head_dim"]) == (32, 1, 192)
    assert kv_bytes_per_token(model) == 70_272  # 61 layers · (512 + 64) · 2 B, whatever the heads
