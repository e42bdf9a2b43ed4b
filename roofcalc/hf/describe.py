"""A model as plain values for a reader or for JSON, and the attention shape of one of its layers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from roofcalc.hf.memory import (
    active_parameters,
    index_bytes_per_token,
    kv_bytes_per_token,
    kv_growth_per_token,
    kv_window_bytes,
    parameters,
    parts,
    state_bytes,
    weight_bytes,
)
from roofcalc.hf.model import Attention, Layer, Mlp, Model, ModelError


def describe(model: Model, kv_dtype: str | None = None) -> dict[str, Any]:
    """Everything known of a model, ready for JSON (schema 1): sizes, parameters, cache, state, sources.

    A figure that does not apply is None. `heads` to `window` are those of the most common attention
    layer; `layer_groups` has every kind. KV bytes are per token over all layers, for `kv_dtype` (bf16).
    """
    kv = kv_dtype or "bf16"
    typical = _typical(model)
    recurrent, conv = state_bytes(model)
    mixture = next((layer.mlp for layer in model.layers if layer.mlp and layer.mlp.experts), None)
    counts = parts(model)
    notes = list(model.notes)
    if model.encoder:
        notes.append("an encoder keeps no KV cache")
    elif not model.attentions:
        notes.append("no attention layer: no KV cache, the state per sequence is fixed")
    figures = {
        "name": model.name,
        "type": model.model_type,
        "layers": _count(model),
        "attention_layers": len(model.attentions),
        "heads": typical.heads if typical else None,
        "kv_heads": typical.kv_heads if typical else None,
        "head_dim": typical.head_dim if typical else None,
        "v_head_dim": typical.v_head_dim if typical else None,
        "window": typical.window if typical else None,
        "windows": sorted({a.window for a in model.attentions if a.window}) or None,
        "attention": typical.kind if typical else None,
        "q_lora_rank": typical.q_lora_rank if typical else None,
        "kv_lora_rank": typical.kv_lora_rank if typical else None,
        "rope_dim": typical.rope_dim if typical else None,
        "hidden": model.hidden,
        "intermediate": _width(model),
        "experts": _experts(mixture) if mixture else None,
        "vocab": model.vocab,
        "tied": model.tied,
        "dtype": model.dtype,
        "context": model.context,
        "parameters": parameters(model),
        "text_parameters": parameters(model) - counts["vision"],
        "active_parameters": active_parameters(model),
        "active_parameters_without_embedding": active_parameters(model, embedding=False),
        "parts": counts,
        "weight_bytes": weight_bytes(model),
        "quantisation": _quantisation(model),
        "kv_dtype": kv,
        "kv_bytes_per_token": kv_bytes_per_token(model, kv),
        "kv_bytes_per_token_beyond_window": kv_growth_per_token(model, kv),
        "kv_window_bytes_per_sequence": kv_window_bytes(model, kv),
        "index_bytes_per_token": index_bytes_per_token(model) or None,
        "state_bytes_per_sequence": recurrent + conv,
        "ssm_state_bytes_per_sequence": recurrent,
        "conv_state_bytes_per_sequence": conv,
        "layer_groups": _groups(model),
        "sources": dict(model.sources),
        "defaulted": list(model.defaulted),
        "notes": notes,
    }
    return {"schema": 1, "model": figures}


def _count(model: Model) -> int:
    """Layers as the file counts them."""
    return len(model.layers) // model.sublayers


def _typical(model: Model) -> Attention | None:
    """The most common attention among the layers, the earlier one where two are as common."""
    own = [a for a in model.attentions if a.kind != "cross"] or list(model.attentions)
    return Counter(own).most_common(1)[0][0] if own else None


def _width(model: Model) -> int | None:
    """The dense MLP's most common width, else the experts'."""
    dense = Counter(layer.mlp.intermediate for layer in model.layers if layer.mlp and not layer.mlp.experts)
    routed = Counter(layer.mlp.intermediate for layer in model.layers if layer.mlp)
    return (dense or routed).most_common(1)[0][0] if routed else None


def _experts(mlp: Mlp) -> dict[str, int]:
    return {"count": mlp.experts, "active": mlp.active, "width": mlp.intermediate, "shared_width": mlp.shared}


def _quantisation(model: Model) -> dict[str, Any] | None:
    q = model.quantisation
    if q is None:
        return None
    return {
        "method": q.method,
        "bits": q.bits,
        "bits_with_scales": q.bits + q.overhead,
        "skipped": list(q.skipped),
    }


def _groups(model: Model) -> list[dict[str, Any]]:
    """Like layers together: which they are and what they hold, in the order of their first layer."""
    groups: dict[Any, list[int]] = {}
    for i, layer in enumerate(model.layers):
        groups.setdefault((layer.kind, layer.attention, layer.state, layer.mlp), []).append(i)
    return [_group(model.layers[found[0]], found) for found in groups.values()]


def _group(layer: Layer, found: list[int]) -> dict[str, Any]:
    a, s, m = layer.attention, layer.state, layer.mlp
    return {
        "kind": layer.kind,
        "count": len(found),
        "layers": found,
        "heads": a.heads if a else None,
        "kv_heads": a.kv_heads if a else None,
        "head_dim": a.head_dim if a else None,
        "v_head_dim": a.v_head_dim if a else None,
        "window": a.window if a else None,
        "kv_lora_rank": a.kv_lora_rank if a else None,
        "rope_dim": a.rope_dim if a else None,
        "state": {
            "kind": s.kind,
            "inner": s.inner,
            "state": s.state,
            "heads": s.heads,
            "groups": s.groups,
            "kernel": s.kernel,
            "numbers": s.recurrent,
        }
        if s
        else None,
        "mlp": {
            "kind": m.kind,
            "width": m.intermediate,
            "gated": m.gated,
            "experts": m.experts,
            "active": m.active,
            "shared_width": m.shared,
        }
        if m
        else None,
    }


def layer_shape(model: Model, layer: int | None = None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The attention shape of layer number `layer` (from 0), or of the most common attention layer.

    Returns heads, kv_heads, d, dv, window, kind and, for `mla`, kv_lora_rank and rope_dim with d and dv of
    the expanded form (kv_heads = heads); the notes say what was chosen. Raises ModelError where the
    number is out of range or the layer has no attention.
    """
    if not model.attentions:
        raise ModelError(f"{model.name} has no attention layer; its layers are {_kinds(model)}")
    if layer is None:
        return _most_common(model)
    if not 0 <= layer < len(model.layers):
        raise ModelError(
            f"--layer {layer} is not in {model.name}; its layers are 0 to {len(model.layers) - 1}"
        )
    attention = model.layers[layer].attention
    if attention is None:
        attending = [i for i, found in enumerate(model.layers) if found.attention]
        nearest = min(attending, key=lambda i: abs(i - layer))
        raise ModelError(
            f"--layer {layer} of {model.name} is {model.layers[layer].kind}; "
            f"the nearest with attention is {nearest}"
        )
    return _shape(attention), ()


def _most_common(model: Model) -> tuple[dict[str, Any], tuple[str, ...]]:
    typical = _typical(model)
    assert typical is not None
    found = [i for i, layer in enumerate(model.layers) if layer.attention == typical]
    notes: tuple[str, ...] = ()
    if len(found) < len(model.layers):
        notes = (
            f"{model.name}: layer {found[0]} stands for {len(found)} of {len(model.layers)} layers "
            f"({_kinds(model)}); --layer N takes another",
        )
    return _shape(typical), notes


def _shape(a: Attention) -> dict[str, Any]:
    latent = {"kv_lora_rank": a.kv_lora_rank, "rope_dim": a.rope_dim}
    return {
        "heads": a.heads,
        "kv_heads": a.heads if a.kind == "mla" else a.kv_heads,
        "d": a.head_dim,
        "dv": a.v_head_dim,
        "window": a.window,
        "kind": a.kind,
        **latent,
    }


def _kinds(model: Model) -> str:
    """For example: 21 attention (window 4096), 21 attention."""
    words = Counter(
        f"{layer.kind} (window {layer.attention.window})"
        if layer.attention and layer.attention.window
        else layer.kind
        for layer in model.layers
    )
    return ", ".join(f"{count} {word}" for word, count in words.items())
