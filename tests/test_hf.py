"""Presets, class defaults, quantisation, experts, and the shape of one layer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hf_files import read

from roofcalc.core import RoofcalcError
from roofcalc.hf import (
    ModelError,
    describe,
    kv_bytes_per_token,
    layer_shape,
    load_model,
    preset_names,
    preset_source,
    state_bytes,
    touched_experts,
    weight_bytes,
)
from roofcalc.hf.build import build

# the linear layers of 32 layers, and what is beside them: two tables and 65 norms
LINEARS = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
REST = 2 * 128256 * 4096 + 65 * 4096


# --- presets


@pytest.mark.parametrize(
    ("name", "parameters", "kv"),
    [
        ("gpt2", 124_439_808, 36_864),
        # 24 * (1024 * 3072 + 3072 + 1024^2 + 1024 + 8 * 1024^2 + 5120 + 4096) + 50257 * 1024 + 1024^2 + 2048
        ("gpt2-medium", 354_823_168, 98_304),
        ("llama-2-7b", 6_738_415_616, 524_288),
        ("llama-3-8b", 8_030_261_248, 131_072),
        # 80 * (2 * 8192^2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 16384) + 2 * 128256 * 8192 + 8192
        ("llama-3-70b", 70_553_706_496, 327_680),
        # 32 * (2 * 4096^2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 8192) + 2 * 32000 * 4096 + 4096
        ("mistral-7b", 7_241_732_096, 131_072),
        ("mixtral-8x7b", 46_702_792_704, 131_072),
        ("gemma-2-9b", 9_241_705_984, 344_064),
        # transformers 5.24.0 on the meta device; 2 * 62 * 16 * 128 * 2
        ("gemma-3-27b", 27_432_406_640, 507_904),
        # 36 * (2 * 4096^2 + 2 * 4096 * 1024 + 256 + 3 * 4096 * 12288 + 8192) + 2 * 151936 * 4096 + 4096
        ("qwen3-8b", 8_190_735_360, 147_456),
        ("deepseek-v3", 671_026_404_352, 70_272),
        ("gpt-oss-120b", 116_829_156_672, 73_728),
        ("falcon-7b", 6_921_720_704, 8_192),
        ("mamba-2.8b", 2_768_345_600, 0),
        # 64 * (2560 * 10576 + 5376 * 5 + 240 + 5120 + 5120 * 2560 + 2560) + 50288 * 2560 + 2560
        ("mamba2-2.7b", 2_702_599_680, 0),
        ("jamba", 51_570_323_328, 16_384),
        # transformers 5.24.0 on the meta device; 2 * 13 * 32 * 224 * 2
        ("zamba2-7b", 7_356_749_648, 372_736),
        # "3.8B" in arXiv:2406.07522, Table 10; 2 * 16 * 1 * 256 * 2
        ("samba-3.8b", 3_864_275_712, 16_384),
        # transformers 5.24.0 on the meta device, with the head for masked words; an encoder caches nothing
        ("bert-large", 335_174_458, 0),
    ],
)
def test_presets(name: str, parameters: int, kv: int) -> None:
    model = describe(load_model(name))["model"]
    assert (model["parameters"], model["kv_bytes_per_token"]) == (parameters, kv)
    assert model["name"] == name


def test_samba_by_hand() -> None:
    mamba = (
        2816 * 11264
        + 5632 * 4
        + 5632
        + 5632 * (176 + 32)
        + 176 * 5632
        + 5632
        + 5632 * 16
        + 5632
        + 5632 * 2816
    )
    attention = 2 * 2816 * 2816 + 2 * 2816 * 256
    total = 16 * mamba + 16 * attention + 32 * 3 * 2816 * 9984 + 65 * 2816 + 32064 * 2816
    assert describe(load_model("samba-3.8b"))["model"]["parameters"] == total
    assert state_bytes(load_model("samba-3.8b")) == (16 * 5632 * 16 * 4, 16 * 5632 * 4 * 2)


def test_every_preset_names_its_source() -> None:
    assert len(preset_names()) == 19
    for name in preset_names():
        block = preset_source(name)
        assert block["source"], name
        assert isinstance(block["recalled"], list)


# --- windows and class defaults


def test_a_window_that_is_absent_is_the_class_default() -> None:
    # MistralConfig has 4096; null in the file means none
    assert describe(read(model_type="mistral"))["model"]["window"] == 4096
    assert describe(read(model_type="mistral", sliding_window=None))["model"]["window"] is None
    assert describe(read(model_type="mistral", sliding_window=1024))["model"]["window"] == 1024


def test_a_window_that_the_code_ignores_is_none() -> None:
    model = read(sliding_window=4096)
    assert describe(model)["model"]["window"] is None
    assert any("does not use it" in note for note in model.notes)


def test_nothing_but_a_known_type_is_the_class_itself() -> None:
    # LlamaConfig is Llama-2-7B
    assert describe(build({"model_type": "llama"}, "m", "f"))["model"]["parameters"] == 6_738_415_616


def test_an_unknown_type_runs_with_a_note() -> None:
    model = read(model_type="something_new")
    assert describe(model)["model"]["parameters"] == 8_030_261_248
    assert any("'something_new' is not known" in note for note in model.notes)


def test_an_unknown_type_of_a_known_architecture() -> None:
    model = read(model_type="my_qwen", architectures=["Qwen2ForCausalLM"])
    # Qwen2 adds biases to q, k and v
    assert describe(model)["model"]["parameters"] == 8_030_261_248 + 32 * (4096 + 2 * 1024)
    assert any("read as qwen2" in note for note in model.notes)


def test_nas_blocks() -> None:
    # Nemotron-NAS: 2/3 * 2 * ffn_mult * hidden up to a multiple of 256; 2.625 * 8192 * 2 / 3 = 14336
    block = {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.625}}
    no_attention = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.625}}
    no_mlp = {"attention": {"n_heads_in_group": 16}, "ffn": {"no_op": True}}
    model = build(
        {
            "model_type": "nemotron-nas",
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "num_hidden_layers": 3,
            "vocab_size": 128256,
            "tie_word_embeddings": False,
            "block_configs": [block, no_attention, no_mlp],
        },
        "nas",
        "f",
    )
    mlp, square = 3 * 8192 * 14336, 2 * 8192 * 8192
    total = (square + 2 * 8192 * 1024 + mlp + 16384) + (mlp + 8192) + (square + 2 * 8192 * 512 + 8192)
    assert describe(model)["model"]["parameters"] == total + 2 * 128256 * 8192 + 8192
    assert kv_bytes_per_token(model) == 2 * (8 + 4) * 128 * 2


def test_kv_heads_of_each_layer() -> None:
    model = read(model_type="deci", num_key_value_heads_per_layer=[4] * 16 + [1] * 16)
    assert kv_bytes_per_token(model) == 2 * (16 * 4 + 16) * 128 * 2
    assert layer_shape(model, 31)[0]["kv_heads"] == 1


# --- experts


def test_touched_experts() -> None:
    # one token touches its k; two of Mixtral's touch 8 (1 - 0.75^2) = 3.5
    assert touched_experts(8, 2, 1) == pytest.approx(2)
    assert touched_experts(8, 2, 2) == pytest.approx(3.5)
    assert touched_experts(8, 2, 0) == 0
    assert touched_experts(8, 8, 5) == 8
    with pytest.raises(ModelError, match="9 of 8"):
        touched_experts(8, 9, 1)


# --- quantisation


@pytest.mark.parametrize(
    ("quantization", "linear_bits", "extra_bytes"),
    [
        # 4 bits, an fp16 scale and a 4-bit zero per 128
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 4 + 20 / 128, 0),
        # and an int32 group index for each input row: q, k, v, gate and up 4096, o 4096, down 14336
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128, 32 * (6 * 4096 + 14336) * 4),
        ({"quant_method": "fp8"}, 8, 0),
        # an fp32 scale per 128 x 128: every matrix here divides
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2, 0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5, 0),
        ({"load_in_8bit": True}, 8, 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096) * 4),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "group_size": 128, "symmetric": True}}
                },
            },
            4 + 16 / 128,
            0,
        ),
    ],
)
def test_weight_bytes_of_quantised_models(
    quantization: dict[str, Any], linear_bits: float, extra_bytes: int
) -> None:
    model = read(quantization_config=quantization)
    assert weight_bytes(model) == LINEARS * linear_bits / 8 + extra_bytes + REST * 2


def test_modules_left_alone_stay_in_the_declared_dtype() -> None:
    down = 32 * 14336 * 4096
    model = read(
        quantization_config={"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["down_proj"]}
    )
    assert weight_bytes(model) == (LINEARS - down) * (4 + 20 / 128) / 8 + (down + REST) * 2


def test_an_unknown_method_is_said() -> None:
    model = read(quantization_config={"quant_method": "brand_new"})
    assert weight_bytes(model) == 16_060_522_496
    assert any("brand_new" in note for note in model.notes)


# --- the shape of one layer


def test_layer_shape_of_like_layers() -> None:
    shape, notes = layer_shape(load_model("llama-3-8b"))
    assert (shape["heads"], shape["kv_heads"], shape["d"], shape["dv"], shape["window"]) == (
        32,
        8,
        128,
        128,
        None,
    )
    assert notes == ()


def test_layer_shape_of_unlike_layers() -> None:
    model = load_model("gemma-3-27b")
    shape, notes = layer_shape(model)
    assert shape["window"] == 1024
    assert "52 of 62" in notes[0]
    assert "--layer N" in notes[0]
    assert layer_shape(model, 5)[0]["window"] is None
    with pytest.raises(ModelError, match="0 to 61"):
        layer_shape(model, 62)


def test_layer_shape_without_attention() -> None:
    with pytest.raises(ModelError, match="64 mamba"):
        layer_shape(load_model("mamba-2.8b"))
    with pytest.raises(ModelError, match="nearest with attention is 4"):
        layer_shape(load_model("jamba"), 3)


def test_layer_shape_of_latent_attention() -> None:
    shape, _ = layer_shape(load_model("deepseek-v3"))
    assert (shape["kind"], shape["heads"], shape["d"], shape["dv"]) == ("mla", 128, 192, 128)
    assert (shape["kv_lora_rank"], shape["rope_dim"]) == (512, 64)


# --- the JSON


def test_describe_is_json() -> None:
    for name in preset_names():
        text = json.dumps(describe(load_model(name)), allow_nan=False)
        assert json.loads(text)["schema"] == 1


def test_layer_groups_cover_every_layer() -> None:
    for name in preset_names():
        figures = describe(load_model(name))["model"]
        assert sorted(i for group in figures["layer_groups"] for i in group["layers"]) == list(
            range(figures["layers"])
        )


def test_an_error_is_one_of_roofcalc() -> None:
    with pytest.raises(RoofcalcError):
        load_model("llama-3-9b")
