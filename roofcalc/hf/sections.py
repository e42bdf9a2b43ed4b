"""Finds the section of a config.json that describes the language model, and opens it as Keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofcalc.hf.families import class_defaults, class_of, known_types
from roofcalc.hf.keys import Keys, shown
from roofcalc.hf.model import ModelError
from roofcalc.hf.names import NAMES

TEXT = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "text_model_config",
    "language_model_config",
)
INSIDE = ("attn_config", "ffn_config", "ssm_cfg", "attn_cfg")
"""Objects whose keys belong to the same layer as those around them (DBRX, MPT, the first Mamba files)."""

OUTER = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "compression_config")


def open_config(data: Any, file: str) -> tuple[Keys, Keys]:
    """The language model's keys and the whole file's (the same where nothing is nested).

    Raises ModelError where the file is no object, or neither names a model type nor any size.
    """
    if not isinstance(data, Mapping):
        raise ModelError(f"{file}: {shown(data)} at the top; a config.json holds one object")
    kind = model_type(data, file)
    outer = _keys(data, file, kind)
    name = next((n for n in TEXT if isinstance(data.get(n), Mapping)), "")
    if not name and "/text_config" in outer.defaults and not has_sizes(data):
        name = "text_config"
    if not name or (not data.get(name) and has_sizes(data)):
        flat = str(outer.defaults.get("/text_config", kind))
        # A type whose text sizes once stood at the top (Qwen2-VL) keeps its text class's defaults.
        return _keys(inlined(data, file), file, flat), outer
    nested = outer.section(name)
    inner = str(nested.get("model_type") or outer.defaults.get(f"/{name}") or model_type(nested, file))
    if any(isinstance(nested.get(n), Mapping) for n in TEXT) and not has_sizes(nested):
        text, _ = open_config({"model_type": inner, **nested}, file)
        return text, outer
    return _keys(inlined(nested, file), file, inner, f"{name}."), outer


def _keys(given: Mapping[str, Any], file: str, kind: str, prefix: str = "") -> Keys:
    return Keys(given, class_defaults(kind), file, kind, prefix, class_of(kind))


def inlined(data: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The keys with those of attn_config and the like raised one level."""
    merged = dict(data)
    for name in INSIDE:
        if data.get(name) is not None and not isinstance(data[name], Mapping):
            raise ModelError(f"{file}: {name} is {shown(data[name])}; it must be an object")
        if data.get(name):
            merged |= {
                k: v for k, v in data[name].items() if k != "model_type" and (v is not None or k not in data)
            }
    return merged


def has_sizes(data: Mapping[str, Any]) -> bool:
    """Whether layers and width stand at this level."""
    return any(n in data for n in NAMES["layers"]) and any(n in data for n in NAMES["hidden"])


def model_type(data: Mapping[str, Any], file: str) -> str:
    """The file's model_type; one not known or absent is guessed from `architectures`."""
    kind = data.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise ModelError(f"{file}: model_type is {shown(kind)}; it must be a name")
    if kind and kind in known_types():
        return kind
    if not kind and isinstance(data.get("ssm_cfg"), Mapping):
        return "mamba2_ssm" if data["ssm_cfg"].get("layer") == "Mamba2" else "mamba_ssm"
    architectures = data.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    stem = str(first).split("For")[0].removesuffix("LMHeadModel").removesuffix("Model").lower()
    by_stem = {name.replace("_", "").replace("-", "").lower(): name for name in sorted(known_types())}
    return by_stem.get(stem) or kind or stem or "unknown"
