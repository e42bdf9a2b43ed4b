"""The config.json files in tests/data/configs: every figure derived by hand, no figure from the code.

Parameter totals were checked by instantiating each file with transformers 5.24.0 on the meta device.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from roofcalc.hf import describe, load_model, parts

FOLDER = Path(__file__).parent / "data" / "configs"

# name: layers, heads, KV heads, head dim, KV bytes per token (bf16, all layers), parameters
EXPECTED = {
    # 2 * 12 * 12 * 64 * 2; 12 * (2,362,368 + 4,722,432 + 3,072) + 50257 * 768 + 1024 * 768 + 1536
    "gpt2_small": (12, 12, 12, 64, 36_864, 124_439_808),
    # 2 * 32 * 1 * 64 * 2; 32 * (4544 * 4672 + 4544^2 + 2 * 4544 * 18176 + 2 * 4544) + 65024 * 4544 + 9088
    "falcon_7b": (32, 71, 1, 64, 8_192, 6_921_720_704),
    # 2 * 32 * 32 * 128 * 2; 32 * (4 * 4096^2 + 3 * 4096 * 11008 + 8192) + 2 * 32000 * 4096 + 4096
    "llama2_7b_awq_kv_null": (32, 32, 32, 128, 524_288, 6_738_415_616),
    # 2 * 16 * 8 * 64 * 2; 16 * 60,821,504 + 128256 * 2048 + 2048
    "llama32_1b_dtype_key": (16, 32, 8, 64, 32_768, 1_235_814_400),
    # 2 * 40 * 8 * 128 * 2 (5120 / 32 = 160 is not the head dim); 40 * 272,640,000 + 2 * 131072 * 5120 + 5120
    "mistral_nemo_12b": (40, 32, 8, 128, 163_840, 12_247_782_400),
    # 2 * 28 * 8 * 128 * 2; 28 * 15,730,944 + 151936 * 1024 + 1024
    "qwen3_0p6b": (28, 16, 8, 128, 114_688, 596_049_920),
    # 2 * 28 * 16 * 256 * 2; 28 * 276,830,208 + 256000 * 3072 + 3072
    "gemma_7b": (28, 16, 16, 256, 458_752, 8_537_680_896),
    # 42 * 8,192; 42 * 198,195,200 + 256000 * 3584 + 3584
    "gemma2_9b": (42, 16, 8, 256, 344_064, 9_241_705_984),
    # 34 * 4,096; text 3,880,263,168 + vision 416,866,032 + projector 2,950,272
    "gemma3_4b_nested_defaults": (34, 8, 4, 256, 139_264, 4_300_079_472),
    # 36 * 2,048; 36 * 3,213,080,192 + 2 * 201088 * 2880 + 2880
    "gpt_oss_120b": (36, 64, 8, 64, 73_728, 116_829_156_672),
    # 2 * 32 * 8 * 128 * 2; 32 * 1,451,270,144 + 2 * 32000 * 4096 + 4096
    "mixtral_8x7b": (32, 32, 8, 128, 131_072, 46_702_792_704),
    # 61 * (512 + 64) * 2; one latent takes the place of the KV heads
    "deepseek_v3": (61, 128, 1, 192, 70_272, 671_026_404_352),
    # 27 * (512 + 64) * 2; q_lora_rank null: one plain q_proj
    "deepseek_v2_lite_q_lora_null": (27, 16, 1, 192, 31_104, 15_706_484_224),
    # 2 * 4 * 8 * 128 * 2, attention where i % 8 == 4
    "jamba_v01": (32, 32, 8, 128, 16_384, 51_570_323_328),
    # 64 * (41,241,600 + 2560) + 50280 * 2560 + 2560
    "mamba_2p8b_no_heads": (64, None, None, None, 0, 2_768_345_600),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sizes_cache_and_parameters(name: str) -> None:
    model = describe(load_model(str(FOLDER / f"{name}.json")))["model"]
    keys = ("layers", "heads", "kv_heads", "head_dim", "kv_bytes_per_token", "parameters")
    assert tuple(model[key] for key in keys) == EXPECTED[name]


def test_every_file_of_the_folder_is_expected() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        # of 8 experts 2: 32 * (41,943,040 + 32,768 + 2 * 176,160,768 + 8,192) + 2 * 131,072,000 + 4,096
        ("mixtral_8x7b", "active_parameters", 12_879_925_248),
        # 61 * 187,121,664 + 3 * 396,361,728 + 58 * (9 * 44,040,192 + 1,835,008) + 2 * 129280 * 7168 + 7168
        ("deepseek_v3", "active_parameters", 37_552_282_624),
        # 27 * 13,767,168 + 67,239,936 + 26 * (8 * 8,650,752 + 131,072) + 2 * 102400 * 2048 + 2048
        ("deepseek_v2_lite_q_lora_null", "active_parameters", 2_661_150_208),
        # 36 * (26,550,144 + 368,768 + 4 * 24,891,840 + 5,760) + 2 * 201088 * 2880 + 2880
        ("gpt_oss_120b", "active_parameters", 5_711_982_912),
        # less 201088 * 2880
        ("gpt_oss_120b", "active_parameters_without_embedding", 5_132_849_472),
        # a tied table is read as the head
        ("llama32_1b_dtype_key", "active_parameters_without_embedding", 1_235_814_400),
        ("llama32_1b_dtype_key", "weight_bytes", 2_471_628_800),
        # 6,476,005,376 numbers at (4 + 16/128 + 4/128) bits and 262,410,240 at 16
        ("llama2_7b_awq_kv_null", "weight_bytes", 3_889_307_648),
        # 114,661,785,600 numbers at 4.25 bits and 2,167,371,072 at 16 (hf-mem issue 60 prints the same)
        ("gpt_oss_120b", "weight_bytes", 65_248_815_744),
        # every other layer full: 21 * 8,192, and 21 * 8,192 * 4096
        ("gemma2_9b", "kv_bytes_per_token_beyond_window", 172_032),
        ("gemma2_9b", "kv_window_bytes_per_sequence", 704_643_072),
        # 34 // 6 = 5 full layers
        ("gemma3_4b_nested_defaults", "kv_bytes_per_token_beyond_window", 20_480),
        ("gemma3_4b_nested_defaults", "kv_window_bytes_per_sequence", 121_634_816),
        ("gemma3_4b_nested_defaults", "text_parameters", 3_880_263_168),
        ("gpt_oss_120b", "kv_bytes_per_token_beyond_window", 36_864),
        ("gpt_oss_120b", "kv_window_bytes_per_sequence", 4_718_592),
        # a null window is none, and max_window_layers without use_sliding_window is none either
        ("mistral_nemo_12b", "kv_bytes_per_token_beyond_window", 163_840),
        ("qwen3_0p6b", "kv_bytes_per_token_beyond_window", 114_688),
        # 28 * 8192 * 16 * 4 and 28 * 8192 * 4 * 2
        ("jamba_v01", "ssm_state_bytes_per_sequence", 14_680_064),
        ("jamba_v01", "conv_state_bytes_per_sequence", 1_835_008),
        # 64 * 5120 * 16 * 4 and 64 * 5120 * 4 * 2
        ("mamba_2p8b_no_heads", "ssm_state_bytes_per_sequence", 20_971_520),
        ("mamba_2p8b_no_heads", "conv_state_bytes_per_sequence", 2_621_440),
        ("llama32_1b_dtype_key", "dtype", "bf16"),
        ("gemma2_9b", "dtype", "fp32"),
    ],
)
def test_further_figures(name: str, key: str, value: object) -> None:
    assert describe(load_model(str(FOLDER / f"{name}.json")))["model"][key] == value


@pytest.mark.parametrize(
    ("name", "part", "value"),
    [
        ("deepseek_v3", "experts", 58 * 256 * 44_040_192),
        ("deepseek_v3", "router", 58 * 256 * 7168),
        ("deepseek_v3", "mlp", 3 * 396_361_728 + 58 * 44_040_192),
        ("jamba_v01", "embedding", 65536 * 4096),
        ("jamba_v01", "attention", 4 * 41_943_040),
        # each Mamba mixer's 105,308,448 less the three norms of dt, B and C (256 + 16 + 16)
        ("jamba_v01", "ssm", 28 * (105_308_448 - 288)),
        ("gemma2_9b", "lm_head", 0),
        ("gemma3_4b_nested_defaults", "vision", 416_866_032 + 2_950_272),
        # biases and 64 sinks count as attention
        ("gpt_oss_120b", "attention", 36 * 26_550_144),
    ],
)
def test_parameters_by_part(name: str, part: str, value: int) -> None:
    found = parts(load_model(str(FOLDER / f"{name}.json")))
    assert found[part] == value
    assert sum(found.values()) == EXPECTED[name][5]


def test_what_the_class_gave_is_said() -> None:
    model = load_model(str(FOLDER / "gemma3_4b_nested_defaults.json"))
    for line in (
        "heads: num_attention_heads (default of gemma3_text)",
        "kv heads: num_key_value_heads (default of gemma3_text)",
        "head dim: head_dim (default of gemma3_text)",
        "vocab: vocab_size (default of gemma3_text)",
    ):
        assert line in model.defaulted
    assert model.sources["hidden"] == "text_config.hidden_size"
    assert model.vocab == 262_208  # Gemma3TextConfig
    note = next(note for note in model.notes if "class of gemma3_text" in note)
    said = {"heads (num_attention_heads)", "kv heads (num_key_value_heads)", "head dim (head_dim)"}
    assert {*said, "vocab (vocab_size)"} <= set(note.split(": ")[1].split(", "))


def test_a_key_of_the_file_is_no_default() -> None:
    model = load_model(str(FOLDER / "llama32_1b_dtype_key.json"))
    assert model.sources["head dim"] == "head_dim"
    assert model.sources["dtype"] == "dtype"
    assert model.defaulted == ()
