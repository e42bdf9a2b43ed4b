"""What a model type's code fixes: traits per type, and the defaults of its configuration class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from roofcalc.hf.keys import Keys

Switch = bool | str
"""True, false, or the name of the key that says so."""

ANY_BIAS = (
    "attention_bias",
    "qkv_bias",
    "add_qkv_bias",
    "use_qkv_bias",
    "use_bias",
    "bias",
    "add_bias_linear",
)
ANY_MLP_BIAS = ("mlp_bias", "use_bias", "bias", "add_bias_linear")


@dataclass(frozen=True, kw_only=True)
class Traits:
    """One type's habits. The defaults are those of a Llama-like decoder layer.

    norm: `rms`, `layer` (with a bias) or `none` (no weights); norms: of the hidden width per layer.
    parallel: attention and MLP read the same input; single_norm_if: the switch that leaves one norm then.
    qk_norm: none, `head` (head_dim each), `head_layer` (with bias), `heads` (each head its own) or `all`
    (the whole width). positions: the key of a learned table. state: the mixer of layers without attention.
    window: `all` layers where the key is set, `pattern` (every `period`-th layer is full), `upper` (from
    max_window_layers on), `use_flag` (only with use_sliding_window), `chunked`, `never`, or `auto` for a
    type that is not known. mlp_halves: the file's width counts both halves of a gated MLP. mlp_factor:
    width / hidden where no key says it. out_gate: `wide_q` (queries twice as wide), `separate`,
    `per_head`. known: the type has a class or an entry here; read: it has an entry.
    """

    norm: str = "rms"
    norms: int = 2
    parallel: Switch = False
    single_norm_if: Switch = False
    qk_norm: str = ""
    qk_norm_if: Switch = True
    qkv_bias: Switch = "attention_bias"
    out_bias: Switch = "attention_bias"
    mla_bias: Switch = False
    mlp_bias: Switch = "mlp_bias"
    gated: bool = True
    mlp_halves: bool = False
    mlp_factor: int = 0
    positions: str = ""
    position_offset: int = 0
    embedding_norm: bool = False
    final_norm: Switch = True
    head_bias: Switch = False
    window: str = "auto"
    window_list: str = ""
    period: int = 0
    state: str = ""
    ssm_norms: bool = False
    everywhere: str = ""
    swa_sizes: bool = False
    sinks: Switch = False
    out_gate: str = ""
    router_bias: bool = False
    expert_bias: bool = False
    correction: bool = False
    shared_gate: bool = False
    moe_drops_dense: bool = False
    dense_beside_experts: Switch = False
    sub_norms: bool = False
    extra_per_layer: int = 0
    sublayers: int = 1
    ffn_key: str = ""
    encoder: bool = False
    known: bool = True
    read: bool = True

    def on(self, name: str, keys: Keys) -> bool:
        """Whether a switch is on for these keys."""
        value = getattr(self, name)
        if isinstance(value, bool):
            return value
        if self.known:
            return keys.flag(value)
        names = ANY_BIAS if name in ("qkv_bias", "out_bias") else ANY_MLP_BIAS
        return any(keys.flag(key) for key in names if isinstance(keys.given.get(key), bool))


@cache
def _families() -> dict[str, dict[str, Any]]:
    text = (files("roofcalc.hf") / "data" / "families.yaml").read_text(encoding="utf-8")
    return dict(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@cache
def _classes() -> dict[str, dict[str, Any]]:
    text = (files("roofcalc.hf") / "data" / "class_defaults.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def known_types() -> frozenset[str]:
    """Every model type with traits or a configuration class."""
    return frozenset(_families()) | frozenset(_classes())


def traits(model_type: str) -> Traits:
    """The traits of a type; an unknown one gets a Llama-like layer with `known` off."""
    names = {f.name for f in fields(Traits)}
    entry: dict[str, Any] = {}
    chain = _chain(model_type)
    for name in reversed(chain):
        entry |= _families().get(name, {})
    read = any(name in _families() for name in chain)
    known = read or any(name in _classes() for name in chain)
    return Traits(**{k: v for k, v in entry.items() if k in names}, known=known, read=read)


def class_defaults(model_type: str) -> Mapping[str, Any]:
    """The defaults of the type's configuration class (transformers 5.24.0, read), {} for one not known."""
    merged: dict[str, Any] = {}
    for name in _chain(model_type):
        merged = _families().get(name, {}).get("defaults", {}) | merged
        if name in _classes():
            # A type with a class of its own takes none of the defaults of the type that it is like.
            return _classes()[name] | merged
    return merged


def class_of(model_type: str) -> str:
    """The type whose configuration class gives the defaults: its own, or that of a type that it is like."""
    return next((name for name in _chain(model_type) if name in _classes()), model_type)


def _chain(model_type: str) -> list[str]:
    """The type and those that it is like, nearest first."""
    chain = [model_type]
    while (like := _families().get(chain[-1], {}).get("like")) and like not in chain:
        chain.append(like)
    return chain
