"""What a design moves: against the least that it must, against L2, and from one kernel to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roofcalc.core import Access, Kernel, Mode, Plan, Report, Tensor
from roofcalc.design.finding import Finding, percent, seconds, size, times
from roofcalc.design.load import Design, intermediates
from roofcalc.numeric import Num


def ends(design: Design) -> tuple[tuple[Tensor, Mode], ...]:
    """What must cross the memory bus: the inputs, read before any kernel writes them, and the outputs,
    which no kernel reads after they are written."""
    moves = [a for kernel in design.plan.kernels for a in kernel.accesses if a.tier != "smem"]
    found: list[tuple[Tensor, Mode]] = []
    for name, tensor in design.tensors.items():
        modes = [a.mode for a in moves if a.tensor == name]
        found += [(tensor, "read")] if modes[:1] == ["read"] else []
        found += [(tensor, "write")] if modes[-1:] == ["write"] else []
    return tuple(found)


def footprint(design: Design) -> Num:
    """Bytes of device memory: inputs and outputs (once each), and what is held in between."""
    outside = {tensor.name: tensor for tensor, _ in ends(design)}
    return sum(tensor.read().bytes for tensor in outside.values()) + design.plan.memory


def compulsory(design: Design) -> Iterator[Finding]:
    """Traffic against inputs once and outputs once: below it no kernel can be."""
    plan, least = design.plan, 0
    for tensor, mode in ends(design):
        size_of = tensor.read().bytes
        least += size_of
        moved = _moved(plan, tensor.name, mode)
        if moved < size_of:
            way = "read from" if mode == "read" else "written to"
            text = f"{tensor.name}: {size(moved)} of its {size(size_of)} are {way} memory"
            text = f"{text} ({percent(moved / size_of)}), below the compulsory traffic: all of it must be, once"
            yield Finding("compulsory", text, value=moved, forbids=True)
    moved = sum(k.launches * k.bytes_through("hbm") for k in plan.kernels)
    if least:
        text = f"{size(moved)} through memory, {times(moved / least)} the compulsory {size(least)}"
        yield Finding("compulsory", f"{text} (inputs and outputs once)", value=moved / least)


def _moved(plan: Plan, name: str, mode: Mode) -> Num:
    """Bytes of a tensor read from or written to memory by all kernels."""
    return sum(_hbm(kernel, name, mode) for kernel in plan.kernels)


def _of(kernel: Kernel, name: str) -> list[Access]:
    return [a for a in kernel.accesses if a.tensor == name]


def fusion(plan: Plan, report: Report) -> Iterator[Finding]:
    """What each kernel writes and the next reads back, and what one kernel for both would save.

    The fused kernel does the work of both and moves all but the intermediates; its time is its largest
    roof. Where every kernel hands something to the next, the whole chain as one kernel comes last.
    """
    pairs = [_saved(plan, i, i + 2) for i in range(len(plan.kernels) - 1)]
    for i, (names, saved) in enumerate(pairs):
        if names:
            yield _fused(plan, report, i, i + 2, names, saved)
    if len(pairs) > 1 and all(names for names, _ in pairs):
        yield _fused(plan, report, 0, len(plan.kernels), *_saved(plan, 0, len(plan.kernels)))


def _saved(plan: Plan, start: int, stop: int) -> tuple[list[str], Num]:
    """The intermediates that stay inside kernels start ... stop - 1 made one, and the bytes that they cost.

    What a later kernel reads must still be written.
    """
    inside, later = plan.kernels[start:stop], plan.kernels[stop:]
    names, saved = [], 0
    for name in intermediates(plan):
        writes = [_hbm(kernel, name, "write") for kernel in inside]
        first = next((i for i, moved in enumerate(writes) if moved), len(inside))
        back = sum(_hbm(kernel, name, "read") for kernel in inside[first + 1 :])
        if back:
            kept = [moved for moved in writes if moved][-1] if any(_of(k, name) for k in later) else 0
            names.append(name)
            saved += back + sum(writes) - kept
    return names, saved


def _fused(plan: Plan, report: Report, start: int, stop: int, names: list[str], saved: Num) -> Finding:
    """The finding that kernels start ... stop - 1 as one would move `saved` bytes less."""
    kernels, total = [kernel.name for kernel in plan.kernels[start:stop]], report.total
    rows = report.kernels[start:stop]
    roofs = {name: sum(row.roofs[name] or 0 for row in rows) for name in rows[0].roofs}
    for tier in ("hbm", "l2"):  # every byte of memory passes L2 as well
        roofs[tier] -= saved / report.peaks[tier]
    gain = sum(row.time for row in rows) - max(roofs.values())
    verb = "is" if len(names) == 1 else "are"
    text = f"{' and '.join(names)} {verb} written by one of {', '.join(kernels)} and read back by the next"
    if stop - start == 2:
        text = f"{' and '.join(names)} {verb} written by {kernels[0]} and read back by {kernels[1]}"
    text = f"{text}: one kernel for {'both' if stop - start == 2 else 'all'} would move {size(saved)} less"
    text = f"{text} ({percent(saved / total.bytes)} of the traffic) and take {seconds(gain)} less"
    return Finding("fusion", f"{text} of {seconds(total.time)}", value=saved)


def _hbm(kernel: Kernel, name: str, mode: Mode) -> Num:
    return kernel.launches * sum(a.bytes for a in _of(kernel, name) if a.mode == mode and a.tier == "hbm")


def l2(kernel: Kernel, tensors: Mapping[str, Tensor], capacity: int) -> Iterator[Finding]:
    """A kernel's working set against L2, and tensors that the ledger reads again from the wrong place."""
    moves = [a for a in kernel.accesses if a.tier != "smem"]
    if not moves:
        return
    touched = {a.tensor: max(b.bytes for b in moves if b.tensor == a.tensor) for a in moves}
    held = sum(min(moved, tensors[name].read().bytes) for name, moved in touched.items())
    fits = "fits" if held <= capacity else f"is {times(held / capacity)}"
    text = f"a working set of {size(held)} {fits} the {size(capacity)} of L2"
    yield Finding("L2", text, kernel.name, held / capacity)
    for access in moves:
        whole = tensors[access.tensor].read().bytes
        named, again = f"{access.tensor} ({size(whole)})", access.bytes - whole
        if access.mode == "read" and access.tier == "hbm" and again > 0 and whole <= capacity:
            text = f"{named} fits L2 and comes from memory {times(access.bytes / whole)}"
            text = f"{text}: what L2 serves again would be {size(again)} of memory traffic less"
            yield Finding("L2", text, kernel.name, again)
        elif access.mode == "read" and access.tier == "l2" and whole > capacity:
            text = f"{named} is read from L2, which holds {size(capacity)}: true only of parts read again soon"
            yield Finding("L2", text, kernel.name, whole / capacity)


def tensors(design: Design) -> Iterator[Finding]:
    """Tensors that no kernel touches, and a design without a result."""
    accesses = [a for kernel in design.plan.kernels for a in kernel.accesses]
    touched = {a.tensor for a in accesses}
    for name, tensor in design.tensors.items():
        if name not in touched:
            text = f"{name} ({size(tensor.read().bytes)}) is never read or written"
            yield Finding("unused", text, value=tensor.read().bytes)
    if not any(a.mode == "write" for a in accesses):
        yield Finding("unused", "no kernel writes a tensor: there is no result", value=0)
