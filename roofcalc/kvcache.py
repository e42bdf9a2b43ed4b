"""The size of a key-value cache: bytes of a token, a sequence, a batch; what fits beside the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcalc.core import RoofcalcError, Shape, Tensor
from roofcalc.models.cache import at_least_one, cached, visible
from roofcalc.models.latent import LORA_RANK, ROPE_DIM, latent
from roofcalc.numeric import Num, ceil_div

if TYPE_CHECKING:
    from roofcalc.hf import Attention, Model

Arrays = Callable[[Shape], tuple[Tensor, ...]]


@dataclass(frozen=True)
class KvCache:
    """Bytes over all `layers` that cache: of one token, of the longest sequence, of the batch.

    With pages, a sequence and the batch hold whole ones. `growth` is what one more token of the longest
    sequence adds: nothing in a layer whose window is full, since its oldest token makes room. `state` is the
    part of a sequence that never grows (recurrent states).
    """

    per_token: Num
    per_sequence: Num
    batch: Num
    growth: Num
    layers: int
    state: Num = 0

    @property
    def endless(self) -> bool:
        """Whether every token costs the same, so that a memory holds a number of tokens."""
        return bool(self.growth == self.per_token > 0 and self.state == 0)


@dataclass(frozen=True)
class Fit:
    """Whether weights and cache fit a memory: bytes left (below 0: missing), and what the rest holds.

    `tokens` counts them over all sequences (None where a window or a state makes them unlike), `sequences`
    those as long as the longest.
    """

    fits: bool
    free: int
    tokens: int | None
    sequences: int


def kv_cache(shape: Shape, *, page_size: int | None = None, arrays: Arrays = cached) -> KvCache:
    """The cache of `shape`, in bytes over all its layers, scales of an integer cache included.

    `arrays` says what a layer caches (K and V of every KV head; `mla_arrays` for a latent). A window keeps
    the last `window` tokens, in every layer: for layers of several kinds add their caches.
    """
    size = 1 if page_size is None else page_size
    at_least_one("--page-size", size)
    per_token = shape.layers * sum(a.read().bytes for a in arrays(replace(shape, batch=1, S=1, lengths=None)))
    held = [ceil_div(_tokens(one), size) * size * per_token for one in shape.sequences]
    total = sum(held) if shape.lengths else shape.batch * held[0]
    longest = max(held) if shape.lengths else held[0]
    full = shape.window is not None and _tokens(shape) < shape.S
    return KvCache(per_token, longest, total, 0 if full else per_token, shape.layers)


def model_cache(
    model: Model, shape: Shape, *, page_size: int | None = None, expanded: bool = False
) -> KvCache:
    """What all layers of `model` keep for the sequences of `shape`, windows, latents and states included.

    Of `shape` the batch, the lengths and the dtype of the cache count. `expanded` caches K and V of every
    head in place of a latent; the keys of a sparse-attention indexer are part of its layer.
    """
    from roofcalc.hf import state_bytes

    kinds = Counter(a for a in model.attentions if a.cached)
    caches = [
        kv_cache(_of_layer(shape, a, count), page_size=page_size, arrays=_arrays(a, expanded))
        for a, count in kinds.items()
    ]
    state = sum(state_bytes(model))
    return KvCache(
        per_token=sum(c.per_token for c in caches),
        per_sequence=sum(c.per_sequence for c in caches) + state,
        batch=sum(c.batch for c in caches) + shape.batch * state,
        growth=sum(c.growth for c in caches),
        layers=sum(c.layers for c in caches),
        state=state,
    )


def _of_layer(shape: Shape, attention: Attention, layers: int) -> Shape:
    a = attention
    kv_heads = a.heads if a.kind == "mla" else a.kv_heads
    return replace(shape, kv_heads=kv_heads, d=a.head_dim, dv=a.v_head_dim, window=a.window, layers=layers)


def _arrays(attention: Attention, expanded: bool) -> Arrays:
    latent_only = attention.kind == "mla" and not expanded
    keys = mla_arrays(attention.kv_lora_rank or 0, attention.rope_dim or 0) if latent_only else cached
    if not attention.index_dim:
        return keys
    from roofcalc.hf.memory import INDEX_BYTES_A_KEY

    each = attention.index_dim + INDEX_BYTES_A_KEY
    return lambda one: (*keys(one), Tensor("index", one.batch * one.S * each, "int8", f"batch·S·{each}"))


def _tokens(shape: Shape) -> Num:
    """Tokens that a sequence keeps: those that its next query sees."""
    return visible(replace(shape, T=1)).S


def mla_arrays(rank: int = LORA_RANK, rope: int = ROPE_DIM) -> Arrays:
    """What a layer with latent attention caches: rank + rope numbers a token, for all heads together."""
    return lambda shape: latent(shape, rank, rope)


def fit(cache: KvCache, capacity: int, weights: int = 0) -> Fit:
    """Whether `cache` fits beside `weights` in a memory of `capacity`, all in bytes.

    Raises RoofcalcError for weights below 0.
    """
    if weights < 0:
        raise RoofcalcError(f"weights of {weights} B; they must be at least 0")
    room = capacity - weights
    free = int(room - cache.batch)
    tokens = max(0, int(room // cache.per_token)) if cache.endless else None
    return Fit(free >= 0, free, tokens, max(0, int(room // cache.per_sequence)))
