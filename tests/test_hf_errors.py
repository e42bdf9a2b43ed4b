"""A config.json that cannot be read: one line that names the file and the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hf_files import LLAMA
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcalc.hf import ModelError, describe, load_model
from roofcalc.hf.build import build


def message(tmp_path: Path, content: str | bytes) -> str:
    """The message of loading a file with this content."""
    path = tmp_path / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError) as error:
        load_model(str(path))
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text.removeprefix(str(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ('{"hidden_size": ', ":1:17: not JSON"),
        ("[1, 2]", "one object"),
        ("null", "null at the top"),
        ("3", "one object"),
        ("{}", "no hidden found; looked for hidden_size, n_embd, n_embed, d_model"),
        (b"\x80\x04\x95\xff\x00", "not UTF-8"),
        (b'{"model_type": "llama", "hidden_size": 1, "hidden_size": 2}', "'hidden_size' is there twice"),
        (b"[" * 100_000, "nested too deeply"),
        ('{"model_type": "llama", "hidden_size": NaN}', "hidden_size is nan"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, content: str | bytes, said: str) -> None:
    assert said in message(tmp_path, content)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be at least 1"),
        ({"num_hidden_layers": None}, "num_hidden_layers is null"),
        ({"num_hidden_layers": 10**9}, "no model has more than 10000"),
        ({"hidden_size": -4096}, "hidden_size is -4096"),
        ({"hidden_size": 4096.0}, "hidden_size is 4096.0; it must be a whole number"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'; it must be a whole number"),
        ({"hidden_size": True}, "hidden_size is true; it must be a whole number"),
        ({"num_key_value_heads": False}, "num_key_value_heads is false"),
        ({"hidden_size": 10**400}, "very many digits"),
        ({"hidden_size": 4100}, "hidden_size 4100 does not divide by num_attention_heads 32"),
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is not a multiple of num_key_value_heads 5"),
        ({"num_key_value_heads": 64}, "num_attention_heads 32 is not a multiple of num_key_value_heads 64"),
        ({"num_attention_heads": [32] * 31}, "num_attention_heads lists 31 values for 32 layers"),
        ({"num_key_value_heads": [8] * 31 + ["x"]}, "num_key_value_heads[31] is 'x'"),
        ({"model_type": 3}, "model_type is 3"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
        ({"torch_dtype": 5}, "dtype is 5"),
        ({"model_type": "mistral", "sliding_window": "4096"}, "sliding_window is '4096'"),
        (
            {"model_type": "gpt_oss", "layer_types": ["full_attention"] * 3},
            "layer_types lists 3 layers, the model has 32",
        ),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "hybrid_override_pattern is 'MX'"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*"}, "has 2 letters for 32 layers"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok 9 is more than"),
        ({"quantization_config": "awq"}, "quantization_config is 'awq'; it must be an object"),
        ({"quantization_config": {"quant_method": "awq", "bits": "4"}}, "quantization_config.bits is '4'"),
        ({"model_type": "gemma3", "text_config": {"hidden_size": -1}}, "text_config.hidden_size is -1"),
    ],
)
def test_keys_that_are_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in message(tmp_path, json.dumps({**LLAMA, **changes}))


def test_a_missing_size_of_an_unknown_type_names_the_keys_and_the_nearest(tmp_path: Path) -> None:
    keys = {k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}
    text = message(tmp_path, json.dumps({**keys, "model_type": "new", "num_hidden_layer": 32}))
    assert "no layers found; looked for num_hidden_layers, n_layer" in text
    assert "nearest key in the file: num_hidden_layer" in text


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"a folder without config\.json"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lama-3-8b", "did you mean llama-3-8b"),
        ("no/such.json", "no such file"),
        ("", "no name"),
        ("x" * 5000, "no path"),
    ],
)
def test_names_that_lead_nowhere(name: str, said: str) -> None:
    with pytest.raises(ModelError) as error:
        load_model(name)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**50) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=6,
)
CONFIGS = [
    json.loads(p.read_text(encoding="utf-8"))
    for p in sorted((Path(__file__).parent / "data/configs").glob("*.json"))
]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_value_gives_figures_or_one_line(data: st.DataObject) -> None:
    keys = dict(data.draw(st.sampled_from(CONFIGS)))
    keys[data.draw(st.sampled_from(sorted(keys)))] = data.draw(ANYTHING)
    outcome: Exception | None = None
    figures: dict[str, Any] = {}
    try:
        figures = describe(build(keys, "m", "config.json"))
    except ModelError as error:
        outcome = error
    if outcome is None:
        assert figures["model"]["parameters"] > 0
        assert json.dumps(figures, allow_nan=False)
    else:
        assert str(outcome).startswith("config.json: ")
        assert "\n" not in str(outcome)
