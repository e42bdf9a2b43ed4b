"""The MLPs of a layer in a step: dense, routed to experts, shared; with what activates, chooses and adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roofcalc.core import Access, Kernel, Tensor
from roofcalc.models.elementwise import Style, activation, mul, renamed, silu, silu_mul
from roofcalc.models.parts import elementwise
from roofcalc.models.step_weights import Launch, Setting, product
from roofcalc.numeric import Num

if TYPE_CHECKING:
    from roofcalc.hf import Mlp


def mlp_kernels(
    mlp: Mlp | None, found: Sequence[Launch], x: str, at: Setting, style: Style
) -> tuple[list[Kernel], tuple[str, ...]]:
    """Every MLP of a layer (dense, routed, shared): in, activation, out; a mixture chooses and adds up too."""
    kernels: list[Kernel] = []
    outs: list[str] = []
    for one in sorted(found, key=lambda one: not one.name.startswith("adapter")):
        if one.leads_out:
            before = kernels[-1].accesses[-1].tensor if kernels else x
            kernels.append(product(one, at, before))
            if one.experts and mlp is not None:
                kernels.append(_weighted_sum(one, mlp, at))
            outs.append(kernels[-1].accesses[-1].tensor)
            continue
        kernels.append(product(one, at, x, _halves(one, mlp, at)))
        if one.name == "router" and mlp is not None:
            kernels.append(_choose_experts(one, mlp, at))
        kernels += _activation(one, mlp, at, style)
    return kernels, tuple(outs) or ((kernels[-1].accesses[-1].tensor,) if kernels else ())


def _halves(one: Launch, mlp: Mlp | None, at: Setting) -> tuple[Access, ...]:
    """The results of a gate-up product apart, as the activation reads them; nothing for other launches."""
    head = _into_activation(one)
    if head is None or not (mlp is None or mlp.gated):
        return ()
    half = one.rows(at.tokens) * one.outputs // 2
    return tuple(Tensor(f"{head}{part}", half, at.dtype, "m·n").write() for part in ("gate", "up"))


def _into_activation(one: Launch) -> str | None:
    """What stands before `gate_up` or `up` in a launch's name; None where no activation follows it."""
    head, joint, leaf = one.name.rpartition("gate_up" if one.name.endswith("gate_up") else "up")
    return None if leaf or not joint or head.startswith("adapter") else head


def _activation(one: Launch, mlp: Mlp | None, at: Setting, style: Style) -> list[Kernel]:
    """What follows a matrix into the MLP: SiLU of the gate times up, or a function alone."""
    head = _into_activation(one)
    if head is None:
        return []
    rows, gated = one.rows(at.tokens), mlp is None or mlp.gated
    if not gated:
        return [
            renamed(
                activation(rows, one.outputs, at.dtype), f"{head}activation", "elementwise", x=one.name, y=f"{head}act"
            )
        ]
    width, act = one.outputs // 2, f"{head}act"
    if style == "eager":
        first = renamed(silu(rows, width, at.dtype), f"{head}silu", "elementwise", x=f"{head}gate", y=f"{head}silu")
        second = renamed(
            mul(rows, width, at.dtype), f"{head}mul", "elementwise", x=f"{head}silu", up=f"{head}up", y=act
        )
        return [first, second]
    (kernel,) = silu_mul(rows, width, at.dtype, style)
    return [renamed(kernel, f"{head}silu_mul", "elementwise", gate=f"{head}gate", up=f"{head}up", y=act)]


def _choose_experts(one: Launch, mlp: Mlp, at: Setting) -> Kernel:
    """Softmax over the experts and the best `active` of them: five operations a score."""
    scores = at.tokens * one.outputs
    lines = (
        Tensor(one.name, scores, at.dtype, "m·experts").read(),
        Tensor("chosen", 2 * at.tokens * mlp.active, "int32", "2 (index, weight) · m·active").write(),
    )
    return replace(elementwise("topk", lines, 5 * scores, 5 * scores, "5 · scores"), group="elementwise")


def _weighted_sum(one: Launch, mlp: Mlp, at: Setting) -> Kernel:
    """The results of a token's experts, weighed and added up."""
    n = at.tokens * one.outputs
    lines = (
        Tensor(one.name, n * mlp.active, at.dtype, "m·active·hidden").read(),
        Tensor("chosen", 2 * at.tokens * mlp.active, "int32", "2 (index, weight) · m·active").read(),
        Tensor("experts_sum", n, at.dtype, "m·hidden").write(),
    )
    ops: Num = 2 * n * mlp.active
    return replace(elementwise("weighted_sum", lines, ops, ops, "2 · active · elements"), group="elementwise")
