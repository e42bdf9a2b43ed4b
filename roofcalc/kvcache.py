"""The size of a key-value cache: bytes of a token, a sequence, a batch; what fits beside the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from roofcalc.core import RoofcalcError, Shape, Tensor
from roofcalc.models.cache import at_least_one, cached, visible
from roofcalc.models.latent import LORA_RANK, ROPE_DIM, latent
from roofcalc.numeric import Num, ceil_div

Arrays = Callable[[Shape], tuple[Tensor, ...]]


@dataclass(frozen=True)
class KvCache:
    """Bytes over all layers: of one token, of the longest sequence, of the batch.

    With pages, a sequence and the batch hold whole ones. `growth` is what one more token of a sequence
    adds: nothing once a window is full, since its oldest token makes room.
    """

    per_token: Num
    per_sequence: Num
    batch: Num
    growth: Num


@dataclass(frozen=True)
class Fit:
    """Whether weights and cache fit a memory: bytes left (below 0: missing), tokens that the rest holds."""

    fits: bool
    free: int
    tokens: int


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
    return KvCache(per_token, longest, total, 0 if full else per_token)


def _tokens(shape: Shape) -> Num:
    """Tokens that a sequence keeps: those that its next query sees."""
    return visible(replace(shape, T=1)).S


def mla_arrays(rank: int = LORA_RANK, rope: int = ROPE_DIM) -> Arrays:
    """What a layer with latent attention caches: rank + rope numbers a token, for all heads together."""
    return lambda shape: latent(shape, rank, rope)


def fit(cache: KvCache, capacity: int, weights: int = 0) -> Fit:
    """Whether `cache` fits beside `weights` in a memory of `capacity`, all in bytes.

    `tokens` is how many cached tokens fit beside the weights in all, over all sequences. Raises
    RoofcalcError for weights below 0.
    """
    if weights < 0:
        raise RoofcalcError(f"weights of {weights} B; they must be at least 0")
    room = capacity - weights
    free = int(room - cache.batch)
    return Fit(free >= 0, free, max(0, int(room // cache.per_token)))
