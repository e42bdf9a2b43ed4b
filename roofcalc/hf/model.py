"""The values that reading a config.json produces: a model as layers of mixers, MLPs and weights.

All of them are frozen. Sizes are in elements; a matrix is `inputs` x `outputs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofcalc.core import RoofcalcError

Part = Literal[
    "embedding", "attention", "mlp", "experts", "router", "norms", "lm_head", "ssm", "vision", "other"
]
PARTS: tuple[Part, ...] = (
    "embedding",
    "attention",
    "mlp",
    "experts",
    "router",
    "norms",
    "lm_head",
    "ssm",
    "vision",
    "other",
)
Role = Literal["linear", "table", "vector"]
AttentionKind = Literal["attention", "mla", "cross"]
StateKind = Literal["mamba", "mamba2", "delta", "linear", "conv", "recurrent", "rwkv", "mlstm"]


class ModelError(RoofcalcError):
    """A config.json that cannot be read as a model. Its one line names the file and the key."""


@dataclass(frozen=True)
class Weight:
    """One stored matrix, table or vector.

    `copies` equal ones are stored (experts), of which a token uses `used`. Weights with the same
    non-empty `shared` are one tensor in memory (a tied head, Zamba2's shared block).
    """

    name: str
    part: Part
    inputs: int
    outputs: int
    role: Role = "linear"
    copies: int = 1
    used: int = 1
    shared: str = ""

    @property
    def elements(self) -> int:
        return self.inputs * self.outputs * self.copies

    @property
    def active(self) -> int:
        """Elements that one token's forward pass uses."""
        return self.inputs * self.outputs * self.used


Weights = tuple[Weight, ...]


def linear(
    name: str, part: Part, inputs: int, outputs: int, bias: bool = False, copies: int = 1, used: int = 1
) -> Weights:
    """A linear layer's matrix and, with `bias`, its bias vector."""
    matrix = Weight(name, part, inputs, outputs, "linear", copies, used)
    return (matrix, *(vector(f"{name}.bias", part, outputs, copies, used) if bias else ()))


def vector(name: str, part: Part, elements: int, copies: int = 1, used: int = 1) -> Weights:
    """A vector (bias, norm, gate), or nothing where it has no elements."""
    return (Weight(name, part, 1, elements, "vector", copies, used),) if elements else ()


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Softmax attention of one layer.

    `head_dim` is that of queries and keys, `v_head_dim` that of values; for `mla` head_dim is
    nope + rope (the expanded form) and `kv_lora_rank` + `rope_dim` numbers are cached per token.
    `inputs` is the width that Q, K and V are projected from. `window` counts the keys that a query
    sees, itself included. `owns_cache` is False where an earlier layer's K and V are read again.
    """

    kind: AttentionKind = "attention"
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    inputs: int
    window: int | None = None
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    rope_dim: int | None = None
    index_heads: int | None = None
    index_dim: int | None = None
    index_topk: int | None = None
    owns_cache: bool = True
    values_are_keys: bool = False

    @property
    def cached(self) -> int:
        """Numbers that this layer adds to the KV cache per token (none for cross-attention)."""
        if self.kind == "cross" or not self.owns_cache:
            return 0
        if self.kind == "mla":
            return (self.kv_lora_rank or 0) + (self.rope_dim or 0)
        return self.kv_heads * (self.head_dim + self.v_head_dim)


@dataclass(frozen=True, kw_only=True)
class State:
    """A mixer whose memory does not grow with the context: SSM, linear attention, convolution.

    `inner` channels in `heads` heads, each with `state` numbers; `groups` share B and C (Mamba-2) or
    keys (delta rule). `recurrent` and `conv` are the numbers that one sequence keeps in this layer:
    the recurrent state (held in fp32) and the last `kernel` inputs of the convolution (in bf16).
    """

    kind: StateKind
    inner: int
    state: int
    heads: int
    groups: int
    kernel: int
    dt_rank: int | None = None
    recurrent: int
    conv: int


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """A dense MLP (`experts` 0) or a mixture: `active` of `experts` of width `intermediate`, plus
    an always-active part of width `shared`. `gated` has three matrices, else two."""

    intermediate: int
    gated: bool
    experts: int = 0
    active: int = 0
    shared: int = 0

    @property
    def kind(self) -> Literal["dense", "moe"]:
        return "moe" if self.experts else "dense"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One decoder layer: attention, a state mixer, both (Falcon-H1, Zamba2) or neither, and an MLP.

    `parallel` layers feed attention and MLP from one norm and add both. `norms` counts norms of the
    hidden width.
    """

    attention: Attention | None = None
    state: State | None = None
    mlp: Mlp | None = None
    norms: int = 2
    parallel: bool = False
    weights: Weights = ()

    @property
    def kind(self) -> str:
        """`attention`, `mla`, `cross`, a state's kind, `hybrid` for attention and state, or `none`."""
        if self.attention and self.state:
            return "hybrid"
        mixer = self.attention or self.state
        return mixer.kind if mixer else "none"


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """How weights are stored: `method` as the file names it, `bits` per number of a quantised linear
    layer and `overhead` bits per number for scales and zeros. `skipped` are patterns of module names
    that keep the declared dtype; `only_layers` leaves embedding and head alone; `only_experts` all
    but the experts."""

    method: str
    bits: float
    overhead: float
    skipped: tuple[str, ...] = ()
    only_layers: bool = True
    only_experts: bool = False
    row_bits: int = 0
    block: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as its config.json describes it.

    `weights` are those outside the layers. `sublayers` of `layers` make one layer of the file
    (LongCat-Flash). `dtype` is that of unquantised weights. `sources` says for each figure which key gave
    it, `defaulted` which came from the model type's configuration class, `notes` what a reader should know.
    """

    name: str
    model_type: str
    hidden: int
    vocab: int
    tied: bool
    dtype: str
    layers: tuple[Layer, ...]
    weights: Weights
    quantisation: Quantisation | None = None
    context: int | None = None
    encoder: bool = False
    sublayers: int = 1
    sources: Mapping[str, str] = field(default_factory=dict)
    defaulted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def attentions(self) -> tuple[Attention, ...]:
        return tuple(layer.attention for layer in self.layers if layer.attention)

    def named_weights(self) -> Iterator[tuple[str, Weight]]:
        """Every weight once under its full module name; a shared tensor under its first name."""
        seen: set[str] = set()
        everything = [("", w) for w in self.weights]
        everything += [
            (f"model.layers.{i}.", w) for i, layer in enumerate(self.layers) for w in layer.weights
        ]
        for prefix, weight in everything:
            if weight.shared not in seen:
                yield prefix + weight.name, weight
            if weight.shared:
                seen.add(weight.shared)
