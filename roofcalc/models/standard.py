"""Attention whose scores pass through memory, and the two kernels that bound it: one pass and two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from roofcalc.core import BITS, Kernel, Limits, Plan, RoofcalcError, Shape, Tensor, Work
from roofcalc.models import variant
from roofcalc.models.parts import Tensors, elementwise, gemm, product, softmax_work, tensors
from roofcalc.numeric import Num, everywhere, where

STEPS = ("scale", "mask", "softmax", "dropout")
FULL_SQUARE = (
    "mask: these kernels compute the full T x S square; FLOP counts the pairs that the mask leaves, "
    "the roofs count what is executed"
)


def _scores(shape: Shape, limits: Limits, t: Tensors) -> Kernel:
    return gemm(
        "scores",
        rows=shape.T,
        columns=shape.S,
        batch=shape.batch * shape.heads,
        work=product(2 * shape.pairs * shape.d, "2·pairs·d", shape.dtype, 2 * shape.square * shape.d),
        accesses=(t.Q.read(), t.K.read(), t.S.write()),
        limits=limits,
        dtype=shape.dtype,
    )


def _pv(shape: Shape, limits: Limits, t: Tensors) -> Kernel:
    return gemm(
        "pv",
        rows=shape.T,
        columns=shape.dv,
        batch=shape.batch * shape.heads,
        work=product(2 * shape.pairs * shape.dv, "2·pairs·dv", shape.dtype, 2 * shape.square * shape.dv),
        accesses=(t.P.read(), t.V.read(), t.O.write()),
        limits=limits,
        dtype=shape.dtype,
    )


def _softmax(shape: Shape, _limits: Limits | None, t: Tensors) -> Kernel:
    return Kernel(
        "softmax",
        softmax_work(shape.pairs, shape.square, "pairs"),
        (t.S.read(), t.P.write()),
        family="softmax",
        sizes={"rows": shape.batch * shape.heads * shape.T, "columns": shape.S},
    )


def softmax_in_fp32(shape: Shape) -> tuple[Kernel, ...]:
    """PyTorch's softmax(dtype=float32): fused for fp16 scores, for bf16 a cast and then a softmax of fp32 rows."""
    t = tensors(shape)
    wide = replace(t.S, dtype="fp32")
    source = t.S
    cast: tuple[Kernel, ...] = ()
    if shape.dtype == "bf16":
        why = "0 (a cast)"
        cast = (elementwise("cast", (t.S.read(), wide.write()), 0 * shape.pairs, 0 * shape.square, why, "indexed"),)
        source = wide
    one = _softmax(shape, None, t)
    return (*cast, replace(one, accesses=(source.read(), replace(t.P, dtype="fp32").write())))


def _scale(shape: Shape, _limits: Limits, t: Tensors) -> Kernel:
    return elementwise("scale", (t.S.read(), t.S.write()), shape.pairs, shape.square, "1 (multiply) · pairs")


def _mask(shape: Shape, limits: Limits, t: Tensors) -> Kernel:
    times = mask_reads(shape, t, limits)
    why = "T·S, once: every head finds it in L2"
    if not everywhere(times == 1):
        why = "batch·heads·T·S: the mask is larger than L2, so every head reads it from memory"
    return elementwise(
        "mask",
        (t.S.read(), t.M.read(times, why=why), t.S.write()),
        shape.pairs,
        shape.square,
        "1 (add) · pairs",
        "mask",
    )


def mask_reads(shape: Shape, t: Tensors, limits: Limits) -> Num:
    """How often the additive mask comes from memory: once while it fits L2, else once a head."""
    return where(t.M.read().bytes > limits.l2, shape.batch * shape.heads, 1)


def _dropout(shape: Shape, _limits: Limits, t: Tensors) -> Kernel:
    return elementwise(
        "dropout",
        (t.P.read(), t.D.write(), t.P.write()),
        2 * shape.pairs,
        2 * shape.square,
        "2 (compare, multiply) · pairs",
        "random",
    )


_STEP: dict[str, Callable[[Shape, Limits, Tensors], Kernel]] = {
    "scale": _scale,
    "mask": _mask,
    "softmax": _softmax,
    "dropout": _dropout,
}


def chain(shape: Shape, elementwise: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The elementwise steps of the eager chain in the order in which they run.

    Default: scale and softmax, and the mask when causal. Raises RoofcalcError for an unknown step, a
    step given twice, or a chain without its softmax.
    """
    if elementwise is None:
        return ("scale", "mask", "softmax") if shape.causal else ("scale", "softmax")
    given = elementwise.split(",") if isinstance(elementwise, str) else list(elementwise)
    steps = [step.strip() for step in given]
    for step in steps:
        if step not in STEPS:
            raise RoofcalcError(f"--elementwise has no step {step!r}; choose from {','.join(STEPS)}")
        if steps.count(step) > 1:
            raise RoofcalcError(f"--elementwise names {step!r} twice")
    if "softmax" not in steps:
        raise RoofcalcError("--elementwise has no softmax; attention needs one, e.g. scale,softmax")
    return tuple(step for step in STEPS if step in steps)


def _dtype_note(shape: Shape) -> tuple[str, ...]:
    if shape.dtype not in ("fp8", "int8"):
        return ()
    return (
        f"PyTorch has no eager attention in {shape.dtype}: `expected` is that of its 16-bit kernels at these bytes",
    )


def _row_note(shape: Shape, limits: Limits) -> tuple[str, ...]:
    """The one-pass softmax kernel holds a whole row on chip; the note says where it cannot."""
    row = shape.S * BITS[shape.dtype] // 8
    if not everywhere(row > limits.smem_per_block):
        return ()
    again = shape.square * BITS[shape.dtype] // 8
    extra = "" if not isinstance(again, int) else f" ({again / 1e9:.3g} GB more)"
    return (
        f"softmax: a row of {shape.S} numbers no longer fits the {limits.smem_per_block // 1024} KiB of shared "
        f"memory that a block may use, so the one-pass kernel does not exist; one that reads S twice moves "
        f"one T x S pass more than this ledger{extra}",
    )


def _materialised(name: str, source: str, shape: Shape, limits: Limits, steps: tuple[str, ...]) -> Plan:
    """The chain scores, steps, pv with every intermediate written and read back."""
    t = tensors(shape)
    masked = {"masked": "mask" in steps}  # rows with -inf take PyTorch's softmax longer
    middle = tuple(_STEP[step](shape, limits, t) for step in steps)
    middle = tuple(replace(one, sizes={**one.sizes, **masked}) if one.name == "softmax" else one for one in middle)
    memory = t.S.write().bytes + t.P.write().bytes
    memory = memory + (t.D.write().bytes if "dropout" in steps else 0)
    memory = memory + (t.M.read().bytes if "mask" in steps else 0)
    notes = (
        _dtype_note(shape)
        + _row_note(shape, limits)
        + ((FULL_SQUARE,) if shape.causal or shape.window is not None else ())
    )
    return Plan(
        variant=name,
        shape=shape,
        kernels=(_scores(shape, limits, t), *middle, _pv(shape, limits, t)),
        source=source,
        notes=notes,
        memory=memory,
    )


NAIVE_SOURCE = "arXiv:2205.14135, Algorithm 0"


@variant("naive", source=NAIVE_SOURCE)
def naive(shape: Shape, limits: Limits) -> Plan:
    """Three kernels, the scores and the weights each written to memory once and read back once.

    Numbers moved per head: 4 T² + 4 T d for T = S. `expected` is for PyTorch's eager kernels.
    """
    return _materialised("naive", NAIVE_SOURCE, shape, limits, ("softmax",))


EAGER_SOURCE = "arXiv:2205.14135, Algorithm 0, with PyTorch's kernel for each elementwise step"


@variant("eager", source=EAGER_SOURCE)
def eager(shape: Shape, limits: Limits, *, elementwise: str | tuple[str, ...] | None = None) -> Plan:
    """PyTorch's chain: one kernel for each elementwise step on the score matrix (--elementwise).

    Numbers moved per head for k steps: (2 + 2 k) T² + 4 T d, before the mask that is added and
    dropout's byte mask. `expected` is for PyTorch's eager kernels.
    """
    return _materialised("eager", EAGER_SOURCE, shape, limits, chain(shape, elementwise))


def _touched(shape: Shape, t: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V without the queries that see no key and the keys that no query sees."""
    return (
        replace(t.Q, elements=t.Q.elements // shape.T * shape.seeing),
        replace(t.K, elements=t.K.elements // shape.S * shape.seen),
        replace(t.V, elements=t.V.elements // shape.S * shape.seen),
    )


TWO_PASS_SOURCE = "arXiv:1805.02867, Algorithm 2 (safe softmax), its passes over recomputed scores"


@variant("two-pass", source=TWO_PASS_SOURCE)
def two_pass(shape: Shape, _limits: Limits) -> Plan:
    """Every score computed twice, nothing materialised: row statistics first, the output second.

    The first pass takes max, subtract, exponential and add for each pair, the second subtract,
    exponential and divide; both read K. `expected` is for a good hand-written kernel.
    """
    t = tensors(shape)
    q, k, v = _touched(shape, t)
    kernel = Kernel(
        "attention",
        (
            product(4 * shape.pairs * shape.d, "4·pairs·d (Q Kᵀ twice)", shape.dtype),
            product(2 * shape.pairs * shape.dv, "2·pairs·dv", shape.dtype),
            Work("vector", 5 * shape.pairs, "5 (max, subtract, add; subtract, divide) · pairs"),
            Work("exp", 2 * shape.pairs, "2 (an exponential in each pass) · pairs"),
        ),
        (q.read(), k.read(2, why=f"2·{k.why} (both passes)"), v.read(), t.O.write()),
    )
    return Plan("two-pass", shape, (kernel,), TWO_PASS_SOURCE)


IDEAL_SOURCE = "compulsory traffic, as the roofline model counts it (Williams, Waterman, Patterson 2009)"


@variant("ideal", source=IDEAL_SOURCE)
def ideal(shape: Shape, _limits: Limits) -> Plan:
    """One kernel that reads Q, K and V once and writes O once: the least that an exact kernel moves.

    `expected` is for a good hand-written kernel.
    """
    t = tensors(shape)
    work = (
        product(2 * shape.pairs * shape.d, "2·pairs·d (Q Kᵀ)", shape.dtype),
        product(2 * shape.pairs * shape.dv, "2·pairs·dv (P V)", shape.dtype),
        *softmax_work(shape.pairs, shape.pairs, "pairs"),
    )
    kernel = Kernel("attention", work, (*(array.read() for array in _touched(shape, t)), t.O.write()))
    return Plan("ideal", shape, (kernel,), IDEAL_SOURCE)
