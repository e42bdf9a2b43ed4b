"""The expected time of a kernel: what the implementation that its variant names takes, term by term.

Each family of kernels is a small analytic model with a few physical constants, fitted for a GPU
architecture and kept in its hardware file. The terms add up to the expected time, so a reader can see
which of them cost what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from roofcalc.calibration import decode, fused, linear, memory
from roofcalc.calibration.machine import Machine, machine
from roofcalc.core import Kernel, Term
from roofcalc.numeric import Num, maximum

if TYPE_CHECKING:
    from roofcalc.constants import Calibration
    from roofcalc.hardware import Hardware

_Set = TypeVar("_Set")

IMPLEMENTATION = {"flash1": "torch", "flash2": "torch", "flash3": "cudnn", "split-kv": "torch", "flash": "torch"}
"""Whose kernels stand for a variant when no library is named (no bare FlashAttention-3 kernel was measured)."""

FALLBACK = {"vllm": "cudnn", "trtllm": "cudnn", "flash-gqa": "triton", "paged": "triton"}


def expected(
    kernel: Kernel, time: Num, roofs: dict[str, Num | None], hardware: Hardware, implementation: str
) -> tuple[Num, tuple[Term, ...]]:
    """Seconds that all launches of a kernel will take, and the terms that add up to them.

    `time` is its roofline, which no expectation goes below: the difference becomes the last term.
    `implementation` is a library (torch, cudnn, triton) or a variant. Returns (None, ()) for a GPU whose
    architecture has no constants.
    """
    calibration, _ = hardware.calibrated
    if calibration is None:
        return None, ()
    n = kernel.launches
    dtype = next((work.dtype for work in kernel.work if work.pipe == "tensor"), "fp32")
    one = _terms(kernel, calibration, machine(hardware, dtype), roofs, implementation)
    terms = tuple(Term(name, n * seconds, why) for name, seconds, why in one)
    total = sum((term.seconds for term in terms), 0.0)
    short = maximum(time - total, 0.0)
    return total + short, (*terms, Term("roofline", short, "what the roofline needs beyond these terms"))


def _terms(
    kernel: Kernel, c: Calibration, gpu: Machine, roofs: dict[str, Num | None], implementation: str
) -> tuple[Term, ...]:
    match kernel.family:
        case "stream":
            return memory.stream(kernel, c.elementwise, gpu)
        case "indexed":
            return memory.indexed(kernel, c.elementwise, gpu, c.elementwise.indexed)
        case "expand":
            return memory.indexed(kernel, c.elementwise, gpu, c.elementwise.expand)
        case "random":
            return memory.random(kernel, c.elementwise, gpu)
        case "mask":
            return memory.masked_fill(kernel, c.elementwise, gpu)
        case "reduction":
            return memory.reduction(kernel, c.elementwise, gpu)
        case "mean":
            return memory.mean(kernel, c.elementwise, gpu)
        case "softmax":
            return memory.softmax(kernel, c.softmax, gpu)
        case "softmax_backward":
            return memory.softmax_backward(kernel, c.softmax, c.elementwise, gpu)
        case "bmm":
            return memory.bmm(kernel, c.bmm, gpu)
        case "linear":
            return linear.linear(kernel, c.linear, gpu)
        case "forward":
            library, constants = _pick(c.forward, implementation)
            return fused.attention(kernel, constants, gpu, decode=c.decode["torch"] if library == "torch" else None)
        case "backward":
            return fused.attention(kernel, _pick(c.backward, implementation)[1], gpu, flops=fused.BACKWARD)
        case "split" | "combine":
            name, own = _pick(c.decode, implementation)
            unsplit = c.forward["torch"] if name == "torch" else None
            kind = decode.split if kernel.family == "split" else decode.combine
            return kind(kernel, own, gpu, unsplit)
        case _:
            return memory.generic(kernel, c.generic, gpu, roofs)


def _pick(by_library: Mapping[Any, _Set], implementation: str) -> tuple[str, _Set]:
    """The constants of a library or of a variant's implementation; the first set where neither is known."""
    for name in (implementation, IMPLEMENTATION.get(implementation), FALLBACK.get(implementation)):
        if name is not None and name in by_library:
            return name, by_library[name]
    return next(iter(by_library.items()))
