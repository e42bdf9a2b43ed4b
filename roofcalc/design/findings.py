"""What a report says about a design before it is written: what fits, what binds, what is moved in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from roofcalc.core import Kernel, Limits, Report, Row, Tile
from roofcalc.design.finding import Finding, count, flop_per_byte, kib, percent, seconds, size, times
from roofcalc.design.load import Design
from roofcalc.design.traffic import compulsory, footprint, fusion, l2, tensors
from roofcalc.numeric import Num, ceil_div, is_array

if TYPE_CHECKING:
    from roofcalc.hardware import Hardware

BLOCK_THREADS = 1024
"""Threads of a block at most, on every GPU from compute capability 2 on (CUDA C++ Programming Guide)."""
THREAD_REGISTERS = 255
"""32-bit registers of a thread at most, on every GPU from compute capability 3.5 on (same guide)."""

_UNLIMITED = 1 << 40


def findings(design: Design, report: Report, hardware: Hardware) -> tuple[Finding, ...]:
    """What `report`, of ``design.plan`` on `hardware`, means for the design: by kernel, then for the whole.

    Empty where a param has several values: a finding is about one design.
    """
    if any(is_array(value) for value in design.params.values()):
        return ()
    limits = hardware.limits
    found: list[Finding] = []
    for kernel, row in zip(design.plan.kernels, report.kernels, strict=True):
        found += [*_tile(kernel, limits), *_fill(kernel, row, limits), *_roofs(row), *_alone(kernel, row, limits)]
        found += _in_flight(kernel, row, report.peaks["hbm"])
        found += l2(kernel, design.tensors, limits.l2)
        if not any(item.run for item in kernel.work):
            found.append(Finding("work", "does no work: it only moves data", kernel.name, 0))
    found += [*compulsory(design), *fusion(design.plan, report), *tensors(design)]
    return (*found, *_work(design), *_capacity(design, hardware))


def _tile(kernel: Kernel, limits: Limits) -> Iterator[Finding]:
    """Whether a block fits an SM, how many do, and what limits them."""
    name, tile = kernel.name, kernel.tile
    if tile is None:
        if kernel.grid is None:
            text = "no grid and no tile are given, so fit, blocks per SM and waves are not known"
            yield Finding("unknown", text, name)
        return
    room = limits.smem_per_block
    used = f"{kib(tile.smem)} of shared memory a block"
    text = f"{used}, {percent(tile.smem / room)} of the {kib(room)} it may have"
    if tile.smem > room:
        text = f"{used}, {kib(tile.smem - room)} more than the {kib(room)} that this GPU gives a block"
    if tile.smem:
        yield Finding("shared memory", text, name, tile.smem, tile.smem > room)
    resident = _resident(tile, limits)
    if tile.registers:
        yield _registers(name, tile, limits, resident["registers"])
    if tile.threads > BLOCK_THREADS:
        text = f"{count(tile.threads)} threads a block; CUDA gives a block at most {count(BLOCK_THREADS)}"
        yield Finding("threads", text, name, tile.threads, True)
    blocks = limits.resident(tile)
    if blocks:
        binding = [what for what, number in resident.items() if number == blocks]
        rest = [f"{what} for {number}" for what, number in resident.items() if number != blocks]
        unless = f" (there is room in {', '.join(rest)})" if rest else ""
        text = f"{blocks} {_blocks(blocks)} per SM, limited by {' and '.join(binding)}{unless}"
        yield Finding("blocks per SM", text, name, blocks)


def _registers(name: str, tile: Tile, limits: Limits, blocks: int) -> Finding:
    """Whether a thread and a block have the registers that the tile asks for."""
    if tile.registers > THREAD_REGISTERS:
        text = f"{count(tile.registers)} registers a thread; CUDA gives a thread at most {THREAD_REGISTERS}"
        return Finding("registers", text, name, tile.registers, True)
    whole = tile.threads * tile.registers
    of_sm = f"{count(tile.threads)} threads x {tile.registers} = {count(whole)} registers a block"
    if not blocks:
        text = f"{of_sm}, more than the {count(limits.registers)} of an SM (they are handed out 256 a warp)"
        return Finding("registers", text, name, whole, True)
    text = f"{of_sm}, {percent(whole / limits.registers)} of the {count(limits.registers)} of an SM"
    return Finding("registers", text, name, whole)


def _resident(tile: Tile, limits: Limits) -> dict[str, int]:
    """How many blocks of `tile` an SM would hold if only one of its resources were scarce; 0: not one."""
    free = replace(limits, registers=_UNLIMITED, threads=_UNLIMITED, blocks=_UNLIMITED)
    light = replace(tile, smem=0)
    scarce = {
        "registers": replace(free, registers=limits.registers).resident(light) if tile.registers else None,
        "shared memory": free.resident(tile) if tile.smem else None,
        "threads": replace(free, threads=limits.threads).resident(light),
        "block slots": replace(free, blocks=limits.blocks).resident(light),
    }
    return {what: number for what, number in scarce.items() if number is not None}


def _blocks(number: Num) -> str:
    return "block" if number == 1 else "blocks"


def _fill(kernel: Kernel, row: Row, limits: Limits) -> Iterator[Finding]:
    """Waves, the SMs that never get a block, and how full the last wave is."""
    grid, tile, name = kernel.grid, kernel.tile, kernel.name
    if grid is None:
        return
    idle = max(0, limits.sms - grid)
    text = f"{idle} of {limits.sms} SMs never get a block ({percent(idle / limits.sms)})"
    text = text if idle else f"all {limits.sms} SMs get a block"
    yield Finding("idle SMs", text, name, idle / limits.sms)
    resident = 0 if tile is None else limits.resident(tile)
    if row.waves is None or not resident:
        return
    slots = limits.sms * resident
    room = f"{limits.sms} SMs x {resident} = {count(slots)} slots"
    yield Finding("waves", f"{count(grid)} {_blocks(grid)} on {room}: {_waves(row.waves)}", name, row.waves)
    waves = ceil_div(grid, slots)
    last = grid - (waves - 1) * slots
    if waves > 1:
        text = f"the last of {count(waves)} waves fills {count(last)} of {count(slots)} slots"
        text = f"{text}; {percent(row.sm_use)} of all the waves' slots are used"
        yield Finding("tail", text, name, last / slots)


def _waves(number: Num) -> str:
    """``1 wave``, ``0.24 waves``, ``2.5 waves``."""
    if number == 1:
        return "1 wave"
    return f"{number:.2g} waves" if number < 1 else f"{number:.2f}".rstrip("0").rstrip(".") + " waves"


def _alone(kernel: Kernel, row: Row, limits: Limits) -> Iterator[Finding]:
    """The largest on-chip roof of the SMs with a block alone, where the report counts it for all SMs.

    `own_sms` scales the tensor roof and no other; where it is set, only a roof that would bind is named.
    """
    grid, sms = kernel.grid, limits.sms
    if grid is None or grid >= sms:
        return
    counted = kernel.own_sms and kernel.tile is not None
    whole = {name: row.roofs[name] for name in ("tensor", "vector", "exp", "smem")}
    alone = [(t * sms / grid, name) for name, t in whole.items() if t and not (counted and name == "tensor")]
    time, roof = max(alone, default=(0, ""))
    if not roof or (counted and time <= row.time):
        return
    binds, how = f"below the {seconds(row.time)} that binds", ""
    if time > row.time:
        binds, how = "which would bind", "; own_sms does not count it, only the tensor roof"
    if roof == "tensor":
        how = f"; {'' if kernel.tile else 'give a tile and '}set own_sms: true to count it"
    reach = f"{count(grid)} {_blocks(grid)} {'reaches' if grid == 1 else 'reach'} {percent(grid / sms)} of the SMs"
    text = f"{reach}: the {roof} roof of those alone is {seconds(time)}, {binds}{how}"
    yield Finding("reached SMs", text, kernel.name, time)


def _roofs(row: Row) -> Iterator[Finding]:
    """The time of every roof, and how far the kernel is from the ridge."""
    found = sorted(((t, name) for name, t in row.roofs.items() if t is not None), reverse=True)
    if found:
        (top, binds), *others = found
        rest = [f"{name} {seconds(t)} ({percent(t / top)} of it)" for t, name in others]
        text = f"{binds} binds with {seconds(top)}{'; ' if rest else ''}{', '.join(rest)}"
        yield Finding("roofs", text, row.name, top)
    if row.intensity is None or not row.intensity or row.ridge is None:
        return
    ratio = row.intensity / row.ridge
    side = f"{times(ratio)} above" if ratio >= 1 else f"{times(1 / ratio)} below"
    text = f"{flop_per_byte(row.intensity)} is {side} the ridge of {flop_per_byte(row.ridge)}"
    yield Finding("ridge", text, row.name, ratio)


def _in_flight(kernel: Kernel, row: Row, bandwidth: float) -> Iterator[Finding]:
    """The bandwidth that the bytes in flight allow, where it is below that of the memory (Little's law)."""
    time = row.roofs["hbm"]
    if kernel.in_flight is None or not time or row.bytes / time >= 0.999 * bandwidth:
        return
    reached = row.bytes / time
    text = f"{kib(kernel.in_flight)} in flight a block let memory reach {size(reached)}/s"
    text = f"{text}, {percent(reached / bandwidth)} of {size(bandwidth)}/s: more blocks or deeper loads are wanted"
    yield Finding("in flight", text, row.name, reached)


def _work(design: Design) -> Iterator[Finding]:
    """What the whole must calculate against what its kernels calculate, where the design says the former."""
    for pipe in dict.fromkeys(item.pipe for item in design.work):
        wanted = sum(item.ops for item in design.work if item.pipe == pipe)
        done = sum(k.launches * item.ops for k in design.plan.kernels for item in k.work if item.pipe == pipe)
        if done < wanted:
            text = f"no kernel does {count(wanted - done)} of the {count(wanted)} {pipe} operations of `work`"
            text = f"{text} ({percent(1 - done / wanted)})"
            yield Finding("work", text, value=wanted - done, forbids=True)
        elif done > wanted:
            text = f"the kernels do {times(done / wanted)} the {count(wanted)} {pipe} operations of `work`"
            yield Finding("work", f"{text}: something is calculated again", value=done / wanted)


def _capacity(design: Design, hardware: Hardware) -> Iterator[Finding]:
    """Inputs, outputs and what is held in between against the GPU's memory."""
    held = footprint(design)
    room = hardware.memory.hbm.capacity
    text = f"{size(held)} of device memory, {percent(held / room)} of {size(room)}"
    if held > room:
        text = f"{size(held)} of device memory, {size(held - room)} more than the {size(room)} of this GPU"
    yield Finding("memory", text, value=held, forbids=held > room)
