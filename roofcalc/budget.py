"""What a step holds in a GPU's memory, and the largest batch and context that fit."""

from __future__ import annotations

from dataclasses import dataclass

from roofcalc.core import Shape
from roofcalc.hf import Model, state_bytes, weight_bytes
from roofcalc.kvcache import model_cache

LONGEST = 2**40


@dataclass(frozen=True)
class Budget:
    """Bytes of weights, of the KV cache and fixed states of all sequences, and of the activations of the
    largest kernel, against `capacity`. `largest_batch` holds at the asked context, `largest_context` at the
    asked batch, in tokens a sequence; None where nothing that grows is cached."""

    weights: int
    kv: int
    state: int
    intermediates: int
    capacity: int
    largest_batch: int | None
    largest_context: int | None

    @property
    def free(self) -> int:
        """Bytes left; below 0 what is missing."""
        return self.capacity - self.weights - self.kv - self.state - self.intermediates

    @property
    def fits(self) -> bool:
        return self.free >= 0


def kv_held(model: Model, S: int, kv_dtype: str) -> int:
    """Bytes that one sequence of S tokens keeps in all layers, the scales of an integer cache included.

    A window keeps its last keys only; an encoder keeps none.
    """
    if model.encoder:
        return 0
    cache = model_cache(model, Shape.of(T=1, S=S, dtype=model.dtype, kv_dtype=kv_dtype))
    return int(cache.per_sequence - cache.state)


def budget(model: Model, *, batch: int, S: int, kv_dtype: str, intermediates: int, capacity: int) -> Budget:
    """The memory of `batch` sequences of S tokens. `intermediates` are the activations of that batch."""
    weights, state = weight_bytes(model), sum(state_bytes(model))
    kv = kv_held(model, S, kv_dtype)
    room = capacity - weights
    each = kv + state + -(-intermediates // batch)
    left = room - intermediates - batch * state
    return Budget(
        weights, batch * kv, batch * state, intermediates, capacity,
        max(0, room // each) if each else None, _longest(model, kv_dtype, left // batch),
    )  # fmt: skip


def _longest(model: Model, kv_dtype: str, room: int) -> int | None:
    """The most tokens whose cache fits `room` bytes, by bisection; None where the cache stops growing before."""
    if kv_held(model, LONGEST, kv_dtype) <= max(room, 0):
        return None
    low, high = 0, LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kv_held(model, middle, kv_dtype) <= room else (low, middle)
    return low
