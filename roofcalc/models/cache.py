"""The key-value cache as arrays: what a decode step reads, its scales, the keys that a window leaves."""

from __future__ import annotations

from dataclasses import replace

from roofcalc.core import BITS, RoofcalcError, Shape, ShapeError, Tensor
from roofcalc.numeric import Num, everywhere, minimum

SCALED = ("int8", "int4")
"""Integer caches keep an fp16 scale and an fp16 zero for each token and head (LMDeploy, kv_quant.md:
asymmetric, per head, per token). An fp8 cache has one scale for a whole tensor (vLLM): no bytes."""


def checked(shape: Shape) -> Shape:
    """`shape`, if the T new tokens are among its S cached ones in every sequence. Raises ShapeError."""
    for one in shape.sequences:
        if not everywhere(one.T <= one.S):
            raise ShapeError(
                f"--T {one.T} is more than --S {one.S}: the new tokens are among the cached ones"
            )
    return shape


def decode_shape(
    S: int | tuple[int, ...] | None, *, T: Num = 1, causal: bool | None = None, **sizes: Num
) -> Shape:
    """The shape of a decode step: T new tokens (one) against S cached keys, or a tuple of lengths.

    Causal when T > 1. Raises ShapeError without S, for a length of 0 and for T > S.
    """
    if S is None:
        raise ShapeError(
            "decode needs --S, the number of cached keys that each new token sees, such as --S 8192"
        )
    causal = not everywhere(T == 1) if causal is None else causal
    keys = {"lengths": S} if isinstance(S, tuple) else {"S": S}
    return checked(Shape.of(T=T, causal=causal, **keys, **sizes))


def visible(shape: Shape) -> Shape:
    """The shape with its cache cut to the keys that some query sees; the pairs stay the same.

    A window W leaves the W keys up to the first query's position and the T - 1 after it.
    """
    if shape.window is None:
        return shape
    return replace(shape, S=minimum(shape.S, shape.window + shape.T - 1))


def cached(shape: Shape) -> tuple[Tensor, ...]:
    """K and V as one layer caches them, and the scales of an integer cache."""
    tokens = shape.batch * shape.kv_heads * shape.S
    arrays = (
        Tensor("K", tokens * shape.d, shape.kv_dtype, "batch·kv_heads·S·d"),
        Tensor("V", tokens * shape.dv, shape.kv_dtype, "batch·kv_heads·S·dv"),
    )
    return arrays + tuple(
        scales(name, tokens, "batch·kv_heads·S") for name in "KV" if shape.kv_dtype in SCALED
    )


def scales(name: str, tokens: Num, why: str) -> Tensor:
    """The scale and the zero of every token and head of the integer array `name`."""
    return Tensor(f"{name}_scale", 2 * tokens, "fp16", f"2 (scale, zero) · {why}")


def element_bytes(shape: Shape) -> Num:
    """Bytes of one cached number, its share of the scales included."""
    pairs = 4 * 2 / (shape.d + shape.dv) if shape.kv_dtype in SCALED else 0
    return BITS[shape.kv_dtype] / 8 + pairs


def at_least_one(flag: str, value: Num) -> None:
    """Raises RoofcalcError where the value of an option is below 1."""
    if not everywhere(value >= 1):
        raise RoofcalcError(f"{flag} is {value}; it must be at least 1")
