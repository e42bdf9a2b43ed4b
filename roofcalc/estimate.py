"""The only place where work meets speed: a plan and a GPU become a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roofcalc.calibration import expected, sources
from roofcalc.core import Kernel, Limits, Plan, Report, Row, Tier
from roofcalc.numeric import Num, ceil, everywhere, largest, maximum, minimum, where

if TYPE_CHECKING:
    from roofcalc.hardware import Hardware

MEMORY_ROOFS = ("hbm", "l2", "smem")
ROOFS = (*MEMORY_ROOFS, "tensor", "vector", "exp")


def estimate(plan: Plan, hardware: Hardware, cache: str = "cold", library: str | None = None) -> Report:
    """The report of a plan: per kernel the time of every roof at the data sheet's clocks, and the expected one.

    A kernel's time is its largest roof, a plan's the sum of its kernels. With a warm cache a kernel
    whose whole traffic fits L2 is served by L2. `library` (torch, cudnn, triton) says whose kernels are
    expected; without it the variant does.
    """
    kernels = (
        tuple(_warm(kernel, hardware.limits) for kernel in plan.kernels) if cache == "warm" else plan.kernels
    )
    rows = tuple(_row(kernel, plan, hardware, sources(library, plan.variant)) for kernel in kernels)
    total = _total(rows)
    return Report(
        gpu=hardware.key,
        hardware=hardware.name,
        variant=plan.variant,
        source=plan.source,
        shape=plan.shape,
        kernels=tuple(replace(row, share=row.time / total.time) for row in rows),
        total=total,
        memory=plan.memory,
        peaks=peaks(hardware, plan.shape.dtype),
        notes=tuple(dict.fromkeys((*plan.notes, *([borrowed] if (borrowed := hardware.calibrated[1]) else [])))),
    )


def peaks(hardware: Hardware, dtype: str) -> dict[str, float]:
    """The rates that draw a roofline: FLOP/s of the pipes, B/s of the memories, the ridge in FLOP/B."""
    memory = hardware.memory
    compute = {"tensor": hardware.rate("tensor", dtype)} if dtype != "fp32" else {}
    compute |= {"vector": hardware.rate("vector", "fp32"), "exp": hardware.exp}
    top = compute.get("tensor", compute["vector"])
    return {
        **compute,
        "hbm": memory.hbm.bandwidth,
        "l2": memory.l2.bandwidth,
        "smem": memory.smem.bandwidth,
        "ridge": top / memory.hbm.bandwidth,
    }


def _warm(kernel: Kernel, limits: Limits) -> Kernel:
    """The kernel with its memory lines served by L2, where all that it touches fits there."""
    if not everywhere(kernel.bytes_through("hbm") <= limits.l2):
        return kernel
    return replace(
        kernel,
        accesses=tuple(replace(a, tier="l2" if a.tier == "hbm" else a.tier) for a in kernel.accesses),
        sizes={**kernel.sizes, "alone": tuple(_warm(one, limits) for one in kernel.sizes.get("alone", ()))},
    )


def _row(kernel: Kernel, plan: Plan, hardware: Hardware, libraries: tuple[str, ...]) -> Row:
    """One kernel's row: everything of all its launches."""
    n = kernel.launches
    roofs = roof_times(kernel, hardware)
    roof, time = largest(roofs)
    later, terms = expected(kernel, time, roofs, hardware, libraries)
    flops = n * sum((work.ops for work in kernel.work), 0)
    moved = n * kernel.bytes_through("hbm")
    units, waves, sm_use = fill(kernel, hardware.limits)
    return Row(
        name=kernel.name,
        flops=flops,
        executed_flops=n * sum((work.run for work in kernel.work), 0),
        bytes=moved,
        intensity=ratio(flops, moved),
        time=time,
        launches=n,
        expected=later,
        terms=terms,
        ridge=_ridge(kernel, roofs, hardware, plan.shape.dtype),
        bound=_bound(roof),
        roof=roof,
        roofs=roofs,
        units=units,
        waves=waves,
        sm_use=sm_use,
        ledger=kernel.accesses,
        work=kernel.work,
        group=kernel.group,
    )


def ratio(a: Num, b: Num) -> Num | None:
    """a / b, or None where nothing moves."""
    return a / b if everywhere(b > 0) else None


def roof_times(kernel: Kernel, hardware: Hardware) -> dict[str, Num | None]:
    """Seconds that each resource needs for all launches of a kernel; None where it is not used.

    Every byte of HBM passes L2 as well, so the L2 roof counts both lines of the ledger. A launch of unlike
    sequences is done when its slowest one is, so no roof lies below what that one needs alone.
    """
    n = kernel.launches
    memory = hardware.memory
    hbm, l2, smem = (kernel.bytes_through(tier) for tier in _TIERS)
    bandwidth, share = own_rates(kernel, hardware)
    times: dict[str, Num | None] = {
        "hbm": _time(n * hbm, bandwidth),
        "l2": _time(n * (hbm + l2), memory.l2.bandwidth),
        "smem": _time(n * smem, memory.smem.bandwidth),
        "tensor": None,
        "vector": None,
        "exp": None,
    }
    for work in kernel.work:
        rate = hardware.rate(work.pipe, work.dtype)
        seconds = _time(n * work.run, rate * share if work.pipe == "tensor" else rate)
        before = times[work.pipe]
        times[work.pipe] = seconds if before is None else before if seconds is None else before + seconds
    for one in kernel.sizes.get("alone", ()):
        for name, seconds in roof_times(one, hardware).items():
            if seconds is not None:
                before = times[name]
                times[name] = n * seconds if before is None else maximum(before, n * seconds)
    return times


_TIERS: tuple[Tier, ...] = ("hbm", "l2", "smem")


def _time(amount: Num, rate: Num) -> Num | None:
    return None if everywhere(amount == 0) else amount / rate


def own_rates(kernel: Kernel, hardware: Hardware) -> tuple[Num, Num]:
    """Bandwidth in B/s and the share of the matrix rate that the SMs with a block can reach.

    Little's law: the blocks that are resident move at most the bytes that they have in flight per memory
    latency (of an idle memory; under load it is longer, so this stays an upper bound). Only decode attention
    asks for it (`own_sms`); for all else the machine counts as full.
    """
    bandwidth = hardware.memory.hbm.bandwidth
    if not kernel.own_sms or kernel.grid is None or kernel.tile is None:
        return bandwidth, 1
    busy = minimum(kernel.grid, hardware.sms)
    blocks = minimum(kernel.grid, hardware.sms * max(1, hardware.limits.resident(kernel.tile)))
    if kernel.in_flight is not None:
        bandwidth = minimum(bandwidth, blocks * kernel.in_flight / hardware.memory.hbm.latency)
    return bandwidth, busy / hardware.sms


def _bound(roof: object) -> object:
    """`memory` or `compute`, for one roof or an array of them."""
    if roof is None or isinstance(roof, str):
        return None if roof is None else "memory" if roof in MEMORY_ROOFS else "compute"
    is_memory = sum(roof == name for name in MEMORY_ROOFS)
    return where(is_memory > 0, "memory", "compute")


def _ridge(kernel: Kernel, roofs: dict[str, Num | None], hardware: Hardware, dtype: str) -> Num | None:
    """FLOP per byte above which the kernel leaves the HBM roof.

    With matrix work this is the machine's ridge for the dtype; without, the rate at which the
    kernel's own mix of operations can run, over the bandwidth.
    """
    if any(work.pipe == "tensor" for work in kernel.work):
        return hardware.rate("tensor", dtype) / hardware.memory.hbm.bandwidth
    name, compute = largest({pipe: roofs[pipe] for pipe in ("vector", "exp")})
    if name is None:
        return None
    flops = kernel.launches * sum((work.run for work in kernel.work), 0)
    return flops / compute / hardware.memory.hbm.bandwidth


def fill(kernel: Kernel, limits: Limits) -> tuple[Num | None, Num | None, Num | None]:
    """Thread blocks of a launch, waves of them, and the share of the SMs that they keep in use.

    Below one wave that share is the SMs that ever get a block over all SMs; above, the blocks over
    the slots of all waves.
    """
    if kernel.grid is None or kernel.tile is None:
        return kernel.grid, None, None
    slots = limits.sms * max(1, limits.resident(kernel.tile))
    waves = kernel.grid / slots
    full = kernel.grid / (ceil(waves) * slots)
    return kernel.grid, waves, where(waves < 1, minimum(kernel.grid, limits.sms) / limits.sms, full)


def _total(rows: tuple[Row, ...]) -> Row:
    known: tuple[Num, ...] = tuple(row.expected for row in rows)
    flops = sum((row.flops for row in rows), 0)
    moved = sum((row.bytes for row in rows), 0)
    return Row(
        name="total",
        flops=flops,
        executed_flops=sum((row.executed_flops for row in rows), 0),
        bytes=moved,
        intensity=ratio(flops, moved),
        time=sum((row.time for row in rows), 0),
        launches=sum((row.launches for row in rows), 0),
        expected=None if any(one is None for one in known) else sum(known, 0.0),
    )
