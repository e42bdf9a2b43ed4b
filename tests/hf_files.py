"""What the tests of config.json share: Llama-3-8B's keys, and a model read from them with changes."""

from __future__ import annotations

from typing import Any

from roofcalc.hf import Model
from roofcalc.hf.build import build

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def read(**changes: Any) -> Model:
    """Llama-3-8B with some keys changed or added."""
    return build({**LLAMA, **changes}, "model", "config.json")
