"""A whole decode step of a model, kernel by kernel, or the prefill of the same model.

Per layer RMSNorm, QKV, RoPE on Q and on K, cache append, attention (any decode variant), output
projection, residual, RMSNorm, gate and up, SiLU·mul, down, residual; before the layers the embedding rows,
after them the final norm and the head. Sampling is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from roofcalc.core import Kernel, Limits, Plan, RoofcalcError, Shape
from roofcalc.models.step_ends import around
from roofcalc.models.step_layers import layer_kernels
from roofcalc.models.step_mixers import NO_ROTATION, Tokens, attention_shape
from roofcalc.models.step_weights import Held, Reader, Setting
from roofcalc.numeric import Num, maximum

if TYPE_CHECKING:
    from roofcalc.hf import Layer, Model, Weight

Fusion = Literal["none", "standard", "all"]
FUSIONS: tuple[Fusion, ...] = ("none", "standard", "all")
GROUPS = ("weights", "attention", "elementwise", "head")
SOURCES: dict[Fusion, str] = {
    "none": "the model's config.json; launches as eager PyTorch makes them",
    "standard": "the model's config.json; launches as serving engines and torch.compile make them",
    "all": "the model's config.json; every elementwise step in the product beside it",
}
SAMPLING = "sampling is left out: it reads the logits once more"
PREFILL_HEAD = "logits are made for the last token of each sequence only"
CACHED = ("K", "V", "latent", "state", "conv_state")


class StepError(RoofcalcError):
    """A step that a model does not have."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What is asked of a model: a decode step of `batch` sequences with `S` cached keys each, the new one
    among them, or with `prefill` the pass over that many tokens (S then counts those before them too; 0 is
    none before). `dtype` is that of activations (the model's unless given), `narrow` that of products with
    weights of 8 bits (dtype: they are unpacked on chip)."""

    batch: int = 1
    S: int = 0
    prefill: int | None = None
    variant: str = "split-kv"
    fusion: Fusion = "standard"
    dtype: str | None = None
    kv_dtype: str | None = None
    narrow: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def step(model: Model, ask: Ask, limits: Limits, reader: Reader) -> Plan:
    """The kernels of a step; like layers are one kernel with as many launches.

    Every kernel has a group: `weights`, `attention` (with the cache append), `elementwise`, `head`.
    `fusion` `none` runs elementwise steps as eager PyTorch does, `standard` as serving engines do; `all`
    starts from `standard`, and `transform.fuse_step` joins its neighbours. `memory` is the most that the
    activations of one kernel take beside the residual stream. Raises StepError for an encoder's decode
    step, for sizes below 1, and VariantError for an unknown attention variant.
    """
    tokens, at = _setting(model, ask, limits, reader)
    rotates = model.model_type not in NO_ROTATION and not any(w.name == "model.embed_positions" for w in model.weights)
    outside = [Held(w, reader.bits(model, w.name, w)) for w in model.weights]
    before, after = around(outside, model.hidden, at, tokens)
    inside: list[Kernel] = []
    for (layer, bits), count in _like(model, reader).items():
        held = [Held(w, b) for w, b in zip(layer.weights, bits, strict=True)]
        kernels = layer_kernels(layer, held, model.hidden, at, tokens, rotates)
        inside += [replace(kernel, launches=kernel.launches * count) for kernel in kernels]
    kernels = (*before, *inside, *after)
    return Plan(
        _name(model, ask),
        _shape(model, at, tokens),
        kernels,
        SOURCES[ask.fusion],
        _notes(model, ask),
        activations(kernels),
    )


def _name(model: Model, ask: Ask) -> str:
    """What the plan is called: the attention variant, `mla` or the state's kind where no layer uses it."""
    mixers = {"mla" if a.kind == "mla" and ask.prefill is None else ask.variant for a in model.attentions}
    if mixers:
        return ask.variant if ask.variant in mixers else mixers.pop()
    return next((layer.state.kind for layer in model.layers if layer.state), ask.variant)


def _setting(model: Model, ask: Ask, limits: Limits, reader: Reader) -> tuple[Tokens, Setting]:
    prefill = ask.prefill is not None
    if model.encoder and not prefill:
        raise StepError(f"{model.name} is an encoder and makes no decode steps; --prefill N runs it over N tokens")
    T = ask.prefill if ask.prefill is not None else 1
    S = T if prefill and ask.S == 0 else ask.S
    if S < T:
        raise StepError(f"--S {S} is less than the {T} new tokens, which are among the cached ones")
    for name, size in (("batch", ask.batch), ("prefill", T), ("S", S)):
        if size < 1:
            raise StepError(f"--{name} is {size}; it must be at least 1")
    dtype = ask.dtype or model.dtype
    style: Literal["eager", "fused"] = "eager" if ask.fusion == "none" else "fused"
    tokens = Tokens(
        batch=ask.batch, T=T, S=S, kv_dtype=ask.kv_dtype or dtype, variant=ask.variant, options=ask.options,
        prefill=prefill, causal=not model.encoder, caches=not model.encoder, style=style,
    )  # fmt: skip
    return tokens, Setting(dtype, ask.narrow or dtype, ask.batch * T, limits, reader)


def _like(model: Model, reader: Reader) -> dict[tuple[Layer, tuple[int, ...]], int]:
    """Layers that cost the same, with their number, in the order of the first of each."""
    found: dict[tuple[Layer, tuple[int, ...]], int] = {}
    for i, layer in enumerate(model.layers):
        bits = tuple(reader.bits(model, f"model.layers.{i}.{w.name}", w) for w in layer.weights)
        key = (replace(layer, weights=tuple(_alone(w) for w in layer.weights)), bits)
        found[key] = found.get(key, 0) + 1
    return found


def _alone(weight: Weight) -> Weight:
    """A weight without the name that it shares: every use reads it again."""
    return replace(weight, shared="")


def _shape(model: Model, at: Setting, of: Tokens) -> Shape:
    """The most common attention layer stands for the model in the report's shape."""
    found = Counter(a for a in model.attentions if a.kind != "cross").most_common(1)
    if found:
        whole = replace(found[0][0], index_topk=None)
        return attention_shape(whole, at, of, len(model.layers))
    sizes: dict[str, Any] = {"heads": 1, "d": model.hidden}
    return Shape.of(
        T=of.T, S=of.S, batch=of.batch, dtype=at.dtype, kv_dtype=of.kv_dtype, layers=len(model.layers), **sizes
    )


def activations(kernels: tuple[Kernel, ...]) -> Num:
    """Bytes of the largest set of activations that one kernel reads and writes."""
    most: Num = 0
    for kernel in kernels:
        lines = {(a.tensor, a.mode): a.bytes for a in kernel.accesses if a.tier == "hbm" and is_activation(a.tensor)}
        most = maximum(most, sum(lines.values()))
    return most


def is_activation(tensor: str) -> bool:
    """Whether a ledger's tensor is neither a weight nor a part of the cache or a state."""
    return not (
        is_weight(tensor) or tensor in CACHED or tensor.endswith(("_scale", "_index")) or tensor == "latent_rope"
    )


def is_weight(tensor: str) -> bool:
    """Whether a ledger's tensor of a step is a stored weight, its scales included."""
    return tensor.startswith(("W_", "w_")) or tensor.rstrip("0123456789") == "E"


def _notes(model: Model, ask: Ask) -> tuple[str, ...]:
    kinds = Counter(_kind(layer) for layer in model.layers)
    said = [SAMPLING if ask.prefill is None else PREFILL_HEAD]
    if len(kinds) > 1:
        said.append(
            f"layers: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}; the shape is the commonest's"
        )
    if not model.attentions:
        said.append("no attention layer: heads and d of the shape stand for the hidden width")
    if any(a.kind == "cross" for a in model.attentions):
        said.append("cross-attention itself is left out: its keys are an image's, whose number no option gives")
    if any(w.part == "vision" for w in model.weights):
        said.append("the vision tower is held in memory and takes no part in the step")
    if any(layer.mlp and layer.mlp.experts for layer in model.layers):
        said.append("experts: E (1 - (1 - k/E)^tokens) of them are read, each token multiplies with k")
    return tuple(said)


def _kind(layer: Layer) -> str:
    window = layer.attention.window if layer.attention else None
    mlp = "" if layer.mlp is None else f" + {layer.mlp.kind}"
    return f"{layer.kind}{f' (window {window})' if window else ''}{mlp}"
