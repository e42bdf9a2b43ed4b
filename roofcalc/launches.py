"""How long a plan takes when its kernels are launched one by one, as a CUDA graph, or as one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from roofcalc.core import Report, Row
from roofcalc.numeric import Num, maximum

if TYPE_CHECKING:
    from roofcalc.blocks import Launch

Mode = Literal["eager", "graph", "persistent"]
MODES: tuple[Mode, ...] = ("eager", "graph", "persistent")
Overlap = Literal["max", "none"]
OVERLAPS: tuple[Overlap, ...] = ("max", "none")


@dataclass(frozen=True)
class Timing:
    """A plan launched one way: seconds that the host takes to issue it and that the device takes to run it.

    `device` is by the roofline and the least that starting a kernel takes; `expected_host` and
    `expected_device` are what the expected step is made of (None without), `launches` what the host issues.
    `limit` is the duration of a kernel below which launching it takes longer than running it.
    """

    mode: Mode
    launches: Num
    host: Num
    device: Num
    expected_host: Num
    expected_device: Num | None
    limit: float
    overlap: Overlap

    @property
    def step(self) -> Num:
        """Seconds of the whole: the slower of the two, or their sum where nothing overlaps."""
        return self._together(self.host, self.device)

    @property
    def expected(self) -> Num | None:
        """The same with the expected times of host and device."""
        return None if self.expected_device is None else self._together(self.expected_host, self.expected_device)

    @property
    def host_bound(self) -> bool:
        """Whether the device waits for the host, by the roofline."""
        return bool(self.host > self.device)

    def _together(self, host: Num, device: Num) -> Num:
        if self.overlap == "none":
            return host + device
        return host if host > device else device


def timing(
    report: Report, cost: Launch, mode: Mode = "eager", overlap: Overlap = "max", issue: Num | None = None
) -> Timing:
    """How long a report's kernels take when they are launched in this `mode`.

    eager: the host issues every kernel. graph: it issues one graph, a kernel on the device takes at least
    the cost of a node. persistent: one kernel, whose stages (the former kernels) a grid barrier parts. A
    kernel that the host issues is no quicker to start than a node, so the same floor holds in eager. The
    expected times were fitted on replayed graphs and hold that cost; a persistent kernel has none. `cost`
    is the launch block of a hardware file; `issue` the seconds that the host is expected to need for an eager
    step, where that is known better than launch by launch (PyTorch's operators, `predict_host.issued`).
    """
    kernels, later = report.total.launches, report.total.expected
    if mode == "persistent":
        stages = report.total.time + kernels * cost.barrier
        return Timing(mode, 1, cost.host, stages, cost.host, None, cost.barrier, overlap)
    device: Num = sum((maximum(row.time, row.launches * cost.node) for row in report.kernels), 0)
    if mode == "graph":
        return Timing(mode, 1, cost.graph, device, cost.graph, later, cost.node, overlap)
    host = kernels * cost.host
    return Timing(mode, kernels, host, device, host if issue is None else issue, later, cost.host, overlap)


@dataclass(frozen=True)
class Part:
    """One group of a step, or all of it: launches, FLOP, HBM bytes, roofline and expected seconds, and the
    seconds of host time if every launch costs as much as an eager one."""

    name: str
    launches: Num
    flops: Num
    bytes: Num
    time: Num
    expected: Num | None
    host: Num


def by_group(report: Report, cost: Launch) -> tuple[Part, ...]:
    """The report's kernels summed over each group, in the order in which the groups appear."""
    groups = dict.fromkeys(row.group or "" for row in report.kernels)
    return tuple(_part(name, [row for row in report.kernels if (row.group or "") == name], cost) for name in groups)


def _part(name: str, rows: Sequence[Row], cost: Launch) -> Part:
    launches: Num = sum((row.launches for row in rows), 0)
    expected = None if any(row.expected is None for row in rows) else sum((row.expected or 0 for row in rows), 0.0)
    return Part(
        name,
        launches,
        sum((row.flops for row in rows), 0),
        sum((row.bytes for row in rows), 0),
        sum((row.time for row in rows), 0),
        expected,
        launches * cost.host,
    )
