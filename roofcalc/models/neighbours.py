"""Chains of two kernels that a decoder runs one after the other, as a case for fusing them."""

from __future__ import annotations

from roofcalc.core import Limits, Plan, RoofcalcError, Shape
from roofcalc.models.elementwise import mul, renamed, residual_add, rmsnorm, silu
from roofcalc.models.linear import linear

SOURCE = "the chain's own arithmetic: every operand and result once"


def neighbours(name: str, *, rows: int, width: int, dtype: str, limits: Limits) -> Plan:
    """`rmsnorm-linear`, `linear-residual` or `silu-mul` on `rows` rows of `width` features, before fusion.

    The linear layer is width x width. What one kernel leaves for the next has one name in both ledgers.
    Raises RoofcalcError for another name and for sizes below 1.
    """
    for flag, size in (("batch · T", rows), ("--d-model", width)):
        if size < 1:
            raise RoofcalcError(f"{flag} is {size}; it must be at least 1")
    product = linear("linear", m=rows, n=width, k=width, dtype=dtype, limits=limits)
    match name:
        case "rmsnorm-linear":
            (norm,) = rmsnorm(rows, width, dtype, "fused")
            kernels = (renamed(norm, y="X"), product)
        case "linear-residual":
            kernels = (product, renamed(residual_add(rows, width, dtype), "residual", x="Y"))
        case "silu-mul":
            kernels = (
                renamed(silu(rows, width, dtype), x="gate", y="silu"),
                renamed(mul(rows, width, dtype), x="silu"),
            )
        case _:
            raise RoofcalcError(f"no chain {name!r}; choose from rmsnorm-linear, linear-residual, silu-mul")
    shape = Shape.of(T=1, batch=rows, heads=1, d=width, dtype=dtype)
    return Plan("not fused", shape, kernels, SOURCE)
