"""A plan as a design's YAML: what a user starts from who wants a variant of a built-in kernel."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

from roofcalc.core import Access, Plan, Work
from roofcalc.design.expressions import displayed, evaluate
from roofcalc.design.fit import SIZES, Fitted, Rebuild, Sample, fit, pairs, samples
from roofcalc.design.load import factor
from roofcalc.numeric import Num

_MOST_TIMES = 4
"""A constant factor of a tensor's formula up to this one counts passes over it; above, it is a size."""


def export(plan: Plan, name: str, rebuild: Rebuild | None = None) -> str:
    """The design called `name` that gives the report of `plan` to the digit, as YAML text.

    `rebuild` plans the same variant at another shape; with it the numbers that follow the sizes are
    written as formulas over params, and notes that quote a size are left out. Without it every number
    is written out.
    """
    found = samples(plan, rebuild)
    tensors = _tensors(found)
    body = ["tensors:"]
    for tensor in tensors.values():
        mark = _mark([("", tensor.fitted)], found)
        body.append(f"  {_scalar(tensor.name)}: {tensor.entry(plan.shape.dtype)}{mark}")
    body.append("kernels:")
    for number in range(len(plan.kernels)):
        body += _kernel(found, number, tensors)
    memory = fit(found, lambda p: p.memory)
    body.append(f"memory: {_scalar(memory.text)}{_mark([('', memory)], found)}")
    # A note may quote sizes: where the params can change, only what holds at every sampled size is said.
    notes = [note for note in plan.notes if all(note in sample.plan.notes for sample in found)]
    # The expected time of a design is that of a kernel of its own, whosever the variant's is.
    notes = [note for note in notes if not note.startswith("expected is ")]
    if notes:
        body += ["notes:", *(f"  - {_quoted(note)}" for note in notes)]
    head = [*_comment(plan, len(found) > 1), f"name: {_scalar(name)}", f"source: {_quoted(plan.source)}"]
    params = _params(found, "\n".join(body)) if len(found) > 1 else {}
    if params:
        head += ["params:", *(f"  {key}: {_scalar(text)}" for key, text in params.items())]
    return "\n".join([*head, f"dtype: {plan.shape.dtype}", *body]) + "\n"


@dataclass(frozen=True)
class _Declared:
    """A tensor as the file declares it: the least that a kernel moves of it at once.

    Its formula is split into its sizes and how many times over even that kernel moves it.
    """

    name: str
    kernel: int
    line: int
    dtype: str
    sizes: tuple[str, ...]
    fitted: Fitted
    why: str

    @property
    def default(self) -> str:
        return "·".join(factor(size) for size in self.sizes)

    @property
    def said(self) -> str:
        """Its formula as the ledger gives it: its sizes, or where they have none the access's own."""
        return self.why if self.fitted.fixed else self.default

    def elements(self, sample: Sample) -> Num:
        if self.fitted.fixed:
            return _elements(self.kernel, self.line, sample.plan)
        return prod(evaluate(size, sample.names) for size in self.sizes)

    def entry(self, dtype: str) -> str:
        shape = f"[{', '.join(_scalar(size) for size in self.sizes)}]"
        more = {} if self.dtype == dtype else {"dtype": self.dtype}
        more |= {} if self.said == self.default else {"why": _quoted(self.said)}
        return _flow({"shape": shape, **more}) if more else shape


def _tensors(found: Sequence[Sample]) -> dict[str, _Declared]:
    """Every tensor that a kernel moves, by name, in the order of their use."""
    lines = [(i, j, a) for i, k in enumerate(found[0].plan.kernels) for j, a in enumerate(k.accesses)]
    return {name: _tensor(found, lines, name) for name in dict.fromkeys(a.tensor for _, _, a in lines)}


def _tensor(found: Sequence[Sample], lines: Sequence[tuple[int, int, Access]], name: str) -> _Declared:
    moved = [line for line in lines if line[2].tensor == name]
    i, j, least = min(moved, key=lambda line: line[2].elements or math.inf)
    fitted = fit(found, partial(_elements, i, j), sizes=True)
    fitted = fit(found, partial(_elements, i, j), i, why=least.why) if fitted.fixed else fitted
    factors = _factors(fitted.text)
    sizes = tuple(text for text in factors if text in SIZES or (text.isdigit() and int(text) > _MOST_TIMES))
    whole = not set(factors) & set(SIZES) or "/" in fitted.text.replace(" / ", "", fitted.text.count("ceil("))
    if whole:  # no size in it: the number itself is the shape
        return _Declared(name, i, j, least.dtype, (str(least.elements),), Fitted(fitted.text, SIZES), least.why)
    return _Declared(name, i, j, least.dtype, sizes, fitted, least.why)


def _factors(text: str) -> list[str]:
    """The factors of a product: what stands between its stars, brackets left whole."""
    return re.split(r"\*(?![^()]*\))", text)


def _elements(kernel: int, line: int, plan: Plan) -> Num:
    return plan.kernels[kernel].accesses[line].elements


def _kernel(found: Sequence[Sample], number: int, tensors: Mapping[str, _Declared]) -> list[str]:
    kernel = found[0].plan.kernels[number]
    fitted: list[tuple[str, Fitted]] = []

    def text(what: str, of: Any) -> str:
        """The number that `of` takes from a kernel, as text; `what` is marked where it is fixed."""
        fitted.append((what, fit(found, lambda plan: of(plan.kernels[number]), number)))
        return fitted[-1][1].text

    lines: list[str] = []
    for mode, label in (("read", "reads"), ("write", "writes")):
        moves = [_access(found, number, j, tensors, fitted) for j, a in enumerate(kernel.accesses) if a.mode == mode]
        lines += _block(label, moves)
    done = [(item.pipe, _work(found[0].plan, item, i, text)) for i, item in enumerate(kernel.work)]
    if done:
        lines.append("work:")
    for pipe in dict.fromkeys(pipe for pipe, _ in done):
        lines += [f"  {line}" for line in _block(pipe, [entry for of, entry in done if of == pipe])]
    if kernel.launches != 1:
        lines.append(f"launches: {kernel.launches}")
    if kernel.grid is not None:
        lines.append(f"grid: {_scalar(text('grid', lambda k: k.grid))}")
    if kernel.tile is not None:
        smem = text("smem", lambda k: k.tile.smem)
        sizes = {n: getattr(kernel.tile, n) for n in ("threads", "registers", "stages", "block_q", "block_kv")}
        lines.append(f"tile: {_flow({'smem': _scalar(smem)} | {n: str(v) for n, v in sizes.items() if v})}")
    if kernel.own_sms:
        lines.append("own_sms: true")
    if kernel.in_flight is not None:
        lines.append(f"in_flight: {_scalar(text('in_flight', lambda k: k.in_flight))}")
    return [f"  - name: {_scalar(kernel.name)}{_mark(fitted, found)}", *(f"    {line}" for line in lines)]


def _access(
    found: Sequence[Sample], number: int, line: int, tensors: Mapping[str, _Declared], fitted: list[tuple[str, Fitted]]
) -> str:
    access: Access = found[0].plan.kernels[number].accesses[line]
    tensor = tensors[access.tensor]
    own = partial(_elements, number, line)
    whole = {id(sample.plan): tensor.elements(sample) for sample in found}
    said: dict[str, str] = {}
    why = tensor.said
    if any(own(sample.plan) != whole[id(sample.plan)] for sample in found):
        times = _times(found, lambda p: Fraction(own(p)) / (whole[id(p)] or 1), number, access.why)
        said, why = {"times": _scalar(times.text)}, f"{factor(times.text)}·{why}"
        if times.fixed:
            times = fit(found, own, number)
            said, why = {"elements": _scalar(times.text)}, displayed(times.text)
        fitted.append((access.tensor, times))
    said |= {} if access.tier == "hbm" else {"tier": access.tier}
    said |= {} if access.dtype == tensor.dtype else {"dtype": access.dtype}
    said |= {} if access.why == why else {"why": _quoted(access.why)}
    return _flow({"tensor": _scalar(access.tensor), **said}) if said else _scalar(access.tensor)


def _times(found: Sequence[Sample], number: Callable[[Plan], Num], kernel: int, why: str) -> Fitted:
    """How often a tensor is moved: a product, or a product less one (what is read again)."""
    times = fit(found, number, kernel, why=why)
    again = fit(found, lambda plan: number(plan) + 1, kernel) if times.fixed else times
    return times if again.fixed or not times.fixed else replace(again, text=f"{again.text} - 1")


def _work(plan: Plan, item: Work, i: int, text: Any) -> str:
    ops = text(f"{item.pipe} ops", lambda k: k.work[i].ops)
    said = {"ops": _scalar(ops)}
    executed = text(f"{item.pipe} executed", lambda k: k.work[i].run)
    said |= {} if executed == ops else {"executed": _scalar(executed)}
    usual = plan.shape.dtype if item.pipe == "tensor" else "fp32"
    said |= {} if item.dtype == usual else {"dtype": item.dtype}
    said |= {} if item.why == displayed(ops) else {"why": _quoted(item.why)}
    return _flow(said) if len(said) > 1 else said["ops"]


def _mark(fitted: Sequence[tuple[str, Fitted]], found: Sequence[Sample]) -> str:
    """The comment that says which numbers hold at the exported sizes only, or at some of them."""
    if len(found) < 2:
        return ""
    groups: dict[tuple[str, ...], list[str]] = {}
    for what, one in dict.fromkeys(fitted):
        if one.held:
            groups.setdefault(one.held, []).append(what)
    notes = []
    for sizes, names in groups.items():
        at = "these sizes" if sizes == SIZES else f"this {' and '.join(sizes)}"
        notes.append(f"fixed at {at}: {', '.join(dict.fromkeys(names))}".removesuffix(": "))
    return f"  # {'; '.join(notes)}" if notes else ""


def _params(found: Sequence[Sample], body: str) -> dict[str, str]:
    """The sizes that the formulas use, and `pairs` with what its formula needs."""
    used = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r'\[[^\]]*\]|"[^"]*"|: [\w.]+', body))))
    derived = pairs(found) if "pairs" in used else {}
    used |= set(re.findall(r"[A-Za-z_]+", " ".join(derived.values())))
    return {name: str(found[0].names[name]) for name in SIZES if name in used} | derived


def _comment(plan: Plan, symbolic: bool) -> list[str]:
    shape: Any = plan.shape
    known = [*SIZES, "causal", "window", "layers", "direction"]
    sizes = ", ".join(f"{n}={getattr(shape, n)}" for n in known if getattr(shape, n, None) is not None)
    follow = "Every number is written out: it holds at these sizes only."
    if symbolic:
        follow = "Formulas follow the params; a number marked as fixed holds at these sizes only."
    return [f"# {plan.variant} of roofcalc as a kernel design, at {sizes or 'its params'}.", f"# {follow}"]


def _block(label: str, entries: Sequence[str]) -> list[str]:
    """A list: on one line while its entries are short, else an entry a line."""
    if not entries:
        return []
    line = f"{label}: [{', '.join(entries)}]"
    if len(line) <= 90:
        return [line if len(entries) > 1 or label in ("reads", "writes") else f"{label}: {entries[0]}"]
    return [f"{label}:", *(f"  - {entry}" for entry in entries)]


def _flow(entries: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{key}: {value}' for key, value in entries.items())}}}"


def _scalar(text: str) -> str:
    """A formula as YAML: bare where it is a name or a number."""
    return (
        text
        if re.fullmatch(r"[A-Za-z_][\w-]*|[0-9]+", text, re.ASCII) and text.lower() not in ("on", "off", "yes", "no")
        else _quoted(text)
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
