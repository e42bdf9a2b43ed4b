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

STAND_IN = {"flash3": "cudnn", "flash-gqa": "triton", "paged": "triton"}
"""Whose kernels stand for a variant where no library with constants is named: PyTorch's for all others, which are
FlashAttention-2's. No FlashAttention-3 kernel was measured bare; cuDNN's is Hopper's too."""


def sources(library: str | None, variant: str) -> tuple[str, ...]:
    """The libraries whose constants price a variant's kernels, the first that a family has."""
    named = () if library is None else (library,)
    return (*named, STAND_IN.get(variant, "torch"))


def expected(
    kernel: Kernel, time: Num, roofs: dict[str, Num | None], hardware: Hardware, libraries: tuple[str, ...]
) -> tuple[Num, tuple[Term, ...]]:
    """Seconds that all launches of a kernel will take, and the terms that add up to them.

    `time` is its roofline, which no expectation goes below: the difference becomes the last term.
    `libraries` are those of `sources`. Returns (None, ()) for a GPU whose architecture has no constants.
    """
    calibration, _ = hardware.calibrated
    if calibration is None:
        return None, ()
    n = kernel.launches
    dtype = next((work.dtype for work in kernel.work if work.pipe == "tensor"), "fp32")
    one = _terms(kernel, calibration, machine(hardware, dtype), roofs, libraries)
    terms = tuple(Term(name, n * seconds, why) for name, seconds, why in one)
    total = sum((term.seconds for term in terms), 0.0)
    short = maximum(time - total, 0.0)
    return total + short, (*terms, Term("roofline", short, "what the roofline needs beyond these terms"))


def _terms(
    kernel: Kernel, c: Calibration, gpu: Machine, roofs: dict[str, Num | None], libraries: tuple[str, ...]
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
            return memory.softmax(kernel, c.softmax, c.elementwise, gpu)
        case "softmax_backward":
            return memory.softmax_backward(kernel, c.softmax, c.elementwise, gpu)
        case "bmm":
            return memory.bmm(kernel, c.bmm, gpu)
        case "linear":
            return linear.linear(kernel, c.linear, gpu)
        case "forward":
            library, constants = _pick(c.forward, libraries)
            return fused.attention(kernel, constants, gpu, decode=c.decode["torch"] if library == "torch" else None)
        case "backward":
            return fused.attention(kernel, _pick(c.backward, libraries)[1], gpu, flops=fused.BACKWARD)
        case "split" | "combine":
            name, own = _pick(c.decode, libraries)
            unsplit = c.forward["torch"] if name == "torch" else None
            kind = decode.split if kernel.family == "split" else decode.combine
            return kind(kernel, own, gpu, unsplit)
        case _:
            return memory.generic(kernel, c.generic, gpu, roofs)


def _pick(by_library: Mapping[Any, _Set], libraries: tuple[str, ...]) -> tuple[str, _Set]:
    """The constants of the first of the libraries that has some; the first set where none has."""
    for name in libraries:
        if name in by_library:
            return name, by_library[name]
    return next(iter(by_library.items()))
