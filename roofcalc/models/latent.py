"""What multi-head latent attention caches."""

from __future__ import annotations

from roofcalc.core import Shape, Tensor
from roofcalc.models.cache import SCALED, scales
from roofcalc.numeric import Num, ceil_div

LORA_RANK, ROPE_DIM = 512, 64
HEAD_DIM = 128
"""The part of a head's query and key without rotation, and its value, in DeepSeek-V2 and V3."""
FP8_GROUP = 128
"""Latent numbers that share an fp32 scale in FlashMLA's fp8 cache, beside a rotated part in bf16."""


def latent(shape: Shape, rank: Num, rope: Num) -> tuple[Tensor, ...]:
    """What a layer caches of the visible tokens: the latent with its rotated key, and scales.

    An fp8 cache is FlashMLA's: rank numbers in fp8, an fp32 scale for each 128 of them, and the rotated
    part in bf16 (656 B a token at 512 + 64). Integer caches scale a token's latent as one head.
    """
    tokens = shape.batch * shape.S
    if shape.kv_dtype == "fp8":
        return (
            Tensor("latent", tokens * rank, "fp8", "batch·S·kv_lora_rank"),
            Tensor("latent_scale", tokens * ceil_div(rank, FP8_GROUP), "fp32", "batch·S·kv_lora_rank/128"),
            Tensor("latent_rope", tokens * rope, "bf16", "batch·S·rope_dim"),
        )
    whole = Tensor("latent", tokens * (rank + rope), shape.kv_dtype, "batch·S·(kv_lora_rank + rope_dim)")
    return (whole, *((scales("latent", tokens, "batch·S"),) if shape.kv_dtype in SCALED else ()))
