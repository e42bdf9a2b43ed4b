"""One prediction for rows of a measurement file that differ in sizes alone: which plan it is, and its times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from roofcalc.constants import LIBRARIES
from roofcalc.core import BITS, Kernel, Plan, Report, RoofcalcError, Shape
from roofcalc.estimate import estimate
from roofcalc.hardware import Hardware, load
from roofcalc.launches import timing
from roofcalc.models import Variant, variants
from roofcalc.models.choice import GENERATIONS
from roofcalc.models.elementwise import step
from roofcalc.models.linear import linear
from roofcalc.models.standard import softmax_in_fp32
from roofcalc.numeric import Num, everywhere, maximum
from roofcalc.predict_host import WALL, issued, launch_time, mode_of, step_plan
from roofcalc.quantities import nearest

ALIASES = {
    ("attention", "window"): "flash2",
    ("decode", "flash2-nosplit"): "flash",
    ("decode", "eager"): "naive",
    ("decode", "fused"): "split-kv",
    ("decode", "window"): "split-kv",
}
"""Variants of measurement files that the product calls otherwise."""

KERNELS = {
    ("replicated", "attend_expanded"): ("split-kv", ""),
    ("replicated", "repeat_then_attend"): ("replicated", ""),
    ("replicated", "repeat_interleave_kv"): ("replicated", "replicate"),
    ("replicated", "expand_reshape_kv"): ("replicated", "replicate"),
}
"""Kernels of measurement files that the product calls otherwise, or knows as a variant of its own."""

STYLES = {"torch_rms_norm": "torch", "triton_fused": "fused", "torch": "torch"}
STORED = {"fp8_block": ("fp8", None), "sq": ("int8", None), "int8_wo": ("bf16", "int8"), "int4_wo": ("bf16", "int4")}
"""Data types of linear rows that name a scheme: the product's and the weights'."""

CUDNN_ROWS, CUDNN_KEYS = 128, 128
"""cuDNN's forward tile on Hopper; half the keys for d above 128. Of the tiles tried it fits cuDNN 9.19 best."""

MASKED, ADDED = "mask", "add_mask"
WIDE = "softmax_fp32"
STEPS = ("graph", "eager")


class Unpredictable(RoofcalcError):
    """Rows that no model covers, whatever their sizes."""


Times = tuple[Num, Num]


@dataclass(frozen=True)
class Question:
    """What a row asks: a plan on a GPU, all of it or one kernel of it, from a warm cache, by a library.

    `mode` (eager, graph) is that of a whole step, `wall` says that the host's time counts.
    """

    plan: Plan
    hardware: Hardware
    kernel: str = ""
    cache: str = "cold"
    library: str | None = None
    mode: str | None = None
    wall: bool = False

    def times(self, hardware: Hardware | None = None) -> Times:
        """Seconds by the roofline and expected, NaN where the GPU has no calibration. Raises Unpredictable."""
        gpu = hardware or self.hardware
        report = estimate(self.plan, gpu, self.cache, self.library)
        roofline, expected = _of(report, self.kernel)
        calibration, _ = gpu.calibrated
        if self.mode is not None:
            issue = None if calibration is None else issued(self.plan.kernels, calibration.host, self.library)
            whole = timing(report, gpu.launch, "graph" if self.mode == "graph" else "eager", issue=issue)
            return whole.step, float("nan") if whole.expected is None else whole.expected
        if self.wall and calibration is not None:
            expected = maximum(expected, issued(self.plan.kernels, calibration.host, self.library))
        return roofline, expected


@dataclass(frozen=True)
class Launched:
    """What a row of op=launch asks: the time of launches alone, which have no roofline."""

    plain: Mapping[str, Any]
    sizes: Mapping[str, Num]
    hardware: Hardware

    def times(self, hardware: Hardware | None = None) -> Times:
        """0 by the roofline, and the seconds expected."""
        calibration, _ = (hardware or self.hardware).calibrated
        if calibration is None:
            return 0.0, float("nan")
        return 0.0, launch_time(self.plain, self.sizes, calibration.host)


Asked = Question | Launched


def question(plain: Mapping[str, Any], sizes: Mapping[str, Num], overrides: tuple[str, ...] = ()) -> Asked:
    """What rows with the columns `plain` and arrays of `sizes` ask.

    Raises Unpredictable where no model covers the rows, another RoofcalcError where some size is at fault.
    """
    hardware = hardware_of(str(plain["gpu"]), overrides)
    if hardware is None:
        raise Unpredictable(f"unknown GPU {plain['gpu']!r}")
    op = str(plain["op"])
    _check(op, plain, sizes)
    library, variant = library_of(str(plain["library"])), str(plain["variant"])
    if op == "step":
        return Question(step_plan(plain, sizes, hardware), hardware, library="torch", mode=mode_of(variant))
    if op == "launch":
        return Launched(plain, sizes, hardware)
    if op not in _PLANS:
        raise Unpredictable(f"op {op!r} is not predicted yet")
    plan, kernel = _PLANS[op](plain, sizes, hardware)
    cache_ = "warm" if plain["cache"] == "warm" else "cold"
    return Question(plan, hardware, kernel, cache_, library, wall=variant.endswith(WALL))


NEEDED = {
    "attention": ("T", "S"),
    "decode": ("S",),
    "linear": ("m", "n", "k"),
    "elementwise": ("m", "n"),
    "step": ("S",),
}
"""The sizes that a row of an operation must give."""


def _check(op: str, plain: Mapping[str, Any], sizes: Mapping[str, Num]) -> None:
    """Raises RoofcalcError for a size that is missing, Unpredictable for a type or a way of launching not known."""
    needed = NEEDED.get(op, ())
    if op == "elementwise" and "_then_" in str(plain["kernel"]):
        needed = (*needed, "k")
    for name in needed:
        if not everywhere(sizes[name] >= 1):
            raise RoofcalcError(f"{op}: a row without {name}")
    for name in ("dtype", "kv_dtype"):
        said = str(plain[name])
        if said not in BITS and said not in STORED:
            raise Unpredictable(f"{name} {said!r} is not known{nearest(said, BITS)}")
    if op == "step" and not str(plain["variant"]).startswith(STEPS):
        raise Unpredictable(f"step: the variant is {plain['variant']!r}; it must begin with {' or '.join(STEPS)}")


@cache
def hardware_of(name: str, overrides: tuple[str, ...]) -> Hardware | None:
    """The GPU that a file names, None for an unknown one. Raises RoofcalcError for a wrong override."""
    try:
        found = load(name)
    except RoofcalcError:
        return None
    return load(name, overrides) if overrides else found


def library_of(text: str) -> str | None:
    """The library that the first word of the column names; None for one without a calibration family."""
    word = text.split()[0].casefold() if text.split() else ""
    return word if word in LIBRARIES else None


def _variant(op: Any, name: str, hardware: Hardware) -> Variant:
    name = ALIASES.get((op, name), name)
    if name == "fused":
        name = GENERATIONS[hardware.architecture]
    known = variants(op)
    if name not in known:
        raise Unpredictable(f"{op}: no variant {name!r}{nearest(name, known)}")
    return known[name]


def _attention(plain: Mapping[str, Any], sizes: Mapping[str, Num], hardware: Hardware) -> tuple[Plan, str]:
    window = int(plain["window"]) or None
    if plain["variant"] == "window" and window is None:
        raise Unpredictable("a window variant without its window")
    name, kernel = str(plain["variant"]), str(plain["kernel"])
    name, kernel = KERNELS.get((name, kernel), (name, kernel))
    variant = _variant(plain["op"], name, hardware)
    names = ("batch", "heads", "kv_heads", "T", "S")
    shape = Shape.of(
        **{name: sizes[name] for name in names},
        d=int(plain["d"]),
        causal=bool(plain["causal"]),
        window=window,
        dtype=str(plain["dtype"]),
        kv_dtype=str(plain["kv_dtype"]),
        direction=str(plain["pass"]),  # type: ignore[arg-type]  # Shape checks it
    )
    if kernel == WIDE:
        return Plan("eager", shape, softmax_in_fp32(shape), "measured"), ""
    plan = variant.plan(shape, hardware.limits, _options(variant, plain, kernel))
    return _adapted(plan, plain, kernel), MASKED if kernel == ADDED else kernel


def _options(variant: Variant, plain: Mapping[str, Any], kernel: str) -> dict[str, Any]:
    """The variant's options that the row gives; a row of one eager kernel is part of a chain that has it."""
    alone = "scale,mask,softmax,dropout" if kernel in (MASKED, ADDED) else "scale,softmax,dropout"
    steps = str(plain["elementwise"]) or (alone if kernel else None)
    given: dict[str, Any] = {"elementwise": steps, "splits": int(plain["splits"]) or None}
    cudnn = library_of(str(plain["library"])) == "cudnn"
    if cudnn and plain["op"] == "attention" and plain["pass"] == "fwd":
        given |= {"block_q": CUDNN_ROWS, "block_kv": CUDNN_KEYS if plain["d"] <= 128 else CUDNN_KEYS // 2}
    return {name: value for name, value in given.items() if name in variant.options and value is not None}


def _adapted(plan: Plan, plain: Mapping[str, Any], kernel: str) -> Plan:
    """The plan with what a row says and the ledger does not: dropout in a fused kernel, an additive mask."""
    dropout = "dropout" in str(plain["elementwise"]).split(",")

    def adapted(one: Kernel) -> Kernel:
        if dropout and one.family in ("forward", "backward"):
            return replace(one, sizes={**one.sizes, "dropout": True})
        if kernel == ADDED and one.family == MASKED:
            return replace(one, family="indexed")
        return one

    return replace(plan, kernels=tuple(adapted(one) for one in plan.kernels))


def _of(report: Report, kernel: str) -> Times:
    """The times of the whole plan, or of the kernel of that name."""
    rows = [row for row in report.kernels if row.name == kernel] if kernel else [report.total]
    if not rows:
        names = [row.name for row in report.kernels]
        raise Unpredictable(f"{report.variant} has no kernel {kernel!r}{nearest(kernel, names)}")
    later: Num = sum((float("nan") if row.expected is None else row.expected for row in rows), 0.0)
    return sum((row.time for row in rows), 0.0), later


def _linear(plain: Mapping[str, Any], sizes: Mapping[str, Num], hardware: Hardware) -> tuple[Plan, str]:
    said = str(plain["dtype"])
    dtype, weights = STORED.get(said, (said, None))
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    one = linear("linear", m=m, n=n, k=k, dtype=dtype, weights=weights, limits=hardware.limits)
    return Plan("linear", Shape.of(T=1, dtype=dtype), (one,), "measured"), ""


def _elementwise(plain: Mapping[str, Any], sizes: Mapping[str, Num], hardware: Hardware) -> tuple[Plan, str]:
    name, dtype, said = str(plain["kernel"]), str(plain["dtype"]), str(plain["variant"])
    style: Any = STYLES.get(said.removesuffix(WALL), "eager")
    first, then, second = name.partition("_then_")
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    kernels = step(first, m, k if then else n, dtype, style)
    if then:
        kernels = (*kernels, linear(second, m=m, n=n, k=k, dtype=dtype, limits=hardware.limits))
    return Plan(said, Shape.of(T=1, dtype=dtype), kernels, "measured"), ""


_PLANS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Num], Hardware], tuple[Plan, str]]] = {
    "attention": _attention,
    "decode": _attention,
    "linear": _linear,
    "elementwise": _elementwise,
}
