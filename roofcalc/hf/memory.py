"""What a model takes: parameters by part, bytes of weights, KV cache and state. Exact integer counts."""

from __future__ import annotations

from collections.abc import Iterator

from roofcalc.core import BITS, KV_DTYPES
from roofcalc.hf.model import PARTS, Layer, Model, ModelError, Weight
from roofcalc.hf.quantisation import quantised, weight_bits

CONV_BITS, STATE_BITS = BITS["bf16"], BITS["fp32"]
INDEX_BYTES_A_KEY = 4
"""The fp32 scale beside each fp8 key of DeepSeek-V3.2's indexer (TensorRT-LLM issue 16707)."""


def parts(model: Model) -> dict[str, int]:
    """Parameters by part; a shared tensor counts once, under its first use."""
    found = dict.fromkeys(PARTS, 0)
    for _, weight in model.named_weights():
        found[weight.part] += weight.elements
    return {str(part): count for part, count in found.items()}


def parameters(model: Model) -> int:
    """All stored parameters, each once."""
    return sum(weight.elements for _, weight in model.named_weights())


def active_parameters(model: Model, embedding: bool = True) -> int:
    """Parameters that one token's forward pass uses: of the experts only the chosen ones.

    Without `embedding` the input table is left out, of which a token reads one row; a tied table stays,
    since the head reads all of it. The vision tower never counts.
    """
    used = sum(w.active for _, w in model.named_weights() if w.part != "vision")
    tables = [w for w in model.weights if w.part == "embedding" and not w.shared]
    return used if embedding else used - sum(w.active for w in tables)


def weight_bytes(model: Model) -> int:
    """Bytes of all weights as stored: quantised ones with their scales, the rest in the model's dtype."""
    bits = 0
    for name, weight in model.named_weights():
        bits += stored_bits(model, name, weight)
    return -(-bits // 8)


def stored_bits(model: Model, name: str, weight: Weight) -> int:
    """Bits of one weight, whose full module name is `name`."""
    if model.quantisation and quantised(model.quantisation, name, weight):
        return weight_bits(model.quantisation, weight)
    return weight.elements * BITS[model.dtype]


def expert_bytes(model: Model) -> int:
    """Bytes of the routed experts, of which a step reads the touched part."""
    return -(-sum(stored_bits(model, n, w) for n, w in model.named_weights() if w.part == "experts") // 8)


def touched_experts(experts: int, active: int, tokens: float) -> float:
    """Experts of one layer that at least one of `tokens` tokens picks, in expectation.

    E (1 - (1 - k/E)^tokens) for k of E experts picked uniformly and independently by each token.
    Raises ModelError where active is not between 0 and experts or tokens is negative.
    """
    if experts < 1 or not 0 <= active <= experts or tokens < 0:
        raise ModelError(
            f"{active} of {experts} experts for {tokens} tokens; needed: 0 <= active <= experts, tokens >= 0"
        )
    return experts * (1 - float((1 - active / experts) ** tokens))


def _bits(kv_dtype: str) -> int:
    if kv_dtype not in KV_DTYPES:
        raise ModelError(f"--kv-dtype {kv_dtype!r} is not known; choose from {', '.join(KV_DTYPES)}")
    return BITS[kv_dtype]


def _caches(model: Model) -> Iterator[tuple[int, int | None]]:
    """Numbers per token and window of every KV cache that the model keeps (none for an encoder)."""
    if not model.encoder:
        yield from ((a.cached, a.window) for a in model.attentions if a.cached)


def kv_bytes_per_token(model: Model, kv_dtype: str = "bf16") -> int:
    """KV bytes that one token of one sequence adds over all layers, as a cache without windows allocates."""
    return -(-sum(cached for cached, _ in _caches(model)) * _bits(kv_dtype) // 8)


def kv_growth_per_token(model: Model, kv_dtype: str = "bf16") -> int:
    """KV bytes per token that still add up once the context is past every window."""
    return -(-sum(cached for cached, window in _caches(model) if window is None) * _bits(kv_dtype) // 8)


def kv_window_bytes(model: Model, kv_dtype: str = "bf16") -> int:
    """KV bytes per sequence of the windowed layers once their windows are full."""
    return -(-sum(cached * window for cached, window in _caches(model) if window) * _bits(kv_dtype) // 8)


def kv_bytes(model: Model, tokens: int, kv_dtype: str = "bf16") -> int:
    """KV bytes of one sequence of `tokens` tokens where windowed layers keep only their window."""
    numbers = sum(
        cached * (tokens if window is None else min(tokens, window)) for cached, window in _caches(model)
    )
    return -(-numbers * _bits(kv_dtype) // 8)


def index_bytes_per_token(model: Model) -> int:
    """Bytes per token that sparse-attention indexers cache: an fp8 key and its scale in each layer."""
    return sum(a.index_dim + INDEX_BYTES_A_KEY for a in model.attentions if a.index_dim)


def state_bytes(model: Model) -> tuple[int, int]:
    """Bytes per sequence of the recurrent states (fp32) and of the convolutions' last inputs (bf16)."""
    states = [layer.state for layer in model.layers if layer.state]
    return sum(s.recurrent for s in states) * STATE_BITS // 8, sum(s.conv for s in states) * CONV_BITS // 8


def layer_parameters(layer: Layer) -> int:
    """Parameters of one layer, shared ones included."""
    return sum(weight.elements for weight in layer.weights)
