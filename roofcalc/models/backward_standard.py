"""The backward pass of attention whose weights were kept in memory: one kernel per matrix product.

With P = softmax(Q Kᵀ) and O = P V (arXiv:2205.14135, Appendix B.2):
dV = Pᵀ dO, dP = dO Vᵀ, dS = P∘(dP - rowsum(P∘dP)), dQ = dS K, dK = dSᵀ Q.
"""

from __future__ import annotations

from roofcalc.core import Kernel, Limits, Plan, Shape, Tensor, Work
from roofcalc.models import backward
from roofcalc.models.backward_parts import Gradients, gradients
from roofcalc.models.parts import Tensors, elementwise, gemm, product, tensors
from roofcalc.models.standard import EAGER_SOURCE, FULL_SQUARE, NAIVE_SOURCE, chain
from roofcalc.numeric import Num

SOFTMAX_BACKWARD = "multiply, add, subtract, multiply"
"""The four operations of an element of dS: P·dP, its row sum, dP minus that, times P."""

KEPT = "memory: P of every layer, kept from the forward pass; dP and dS of the layer at work come on top"
KEPT_DROPOUT = (
    "memory: of every layer P (for the softmax's backward), the dropped P (for dV) and dropout's byte mask "
    "D, kept from the forward pass; dP and dS of the layer at work come on top"
)
NO_BWD_MASK = (
    "no bwd_mask kernel: the mask is added to the scores, so their gradient passes through it unchanged"
)


def _product(
    name: str,
    shape: Shape,
    limits: Limits,
    *,
    operands: tuple[Tensor, Tensor],
    result: Tensor,
    size: tuple[Num, Num, Num],
    inner: tuple[Num, str],
) -> Kernel:
    """One matrix product; `size` is rows, columns and number of its results, `inner` the head width in it."""
    rows, columns, batch = size
    width, letters = inner
    return gemm(
        name,
        rows=rows,
        columns=columns,
        batch=batch,
        work=product(2 * shape.pairs * width, f"2·pairs·{letters}", shape.dtype, 2 * shape.square * width),
        accesses=(*(operand.read() for operand in operands), result.write()),
        limits=limits,
        dtype=shape.dtype,
    )


def _products(
    shape: Shape, limits: Limits, t: Tensors, g: Gradients
) -> tuple[Kernel, Kernel, Kernel, Kernel]:
    """The kernels of dV, dP, dQ and dK. A group's query heads lengthen the sums of its dV and dK."""
    queries, keys = shape.batch * shape.heads, shape.batch * shape.kv_heads
    d, dv = (shape.d, "d"), (shape.dv, "dv")
    sizes = {
        "dV": (shape.S, shape.dv, keys),
        "dP": (shape.T, shape.S, queries),
        "dQ": (shape.T, shape.d, queries),
        "dK": (shape.S, shape.d, keys),
    }

    def one(operands: tuple[Tensor, Tensor], result: Tensor, inner: tuple[Num, str]) -> Kernel:
        name, size = f"bwd_{result.name.lower()}", sizes[result.name]
        return _product(name, shape, limits, operands=operands, result=result, size=size, inner=inner)

    return (
        one((t.P, g.dO), g.dV, dv),
        one((g.dO, t.V), g.dP, dv),
        one((g.dS, t.K), g.dQ, d),
        one((g.dS, t.Q), g.dK, d),
    )


def _ds(shape: Shape, t: Tensors, g: Gradients, masked: bool) -> Kernel:
    work = Work("vector", 4 * shape.pairs, f"4 ({SOFTMAX_BACKWARD}) · pairs", executed=4 * shape.square)
    accesses = (t.P.read(), g.dP.read(), g.dS.write())
    sizes = {"rows": shape.batch * shape.heads * shape.T, "columns": shape.S, "masked": masked}
    return Kernel("bwd_ds", (work,), accesses, family="softmax_backward", sizes=sizes)


def _dropout(shape: Shape, t: Tensors, g: Gradients) -> Kernel:
    accesses = (g.dP.read(), t.D.read(), g.dP.write())
    why = "2 (multiply by the mask, multiply by 1/(1 - p)) · pairs"
    return elementwise("bwd_dropout", accesses, 2 * shape.pairs, 2 * shape.square, why)


def _scale(shape: Shape, g: Gradients) -> Kernel:
    return elementwise(
        "bwd_scale", (g.dS.read(), g.dS.write()), shape.pairs, shape.square, "1 (multiply) · pairs"
    )


def _kept(t: Tensors, steps: tuple[str, ...]) -> Num:
    """Bytes of a layer that autograd keeps for this pass, beside Q, K and V."""
    weights = t.P.read().bytes
    return 2 * weights + t.D.read().bytes if "dropout" in steps else weights


def _materialised(name: str, source: str, shape: Shape, limits: Limits, steps: tuple[str, ...]) -> Plan:
    """The chain in the order in which autograd runs it: the last step of the forward pass first."""
    t = tensors(shape)
    g = gradients(t)
    dv, dp, dq, dk = _products(shape, limits, t, g)
    undo_dropout = [_dropout(shape, t, g)] if "dropout" in steps else []
    undo_scale = [_scale(shape, g)] if "scale" in steps else []
    kernels = (dv, dp, *undo_dropout, _ds(shape, t, g, "mask" in steps), *undo_scale, dq, dk)
    notes = (
        KEPT_DROPOUT if "dropout" in steps else KEPT,
        *([NO_BWD_MASK] if "mask" in steps else []),
        *([FULL_SQUARE] if shape.causal or shape.window is not None else []),
    )
    return Plan(name, shape, kernels, source, notes, shape.layers * _kept(t, steps))


@backward("naive")
def naive_backward(shape: Shape, limits: Limits) -> Plan:
    """Five kernels and seven passes over T x S: read P; write dP; read P, read dP, write dS; read dS twice.

    Numbers moved per head: 7 T² + 8 T d for T = S. The scale rides on Q, so its gradient needs no kernel.
    """
    return _materialised("naive", NAIVE_SOURCE, shape, limits, ("softmax",))


@backward("eager")
def eager_backward(shape: Shape, limits: Limits, *, elementwise: str | tuple[str, ...] | None = None) -> Plan:
    """PyTorch's chain backwards: the five kernels of naive, and one for dropout and for the scale.

    `bwd_dropout` reads the gradient and the byte mask and writes the gradient (2.5 passes at two bytes a
    number), `bwd_scale` reads and writes it (2); an additive mask has no backward kernel. With dropout
    `bwd_dv` reads the dropped P, `bwd_ds` the whole one.
    """
    return _materialised("eager", EAGER_SOURCE, shape, limits, chain(shape, elementwise))
