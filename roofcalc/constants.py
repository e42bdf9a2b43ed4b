"""The `calibration:` block of a hardware file: what was fitted to measurements, apart from the specification.

A family of kernels has a few physical constants, each with its unit and its meaning; where libraries
differ, one set for each. `data` and `date` say which rows they came from and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field, StrictStr

from roofcalc.blocks import Bandwidth, Block, Cost

Factor = Annotated[float, Field(ge=0, le=100, strict=False)]

LIBRARIES = ("torch", "cudnn", "triton", "vllm", "trtllm", "cublas")
Library = Literal["torch", "cudnn", "triton", "vllm", "trtllm", "cublas"]


def _of(meaning: str) -> Any:
    return Field(description=meaning)


class Constants(Block):
    """The constants of one family; `data` says what they were fitted to, `date` when."""

    data: StrictStr
    date: StrictStr


class Elementwise(Constants):
    """Kernels that touch each element once."""

    floor: Cost = _of("a small kernel in a graph: start, one round trip to L2, end")
    ramp: Cost = _of("filling and draining the pipeline of loads from HBM")
    hbm: Factor = _of("sustained share of HBM bandwidth, reads and writes mixed")
    l2: Factor = _of("sustained share of L2 bandwidth while the data stay there")
    indexed: Factor = _of("clocks of an SM per element with broadcast, strided or mixed-type operands")
    expand: Factor = _of("clocks of an SM per element of a tensor expanded by copy (repeat_interleave)")
    random: Factor = _of("clocks of an SM per element with a random number (Philox)")
    latency: Cost = _of("what such an element waits for: index arithmetic, then one load after another")
    reduction: Cost = _of("a norm in one kernel: two passes over a row, a block's tree of partial sums")
    doubling: Cost = _of("PyTorch's mean over rows, per doubling of the rows up to 512: fewer threads for each")


class Softmax(Constants):
    """PyTorch's softmax: which of its kernels runs depends on the length of a row."""

    floor: Cost = _of("launch and first row of a small softmax")
    warp: Factor = _of("share of HBM bandwidth, one warp a row (up to 1024 columns)")
    padded: Factor = _of("the same with rows padded to 2048 columns")
    value: Cost = _of("time of a block per value that each of its 1024 threads holds")
    saved: Factor = _of("values per thread whose time is hidden")
    shared: Factor = _of("share of HBM bandwidth, rows staged in shared memory (longer rows)")
    masked: Factor = _of("extra time of rows that hold -inf, as after a mask")
    backward: Factor = _of("share of HBM bandwidth of the backward reduction, one warp a row")


class Bmm(Constants):
    """Batched products with the score matrix on one side: a short K loop, so that memory binds."""

    floor: Cost = _of("start, first loads and last stores")
    read: Factor = _of("share of HBM bandwidth of the operands")
    write: Factor = _of("share of HBM bandwidth of the result, whose stores hide behind nothing")
    rate: Factor = _of("share of the boost-clock matrix rate that a product holds")
    stream: Bandwidth = _of("bytes per second that one thread block has on their way")


class Linear(Constants):
    """Products with a weight matrix."""

    floor: Cost = _of("start, first loads and last stores")
    hbm: Factor = _of("share of HBM bandwidth of weights and activations")
    rate: Factor = _of("share of the boost-clock matrix rate: power lowers the clock of a large product")
    overlap: Factor = _of("power p of (memory^p + matrix^p)^(1/p)")
    split: Cost = _of("a split of K: a second kernel that adds the partial results")


class Fused(Constants):
    """FlashAttention-like kernels, forward or backward."""

    floor: Cost = _of("start and end of the launch")
    tile: Cost = _of("SM time of a tile beyond its blocks: Q load, first K and V, epilogue")
    matrix: Factor = _of("matrix time of a block over that of the boost-clock tensor rate")
    softmax: Factor = _of("softmax time of a block over one exponential per score")
    wide: Factor = _of("factor on both for d above 128, where registers run out")
    masked: Factor = _of("extra blocks' worth of time for each block that the diagonal cuts")
    dropout: Factor = _of("extra softmax time with dropout: a random number per score")
    hbm: Factor = _of("share of HBM bandwidth of Q, K, V, O")


class Decode(Constants):
    """Decode attention: `split` streams the keys, `combine` adds the partial results."""

    floor: Cost = _of("start, Q load, first K and V, epilogue")
    hbm: Factor = _of("share of HBM bandwidth of K and V")
    stream: Bandwidth = _of("bytes per second that one thread block walks through its keys")
    overlap: Factor = _of("power p of (stream^p + memory^p)^(1/p)")
    ramp: Cost = _of("time to fill the memory pipeline, in full once the keys exceed L2")
    combine: Cost = _of("start and end of the combine kernel")
    doubling: Cost = _of("its cost per doubling of the splits")
    partial: Cost = _of("its cost per split, that a block reads one after the other")


class Host(Constants):
    """What launching costs a program in Python, and a CUDA graph."""

    operation: Cost = _of("host time of a simple PyTorch operation")
    fused: Cost = _of("host time of a norm or of scaled_dot_product_attention")
    linear: Cost = _of("host time of a linear layer")
    triton: Cost = _of("host time of a Triton kernel called from Python")
    node: Cost = _of("device time of a tiny dependent kernel in a CUDA graph")
    replay: Cost = _of("host time to launch a CUDA graph")


class Generic(Constants):
    """A good hand-written kernel of any kind: the roofs, at what hardware sustains."""

    floor: Cost = _of("start, first loads and last stores")
    hbm: Factor = _of("sustained share of HBM bandwidth")
    rate: Factor = _of("sustained share of the pipes' rates")


class Calibration(Block):
    """The constants of every family that was measured on this GPU's architecture."""

    elementwise: Elementwise
    softmax: Softmax
    bmm: Bmm
    linear: Linear
    generic: Generic
    host: Host
    forward: Annotated[dict[Library, Fused], Field(min_length=1)]
    backward: Annotated[dict[Library, Fused], Field(min_length=1)]
    decode: Annotated[dict[Library, Decode], Field(min_length=1)]


class Constant(NamedTuple):
    """One constant: its dotted path, value, unit (empty for a plain number), meaning, data and date."""

    path: str
    value: Any
    unit: str
    meaning: str
    data: str
    date: str


def families(calibration: Calibration) -> Iterator[tuple[str, Constants]]:
    """Every set of constants with its path: ``softmax``, ``decode.torch``."""
    for name, value in calibration:
        if isinstance(value, Constants):
            yield name, value
        else:
            yield from ((f"{name}.{library}", constants) for library, constants in value.items())


def constants(calibration: Calibration) -> list[Constant]:
    """Every constant of the block, in the order of the file format."""
    found = []
    for path, family in families(calibration):
        for name, field in type(family).model_fields.items():
            if name not in Constants.model_fields:
                unit = _unit(field.metadata)
                meaning = field.description or ""
                found.append(Constant(f"{path}.{name}", getattr(family, name), unit, meaning, family.data, family.date))
    return found


def _unit(metadata: Any) -> str:
    parsers = [entry.func for entry in metadata if isinstance(entry, BeforeValidator)]
    return getattr(parsers[0], "unit", "") if parsers else ""


_Family = TypeVar("_Family", bound=Constants)


def borrowed(calibration: Calibration, clock: float, pipe: float) -> Calibration:
    """The same constants for a GPU with `clock` times the clock of the one measured, and `pipe` times the
    tensor operations per clock and SM.

    Times are clocks of an SM, so they shrink with the clock; what a block streams grows with it. Shares of
    a bandwidth or a rate stay. PyTorch's FlashAttention-2 issues Ampere's matrix instructions on any GPU:
    the clocks of a block are the same, so its share of a slower tensor pipe is larger, at most all of it.
    """
    scaled: dict[str, Any] = {}
    for name, value in calibration:
        if isinstance(value, Constants):
            scaled[name] = _at_clock(value, clock)
        else:
            scaled[name] = {library: _at_clock(constants, clock) for library, constants in value.items()}
    for name in ("forward", "backward"):
        if "torch" in scaled[name]:
            ours = scaled[name]["torch"]
            scaled[name] = {**scaled[name], "torch": ours.model_copy(update={"matrix": max(1.0, ours.matrix * pipe)})}
    return Calibration.model_construct(**scaled)


_POWER: dict[str, int] = {"s": -1, "B/s": 1}


def _at_clock(family: _Family, ratio: float) -> _Family:
    units = {name: _unit(field.metadata) for name, field in type(family).model_fields.items()}
    changed = {name: getattr(family, name) * ratio ** _POWER[unit] for name, unit in units.items() if unit in _POWER}
    return family.model_copy(update=changed)
