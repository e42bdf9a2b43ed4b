"""The matrices of a layer as launches: which share one, what each reads, and what it multiplies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcalc.core import BITS, Access, Kernel, Limits, Tensor
from roofcalc.models.linear import linear
from roofcalc.numeric import Num

if TYPE_CHECKING:
    from roofcalc.hf import Model, Weight

NARROW = ("int8", "int4")
OVERHEAD = 2
"""Most bits that scales and zeros add to a number of a quantised matrix; beyond, it counts as packed bytes."""

BLOCKS = ("self_attn", "cross_attn", "attention", "mlp", "mixer", "mamba", "shared", "conv", "feed_forward")
"""Prefixes of module names that a launch's name can do without."""

OUTPUTS = ("o", "out", "output", "linear_out", "down")
"""Last words of the matrices that lead back to the residual stream."""


JOINT = ("qkv", "down")
"""Short names that need no `_proj` to be understood."""


@dataclass(frozen=True)
class Reader:
    """How a model's weights are read: `bits(model, module name, weight)` of storage, all copies and scales
    included, and `touched(copies, used, tokens)`, the copies that at least one token picks."""

    bits: Callable[[Model, str, Weight], int]
    touched: Callable[[int, int, float], float]


@dataclass(frozen=True)
class Held:
    """A weight and the bits that it takes."""

    weight: Weight
    bits: int


@dataclass(frozen=True)
class Setting:
    """What every kernel of a step needs: the dtype of activations, that of products with 8-bit weights, the
    tokens that pass the layers, the GPU's limits and how weights are read."""

    dtype: str
    narrow: str
    tokens: int
    limits: Limits
    reader: Reader


@dataclass(frozen=True)
class Launch:
    """Matrices that one launch reads: equal inputs, outputs side by side. `biases` go with them."""

    name: str
    part: str
    matrices: tuple[Held, ...]
    biases: tuple[Held, ...] = ()

    @property
    def title(self) -> str:
        """What its kernel is called: `o_proj` where `o` would say too little."""
        return f"{self.name}_proj" if len(self.name) <= 4 and self.name not in JOINT else self.name

    @property
    def inputs(self) -> int:
        return self.matrices[0].weight.inputs

    @property
    def outputs(self) -> int:
        return sum(held.weight.outputs for held in self.matrices)

    @property
    def experts(self) -> bool:
        return self.matrices[0].weight.copies > 1

    def rows(self, tokens: int) -> int:
        """Rows of the result: one for each expert that a token uses."""
        return tokens * self.matrices[0].weight.used

    @property
    def leads_out(self) -> bool:
        """Whether its result goes to the residual stream."""
        return self.name.removeprefix("experts_").removeprefix("shared_").removeprefix("residual_") in OUTPUTS


def short(name: str) -> str:
    """`self_attn.q_proj` as `q`, `mlp.experts.down_proj` as `experts_down`."""
    *before, leaf = name.split(".")
    leaf = leaf.removesuffix("_with_mqa").removesuffix("_proj")
    prefix = before[-1] if before else ""
    if prefix in BLOCKS or not prefix:
        return leaf
    return f"{prefix.removesuffix('_experts').removesuffix('_mlp')}_{leaf}"


def launches(held: Iterable[Held]) -> tuple[Launch, ...]:
    """The launches of a layer's matrices in their order: Q, K and V side by side, gate and up too."""
    held = tuple(held)
    found: dict[tuple[str, int, int], list[Held]] = {}
    for one in held:
        w = one.weight
        if w.role == "linear":
            found.setdefault((_launch_name(w), w.inputs, w.copies), []).append(one)
    names = [name for name, _, _ in found]
    return tuple(
        Launch(
            name if names.count(name) == 1 else f"{name}_{inputs}",
            ones[0].weight.part,
            tuple(ones),
            _biases(ones, held),
        )
        for (name, inputs, _), ones in found.items()
    )


def _launch_name(w: Weight) -> str:
    if w.part == "router":
        return "router"
    name = short(w.name)
    if w.part == "attention" and name in ("q", "k", "v", "gate"):
        return "qkv"
    head, joint, leaf = name.rpartition("_")
    if w.part == "mlp" and leaf in ("gate", "up") and head != "adapter" and not head.endswith("gate"):
        return f"{head}{joint}gate_up"
    return name


def _biases(ones: Sequence[Held], held: Sequence[Held]) -> tuple[Held, ...]:
    names = {f"{one.weight.name}.bias" for one in ones}
    return tuple(one for one in held if one.weight.role == "vector" and one.weight.name in names)


def vectors(held: Iterable[Held], taken: Sequence[Launch]) -> tuple[Held, ...]:
    """The vectors of a layer that are no bias of its launches."""
    biases = {id(one) for launch in taken for one in launch.biases}
    return tuple(one for one in held if one.weight.role == "vector" and id(one) not in biases)


def read(name: str, held: Sequence[Held], dtype: str, share: float = 1, why: str = "n·k") -> tuple[Access, ...]:
    """The ledger lines of reading `share` of these weights once: numbers by the dtype they are stored in,
    and what their scales and zeros take beside them."""
    numbers: dict[tuple[str, str], Num] = {}
    for one in held:
        for kind, count in _storage(one, dtype).items():
            numbers[kind] = numbers.get(kind, 0) + count
    return tuple(
        Tensor(f"{name}{suffix}", count if share == 1 else round(count * share), stored, why).read()
        for (suffix, stored), count in numbers.items()
        if count
    )


def _storage(one: Held, dtype: str) -> dict[tuple[str, str], int]:
    elements = one.weight.elements
    if one.bits == elements * BITS[dtype]:
        return {("", dtype): elements}
    for narrow in NARROW:
        rest = one.bits - elements * BITS[narrow]
        if 0 <= rest < OVERHEAD * elements:
            return {("", narrow): elements, ("_scale", "fp16"): -(-rest // 16)}
    return {("", "int8"): -(-one.bits // 8)}


def product(launch: Launch, at: Setting, x: str, outputs: tuple[Access, ...] = (), rows: int | None = None) -> Kernel:
    """The kernel of a launch: it reads `x`, its weights once (of experts the touched ones), writes its result.

    `outputs` stand in for the one result that is named after the launch; `rows` is the tokens that pass it.
    """
    tokens = at.tokens if rows is None else rows
    first = launch.matrices[0].weight
    m, n, k = launch.rows(tokens), launch.outputs, launch.inputs
    share = at.reader.touched(first.copies, first.used, tokens) / first.copies if launch.experts else 1
    eight_bit = all(8 * h.weight.elements <= h.bits < 10 * h.weight.elements for h in launch.matrices)
    kernel = linear(
        launch.title, m=m, n=n, k=k, dtype=at.narrow if eight_bit else at.dtype, out=at.dtype, limits=at.limits
    )
    why = "n·k" if share == 1 else f"n·k·{share * first.copies:.4g} touched of {first.copies}"
    x_rows = m if launch.leads_out else tokens
    lines = (
        Tensor(x, x_rows * k, at.dtype, "m·k").read(),
        *read(f"W_{launch.name}", launch.matrices, at.dtype, share, why),
        *read(f"w_{launch.name}_bias", launch.biases, at.dtype, share, "n"),
        *(outputs or (Tensor(launch.name, m * n, at.dtype, "m·n").write(),)),
    )
    return replace(kernel, accesses=lines, group="weights")
