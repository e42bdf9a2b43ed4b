"""What can be done to a plan: neighbours become one kernel, and what that saves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from roofcalc.core import Access, Kernel, Plan, Report, RoofcalcError
from roofcalc.models.step import activations, is_activation
from roofcalc.numeric import Num


class FusionError(RoofcalcError):
    """Kernels that cannot become one."""


def fuse(plan: Plan, names: Sequence[str], name: str | None = None) -> Plan:
    """The plan with every run of neighbours called `names` as one kernel, `name` (their names joined by +).

    What one of them writes and a later one reads stays on chip: the read goes, and the write too unless a
    kernel after them reads it. What two of them read is read once. Work is kept as it is: a tiled kernel
    may repeat some of it. Raises FusionError where no such run exists or its launches differ in number.
    """
    names = tuple(names)
    found = [i for i in range(len(plan.kernels)) if tuple(k.name for k in plan.kernels[i : i + len(names)]) == names]
    if len(names) < 2 or not found:
        have = ", ".join(kernel.name for kernel in plan.kernels)
        raise FusionError(f"no neighbours {', '.join(names)} to fuse in {plan.variant}; its kernels are {have}")
    spans = []
    end = 0
    for start in found:
        if start >= end:
            end = start + len(names)
            spans.append((start, end))
    joined = _joined(plan, spans, name)
    return replace(joined, memory=max(0, plan.memory - _gone(plan, joined)))


def _gone(plan: Plan, joined: Plan) -> Num:
    """Bytes of the tensors that a plan writes and the fused one does not."""
    before, after = (
        {line.tensor: line.bytes for kernel in one.kernels for line in kernel.accesses if line.mode == "write"}
        for one in (plan, joined)
    )
    return sum((size for tensor, size in before.items() if tensor not in after), 0)


def fuse_step(plan: Plan) -> Plan:
    """Every elementwise kernel of a step joined to the matrix product beside it (`--fusion all`).

    A norm goes into the product that follows it; activation, rotation, cache append and residual sum into
    the one before them.
    """
    spans = []
    start = 0
    for end in range(1, len(plan.kernels) + 1):
        if end == len(plan.kernels) or not _joins(plan.kernels[start:end], plan.kernels[end]):
            if end - start > 1:
                spans.append((start, end))
            start = end
    joined = _joined(plan, spans, None)
    return replace(joined, memory=activations(joined.kernels))


def warm_step(plan: Plan, l2: Num) -> Plan:
    """A step whose activations stay in an L2 cache of `l2` bytes from one kernel to the next (`--cache warm`).

    Weights, cache and states are read once a step and come from memory, unless all that a step touches fits.
    """
    touched = sum((kernel.launches * kernel.bytes_through("hbm") for kernel in plan.kernels), 0)
    return replace(plan, kernels=tuple(_warm(kernel, l2, bool(touched <= l2)) for kernel in plan.kernels))


def _warm(kernel: Kernel, l2: Num, whole: bool) -> Kernel:
    def stays(line: Access) -> bool:
        return line.tier == "hbm" and (whole or is_activation(line.tensor))

    if sum((line.bytes for line in kernel.accesses if stays(line)), 0) > l2:
        return kernel
    lines = tuple(replace(line, tier="l2") if stays(line) else line for line in kernel.accesses)
    return replace(kernel, accesses=lines)


def _joins(run: Sequence[Kernel], following: Kernel) -> bool:
    """Whether a kernel goes on with a run: at most one product in it, norms first, and all as often."""
    last = run[-1]
    written = {line.tensor for kernel in run for line in kernel.accesses if line.mode == "write"}
    if last.launches != following.launches or not any(_reads(following, tensor) for tensor in written):
        return False
    products = [kernel for kernel in run if _multiplies(kernel)]
    if _multiplies(following):
        return not products and len(run) == 1 and "norm" in last.name
    if following.group == "attention":
        return bool(products) and following.name.startswith("append")
    return bool(products) and "norm" not in following.name


def _multiplies(kernel: Kernel) -> bool:
    return kernel.family == "linear"


def _reads(kernel: Kernel, tensor: str) -> bool:
    return _has(kernel, tensor, "read")


def _joined(plan: Plan, spans: Iterable[tuple[int, int]], name: str | None) -> Plan:
    """The plan with each span of kernels as one."""
    kernels: list[Kernel] = []
    place = 0
    for start, end in spans:
        kernels += plan.kernels[place:start]
        # A layer that runs again reads what its last run left, so what stands before it comes after it too.
        again = plan.kernels[:start] if plan.kernels[start].launches > 1 else ()
        kernels.append(_one(plan.kernels[start:end], (*plan.kernels[end:], *again), name))
        place = end
    return replace(plan, kernels=(*kernels, *plan.kernels[place:]))


def _one(run: Sequence[Kernel], later: Sequence[Kernel], name: str | None) -> Kernel:
    """One kernel that does what `run` does; `later` are the kernels that may still read its results."""
    if len({kernel.launches for kernel in run}) > 1:
        counts = ", ".join(f"{kernel.name} {kernel.launches}" for kernel in run)
        raise FusionError(f"kernels that are launched as often can be fused; these are not: {counts}")
    products = [kernel for kernel in run if _multiplies(kernel)]
    tiled = [kernel for kernel in run if kernel.tile is not None]
    main = products[0] if products else tiled[0] if len(tiled) == 1 else replace(run[0], tile=None, grid=None)
    family = main.family if len(products) == 1 else None
    groups = dict.fromkeys(kernel.group for kernel in run)
    return replace(
        main,
        name=name or "+".join(kernel.name for kernel in run),
        work=tuple(work for kernel in run for work in kernel.work),
        accesses=_kept(run, later),
        family=family,
        sizes=main.sizes if family else {},
        group=next((group for group in ("head", "weights") if group in groups), run[0].group),
    )


def _kept(run: Sequence[Kernel], later: Sequence[Kernel]) -> tuple[Access, ...]:
    """The accesses of a run that still reach memory, in its order."""
    kept: list[Access] = []
    for i, kernel in enumerate(run):
        before = len(kept)
        for line in kernel.accesses:
            if line.mode == "write":
                kept += [line] if _needed(line, run[i + 1 :], later) else []
            elif not any(_has(one, line.tensor, "write") for one in run[:i]):
                _read_once(kept, before, line)
    return tuple(kept)


def _read_once(kept: list[Access], before: int, line: Access) -> None:
    """Add a read, unless a kernel before (its lines end at `before`) read that tensor: the larger one stays."""
    for n, one in enumerate(kept[:before]):
        if (one.tensor, one.mode, one.tier) == (line.tensor, "read", line.tier):
            kept[n] = line if line.bytes > one.bytes else one
            return
    kept.append(line)


def _needed(line: Access, rest: Sequence[Kernel], later: Sequence[Kernel]) -> bool:
    """Whether what is written must reach memory: not where it is written anew inside, nor where it is read
    inside and by no kernel after, before that writes it anew."""
    if any(_has(kernel, line.tensor, "write") for kernel in rest):
        return False
    if not any(_has(kernel, line.tensor, "read") for kernel in rest):
        return True
    for kernel in later:
        if _has(kernel, line.tensor, "read"):
            return True
        if _has(kernel, line.tensor, "write"):
            return False
    return False


def _has(kernel: Kernel, tensor: str, mode: str) -> bool:
    return any(line.tensor == tensor and line.mode == mode for line in kernel.accesses)


def chains(plan: Plan) -> tuple[Plan, ...]:
    """The plan, then with its first two kernels fused, its first three, and so on to a single one."""
    names = [kernel.name for kernel in plan.kernels]
    joined = (fuse(plan, names[:end]) for end in range(2, len(names) + 1))
    return (plan, *(replace(one, variant=one.kernels[0].name) for one in joined))


PAYS = 0.01
"""Share of the time before a fusion above which its saving counts as such."""


@dataclass(frozen=True)
class Saving:
    """A chain after one more fusion: its launches, HBM bytes and seconds, and what it saved over `before`.

    `hidden` is the round trip's time that the roofline does not give back, since another roof binds.
    """

    name: str
    launches: Num
    bytes: Num
    time: Num
    before: str | None
    saved_write: Num = 0
    saved_read: Num = 0
    saved_time: Num = 0
    hidden: Num = 0

    @property
    def verdict(self) -> str:
        """Whether the fusion pays, in words."""
        share = self.saved_time / (self.time + self.saved_time)
        if share < PAYS:
            return f"for the launch, not for the bytes ({100 * share:.2g} % of the time)"
        said = f"yes: {100 * share:.2g} % of the chain's time"
        if self.hidden > PAYS * self.time:
            part = self.hidden / (self.hidden + self.saved_time)
            return f"{said}; {100 * part:.2g} % of the round trip hides behind compute"
        return said

    def fields(self) -> dict[str, object]:
        """The figures by their JSON names."""
        names = ("name", "before", "launches", "bytes", "time", "saved_write", "saved_read", "saved_time")
        return {name: getattr(self, name) for name in names} | {"verdict": self.verdict if self.before else None}


def savings(reports: Sequence[Report], bandwidth: float) -> tuple[Saving, ...]:
    """What each of a sequence of ever more fused reports saves over the one before it."""
    first = reports[0]
    found = [Saving(first.variant, first.total.launches, first.total.bytes, first.total.time, None)]
    for old, new in pairwise(reports):
        write, read = (_moved(old, mode) - _moved(new, mode) for mode in ("write", "read"))
        gained = old.total.time - new.total.time
        total = new.total
        hidden = (write + read) / bandwidth - gained
        found.append(
            Saving(new.variant, total.launches, total.bytes, total.time, old.variant, write, read, gained, hidden)
        )
    return tuple(found)


def _moved(report: Report, mode: str) -> Num:
    lines = [(row, line) for row in report.kernels for line in row.ledger if line.tier == "hbm"]
    return sum((row.launches * line.bytes for row, line in lines if line.mode == mode), 0)
