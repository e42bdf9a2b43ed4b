"""A user's kernel design: a YAML file and its params become the same Plan as a built-in variant's."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import cast

from roofcalc.core import Access, Kernel, Mode, Pipe, Plan, RoofcalcError, Shape, Tensor, Tile, Work
from roofcalc.design.expressions import LARGEST, displayed, evaluate, multiply, whole
from roofcalc.design.grammar import FUNCTIONS, ExpressionError
from roofcalc.design.schema import AccessEntry, DesignFile, KernelEntry, TileEntry, WorkEntry
from roofcalc.numeric import Num, everywhere, is_array
from roofcalc.quantities import Measure, QuantityError, count, nearest
from roofcalc.yamlfile import Document, Place, parse, read, validated

_BYTES = Measure("B", "KiB")
_WITH_UNIT = re.compile(r"\s*[0-9.]+(?:[eE][+-]?[0-9]+)?\s*([^\W\d_]\S*)\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FP32 = "matrix products in fp32 run on the CUDA cores: tensor cores have none"


class DesignError(RoofcalcError):
    """Params that a design does not have, or that do not fit it."""


class TileVaries(DesignError):
    """A tile that depends on a param with several values: each needs a plan of its own."""


@dataclass(frozen=True)
class DesignShape:
    """What stands in a report for the sizes of a layer: a design's params by name, and its dtype."""

    dtype: str
    params: Mapping[str, Num]


@dataclass(frozen=True)
class Design:
    """A design with its params filled in.

    `tensors` are all that the file declares, `work` what it says the whole must calculate (empty where
    it does not say), `plan` what its kernels do.
    """

    name: str
    params: Mapping[str, Num]
    tensors: Mapping[str, Tensor]
    work: tuple[Work, ...]
    plan: Plan


def load_design(path: str | Path, params: Mapping[str, str | Num] | None = None) -> Design:
    """The design in the file at `path`; `params` are those of ``-p``, as text, number or NumPy array.

    Raises FileError or DesignError: one line with ``file:line:column`` or the option.
    """
    return _design(read(Path(path)), params or {})


def parse_design(text: str, params: Mapping[str, str | Num] | None = None, origin: str = "design.yaml") -> Design:
    """The design that `text` holds; `origin` names it in errors. Else as load_design."""
    return _design(parse(text, origin), params or {})


def intermediates(plan: Plan) -> tuple[str, ...]:
    """The tensors in memory that one kernel writes first and a later kernel reads."""
    moves = [(i, a) for i, kernel in enumerate(plan.kernels) for a in kernel.accesses if a.tier != "smem"]
    made: dict[str, int] = {}
    used: dict[str, None] = {}
    read_first: set[str] = set()
    for number, access in moves:
        if access.mode == "write":
            made.setdefault(access.tensor, number)
        elif access.tensor not in made:
            read_first.add(access.tensor)
        elif made[access.tensor] < number and access.tensor not in read_first:
            used[access.tensor] = None
    return tuple(used)


@dataclass(frozen=True)
class _Reader:
    """Formulas of one file over its params; every error says where the formula stands."""

    document: Document
    names: Mapping[str, Num]

    def whole(self, place: Place, text: str, least: int = 1) -> Num:
        return self._at(place, lambda: whole(text, self.names, least))

    def value(self, place: Place, text: str) -> Num:
        return self._at(place, lambda: evaluate(text, self.names))

    def times(self, place: Place, text: str, elements: Num) -> Num:
        """The whole number of elements that are `text` times `elements`."""
        found = self._at(place, lambda: evaluate(text, self.names, elements))
        message = f"{text!r} times {elements} elements is {found}"
        if not everywhere(found >= 0):
            raise self.document.error(place, f"{message}; at least 0 is wanted")
        if not everywhere(found % 1 == 0):
            message = f"{message}; a whole number is wanted"
            raise self.document.error(place, f"{message}: write `elements` with ceil(...)")
        return found

    def bytes(self, place: Place, text: str, least: int = 0) -> Num:
        unit = _WITH_UNIT.fullmatch(text)
        if unit is None or unit[1] in self.names:
            return self.whole(place, text, least)
        return self._at(place, lambda: _BYTES(text))

    def _at(self, place: Place, calculate: Callable[[], Num]) -> Num:
        try:
            return calculate()
        except (ExpressionError, QuantityError) as error:
            raise self.document.error(place, str(error)) from None


def _design(document: Document, given: Mapping[str, str | Num]) -> Design:
    said = validated(DesignFile, document)
    params = _params(said, document, given)
    reader = _Reader(document, params)
    tensors = {name: _tensor(reader, said, name) for name in said.tensors}
    work = _work(reader, ("work",), said.work, said.dtype)
    kernels = tuple(_kernel(reader, i, kernel, tensors, said.dtype) for i, kernel in enumerate(said.kernels))
    products = [entry.dtype or said.dtype for k in said.kernels for entry in k.work.get("tensor", ())]
    plan = Plan(
        variant=said.name,
        shape=cast(Shape, DesignShape(said.dtype, params)),
        kernels=kernels,
        source=said.source or document.origin,
        notes=(*said.notes, *([_FP32] if "fp32" in products else [])),
    )
    memory = sum((tensors[name].read().bytes for name in intermediates(plan)), 0)
    if said.memory is not None:
        memory = reader.bytes(("memory",), said.memory)
    return Design(said.name, params, tensors, work, replace(plan, memory=memory))


def _params(said: DesignFile, document: Document, given: Mapping[str, str | Num]) -> dict[str, Num]:
    """The params in the file's order: what was given, else their number or formula over those before."""
    for name, value in given.items():
        if name not in said.params:
            known = nearest(name, said.params) if said.params else "; it has no params"
            raise document.error(("params",), f"-p {name}={value}: the design has no param {name!r}{known}")
    values: dict[str, Num] = {}
    for name, text in said.params.items():
        place: Place = ("params", name)
        if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in FUNCTIONS:
            wanted = "a name has letters, digits and _, and is no function and no word of Python"
            raise document.error(place, f"{name!r} cannot name a param; {wanted}", key=True)
        if name in given:
            values[name] = _given(name, given[name])
            continue
        reader = _Reader(document, values)
        formula = re.search(r"[A-Za-z_(/*%]", text) is not None
        values[name] = reader.value(place, text) if formula else reader.whole(place, text)
    return values


def _given(name: str, value: str | Num) -> Num:
    """A param's value from ``-p``: a count, or an array of counts from a sweep."""
    if is_array(value):
        return value
    try:
        return count(value)
    except QuantityError as error:
        raise DesignError(f"-p {name}={value}: {error}") from None


def _tensor(reader: _Reader, said: DesignFile, name: str) -> Tensor:
    entry = said.tensors[name]
    place: Place = ("tensors", name)
    written = isinstance(reader.document.data["tensors"][name], dict)
    inner: Place = (*place, "shape") if written else place
    sizes = [reader.whole((*inner, i), size) for i, size in enumerate(entry.shape)]
    why = entry.why or "·".join(factor(size) for size in entry.shape)
    try:
        elements = reduce(multiply, sizes)
    except OverflowError:
        elements = LARGEST
    if not everywhere(elements < LARGEST):
        raise reader.document.error(place, "the tensor is too large; no GPU counts to 10^30")
    return Tensor(name, elements, entry.dtype or said.dtype, why)


def factor(text: str) -> str:
    """A formula as a factor of a product."""
    bare = re.fullmatch(r"[\w.]+(?:\s*\*\s*[\w.]+)*|\w+\([^()]*\)", text.strip())
    return displayed(text) if bare else f"({displayed(text)})"


def _kernel(reader: _Reader, number: int, said: KernelEntry, tensors: Mapping[str, Tensor], dtype: str) -> Kernel:
    place: Place = ("kernels", number)
    reads = [_access(reader, (*place, "reads", i), a, "read", tensors) for i, a in enumerate(said.reads)]
    writes = [_access(reader, (*place, "writes", i), a, "write", tensors) for i, a in enumerate(said.writes)]
    flight = said.in_flight
    work = _work(reader, (*place, "work"), said.work, dtype)
    if all(everywhere(n == 0) for n in (*(a.elements for a in (*reads, *writes)), *(item.run for item in work))):
        raise reader.document.error(place, "the kernel does nothing; give it reads, writes or work")
    return Kernel(
        name=said.name,
        work=work,
        accesses=(*reads, *writes),
        launches=reader.whole((*place, "launches"), said.launches),
        grid=None if said.grid is None else reader.whole((*place, "grid"), said.grid),
        tile=None if said.tile is None else _tile(reader, (*place, "tile"), said.tile),
        own_sms=said.own_sms,
        in_flight=None if flight is None else reader.bytes((*place, "in_flight"), flight, 1),
    )


def _access(reader: _Reader, place: Place, said: AccessEntry, mode: Mode, tensors: Mapping[str, Tensor]) -> Access:
    if said.tensor not in tensors:
        at = (*place, "tensor")
        raise reader.document.error(at, f"unknown tensor {said.tensor!r}{nearest(said.tensor, tensors)}")
    if said.times is not None and said.elements is not None:
        message = "times and elements exclude each other; give one of them"
        raise reader.document.error((*place, "elements"), message, key=True)
    tensor = tensors[said.tensor]
    elements, why = tensor.elements, tensor.why
    if said.times is not None:
        elements = reader.times((*place, "times"), said.times, elements)
        why = f"{factor(said.times)}·{why}"
    if said.elements is not None:
        elements, why = reader.whole((*place, "elements"), said.elements, 0), displayed(said.elements)
    return Access(said.tensor, elements, said.dtype or tensor.dtype, said.tier, mode, said.why or why)


def _work(reader: _Reader, place: Place, said: Mapping[Pipe, list[WorkEntry]], dtype: str) -> tuple[Work, ...]:
    return tuple(
        _item(reader, (*place, pipe, i), pipe, entry, dtype)
        for pipe, entries in said.items()
        for i, entry in enumerate(entries)
    )


def _item(reader: _Reader, place: Place, pipe: Pipe, said: WorkEntry, dtype: str) -> Work:
    """One work item. Tensor cores have no full fp32 product: that one runs on the vector pipe."""
    ops = reader.whole((*place, "ops"), said.ops, 0)
    executed = None if said.executed is None else reader.whole((*place, "executed"), said.executed, 0)
    if executed is not None and not everywhere(executed >= ops):
        message = f"{executed} operations are fewer than the {ops} of ops, which the algorithm needs"
        raise reader.document.error((*place, "executed"), message)
    kind = said.dtype or (dtype if pipe == "tensor" else "fp32")
    runs_on: Pipe = "vector" if pipe == "tensor" and kind == "fp32" else pipe
    return Work(runs_on, ops, said.why or displayed(said.ops), kind, executed)


def _tile(reader: _Reader, place: Place, said: TileEntry) -> Tile:
    smem = reader.bytes((*place, "smem"), said.smem)
    sizes = {name: getattr(said, name) for name in ("threads", "registers", "stages", "block_q", "block_kv")}
    found = {name: reader.whole((*place, name), text) for name, text in sizes.items() if text is not None}
    for name, value in {**found, "smem": smem}.items():
        if is_array(value):
            message = f"{name} varies with a param that has several values; calculate them one by one"
            raise TileVaries(str(reader.document.error((*place, name), message)))
    return Tile(smem=smem, **found)
