"""Reads Hugging Face config.json files: a Model of layers and weights, and what it takes in memory."""

from __future__ import annotations

from roofcalc.hf.describe import describe, layer_shape
from roofcalc.hf.memory import (
    active_parameters,
    expert_bytes,
    index_bytes_per_token,
    kv_bytes,
    kv_bytes_per_token,
    kv_growth_per_token,
    kv_window_bytes,
    parameters,
    parts,
    state_bytes,
    touched_experts,
    weight_bytes,
)
from roofcalc.hf.model import Attention, Layer, Mlp, Model, ModelError, Quantisation, State, Weight
from roofcalc.hf.presets import load_model, preset_names, preset_source

__all__ = [
    "Attention",
    "Layer",
    "Mlp",
    "Model",
    "ModelError",
    "Quantisation",
    "State",
    "Weight",
    "active_parameters",
    "describe",
    "expert_bytes",
    "index_bytes_per_token",
    "kv_bytes",
    "kv_bytes_per_token",
    "kv_growth_per_token",
    "kv_window_bytes",
    "layer_shape",
    "load_model",
    "parameters",
    "parts",
    "preset_names",
    "preset_source",
    "state_bytes",
    "touched_experts",
    "weight_bytes",
]
