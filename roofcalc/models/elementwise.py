"""The small kernels between a decoder's matrix products: norms, activations, rotations, sums.

Each is a row-wise step on an m x n matrix of activations. `eager` is PyTorch's chain, one kernel an
operation; `torch` PyTorch's own fused kernel where it has one; `fused` a good hand-written kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from roofcalc.core import Kernel, RoofcalcError, Tensor, Work
from roofcalc.models.parts import elementwise
from roofcalc.numeric import Num

Style = Literal["eager", "torch", "fused"]


def _array(name: str, m: Num, n: Num, dtype: str) -> Tensor:
    return Tensor(name, m * n, dtype, "m·n" if name != "w" else "n")


def _step(
    name: str, reads: tuple[Tensor, ...], write: Tensor, per_element: int, family: str = "stream", rows: Num = 2
) -> Kernel:
    """One kernel over the largest of its arrays, `per_element` operations on each element.

    `rows` of a strided or broadcast operand: a single one lies contiguous.
    """
    accesses = (*(array.read() for array in reads), write.write())
    largest = elementwise(name, accesses, 0, 0, "", family)
    elements = largest.sizes["elements"]
    work = Work("vector", per_element * elements, f"{per_element} · elements")
    return replace(largest, work=(work,), sizes={**largest.sizes, "rows": rows})


def silu(m: Num, n: Num, dtype: str) -> Kernel:
    """x / (1 + exp(-x)) on half of a gate-up matrix, whose rows lie apart in memory."""
    x = _array("x", m, n, dtype)
    return _step("silu", (x,), replace(x, name="y"), 4, "indexed", m)


def mul(m: Num, n: Num, dtype: str) -> Kernel:
    """The gate times the other half of the gate-up matrix."""
    x = _array("x", m, n, dtype)
    return _step("mul", (x, replace(x, name="up")), replace(x, name="y"), 1, "indexed", m)


def residual_add(m: Num, n: Num, dtype: str) -> Kernel:
    """The residual stream plus a block's output."""
    x = _array("x", m, n, dtype)
    return _step("residual_add", (x, replace(x, name="residual")), replace(x, name="y"), 1)


def rmsnorm_chain(m: Num, n: Num, dtype: str) -> tuple[Kernel, ...]:
    """RMSNorm as eight PyTorch operations: to fp32, square, mean, + eps, rsqrt, times, back, times the weight."""
    x, wide = _array("x", m, n, dtype), _array("x32", m, n, "fp32")
    one = Tensor("rms", m, "fp32", "m")
    weight = Tensor("w", n, dtype, "n")
    return (
        renamed(cast(m, n, dtype, "fp32"), "rmsnorm_cast_fp32", y=wide.name),
        _step("rmsnorm_pow", (wide,), wide, 1),
        _step("rmsnorm_mean", (wide,), one, 1, "mean", m),
        _step("rmsnorm_eps", (one,), one, 1),
        _step("rmsnorm_rsqrt", (one,), one, 1),
        _step("rmsnorm_mul", (wide, one), wide, 1, "indexed"),
        _step("rmsnorm_cast_bf16", (wide,), x, 1),
        _step("rmsnorm_mul_weight", (x, weight), x, 1, "indexed", m),
    )


def rmsnorm(m: Num, n: Num, dtype: str, style: Style = "torch") -> tuple[Kernel, ...]:
    """x / sqrt(mean(x²) + eps) · w over rows of n (arXiv:1910.07467, equation 4).

    Three operations an element: the square added up counts as one multiply-add, then two products.
    """
    if style == "eager":
        return rmsnorm_chain(m, n, dtype)
    x = _array("x", m, n, dtype)
    family = "reduction" if style == "torch" else "stream"
    return (_step("rmsnorm", (x, Tensor("w", n, dtype, "n")), replace(x, name="y"), 3, family),)


def rope(m: Num, n: Num, dtype: str, style: Style = "eager", name: str = "rope") -> tuple[Kernel, ...]:
    """Rotary embedding of n features in all (arXiv:2104.09864, equation 34).

    Eager is q · cos + rotate(q) · sin as five kernels: negate a half, concatenate, two products with a
    broadcast table, sum.
    """
    x = _array("x", m, n, dtype)
    half = Tensor("half", m * n // 2, dtype, "m·n/2")
    if style != "eager":
        return (_step(name, (x,), replace(x, name="y"), 3),)
    return (
        _step(f"{name}_neg", (half,), half, 1, "indexed"),
        _step(f"{name}_cat", (half, half), x, 0, "indexed"),
        _step(f"{name}_cos", (x,), x, 1, "indexed"),
        _step(f"{name}_sin", (x,), x, 1, "indexed"),
        _step(f"{name}_add", (x, x), x, 1),
    )


def rope_qk(m: Num, n: Num, dtype: str, style: Style = "eager") -> tuple[Kernel, ...]:
    """Rotary embedding of Q and of K apart, n features in both, K's a fifth of them (32 heads on 8)."""
    return (*rope(m, n - n // 5, dtype, style, "rope_q"), *rope(m, n // 5, dtype, style, "rope_k"))


def silu_mul(m: Num, n: Num, dtype: str, style: Style = "eager") -> tuple[Kernel, ...]:
    """silu(gate) · up: two kernels, or one that reads both halves once."""
    if style == "eager":
        return silu(m, n, dtype), mul(m, n, dtype)
    x = _array("gate", m, n, dtype)
    return (_step("silu_mul", (x, replace(x, name="up")), replace(x, name="y"), 5),)


def activation(m: Num, n: Num, dtype: str) -> Kernel:
    """A pointwise activation of an MLP without a gate (GELU, squared ReLU): four operations an element."""
    x = _array("x", m, n, dtype)
    return _step("activation", (x,), replace(x, name="y"), 4)


def cast(m: Num, n: Num, source: str, target: str) -> Kernel:
    """The same numbers in another dtype."""
    return _step("cast", (_array("x", m, n, source),), _array("y", m, n, target), 1, "indexed")


def embedding_row(m: Num, n: Num, dtype: str, tables: int = 1) -> Kernel:
    """The rows of m tokens out of one table, or the sum of the rows of several; the tables stay unread."""
    rows = tuple(Tensor(f"E{i or ''}", m * n, dtype, "m·n: a row a token") for i in range(tables))
    return _step("embedding", rows, _array("h", m, n, dtype), tables - 1, "indexed")


def renamed(kernel: Kernel, name: str | None = None, group: str | None = None, **tensors: str) -> Kernel:
    """The kernel under another name and group, its tensors called as `tensors` says."""
    lines = tuple(replace(a, tensor=tensors.get(a.tensor, a.tensor)) for a in kernel.accesses)
    return replace(kernel, name=name or kernel.name, group=group or kernel.group, accesses=lines)


_ONE: dict[str, Callable[[Num, Num, str], Kernel]] = {"silu": silu, "mul": mul, "residual_add": residual_add}
_MANY: dict[str, Callable[[Num, Num, str, Style], tuple[Kernel, ...]]] = {
    "rmsnorm": rmsnorm,
    "rope_qk": rope_qk,
    "silu_mul": silu_mul,
}
STEPS = (*_ONE, *_MANY)


def step(name: str, m: Num, n: Num, dtype: str, style: Style) -> tuple[Kernel, ...]:
    """The kernels of a step by its name, or one of RMSNorm's eight by its own. Raises RoofcalcError."""
    if name in _ONE:
        return (_ONE[name](m, n, dtype),)
    if name in _MANY:
        return _MANY[name](m, n, dtype, style)
    parts = {kernel.name: kernel for kernel in rmsnorm_chain(m, n, dtype)}
    if name in parts:
        return (parts[name],)
    raise RoofcalcError(f"no elementwise step {name!r}; choose from {', '.join((*STEPS, *parts))}")
