"""What the mechanisms know of a GPU, and the few laws that all of them use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcalc.core import Kernel, Term
from roofcalc.numeric import Num, maximum, minimum

if TYPE_CHECKING:
    from roofcalc.hardware import Hardware

EXP_PER_CLOCK = 16
"""Exponentials per clock and SM: the special-function unit's rate since Volta (arXiv:2407.08608, section 3.1)."""


@dataclass(frozen=True)
class Machine:
    """A GPU at its boost clock in Hz: SMs, matrix rate in op/s, HBM in B/s, L2 in B/s and bytes."""

    sms: int
    clock: float
    tensor: float
    hbm: float
    l2: float
    l2_bytes: int

    @property
    def clocks(self) -> float:
        """SM clocks per second of the whole GPU."""
        return self.sms * self.clock

    @property
    def exp(self) -> float:
        """Exponentials per second of the whole GPU."""
        return EXP_PER_CLOCK * self.clocks


def machine(hardware: Hardware, dtype: str) -> Machine:
    """The GPU at the clock that it holds while power allows: the boost clock, not the data sheet's.

    An H200 holds 1980 MHz under all but its largest matrix products, while the tensor peak in print is
    for 1830 MHz. Families that draw full power have a constant for the share of the rate which is left.
    """
    clocks, memory = hardware.clocks, hardware.memory
    return Machine(
        sms=hardware.sms,
        clock=clocks.fp32,
        tensor=hardware.rate("tensor", dtype) * clocks.fp32 / clocks.tensor,
        hbm=memory.hbm.bandwidth,
        l2=memory.l2.bandwidth,
        l2_bytes=memory.l2.capacity,
    )


def either(a: Num, b: Num, power: float) -> Num:
    """The time of two things that overlap, but not perfectly: (a^p + b^p)^(1/p).

    p = 1 is one after the other, a large p the longer alone. Divided by the longer first, so that no
    power overflows.
    """
    longer, shorter = maximum(a, b), minimum(a, b)
    return longer * (1 + (shorter / maximum(longer, 1e-30)) ** power) ** (1 / power)


def overlapped(first: Term, second: Term, power: float) -> tuple[Term, ...]:
    """Two terms and, as a third one below zero, what they hide of each other."""
    hidden = either(first.seconds, second.seconds, power) - first.seconds - second.seconds
    return first, second, Term("overlap", hidden, f"{first.name} and {second.name} run side by side, power {power:.3g}")


def longer(first: Term, second: Term) -> tuple[Term, ...]:
    """Two terms of which the shorter hides behind the longer."""
    hidden = -minimum(first.seconds, second.seconds)
    return first, second, Term("overlap", hidden, f"the shorter of {first.name} and {second.name} hides")


def bytes_time(kernel: Kernel, gpu: Machine, hbm: float, l2: float) -> Num:
    """Seconds that the ledger's bytes take at these shares of HBM's and of L2's bandwidth."""
    return kernel.bytes_through("hbm") / (hbm * gpu.hbm) + kernel.bytes_through("l2") / (l2 * gpu.l2)


def streamed(count: Num, blocks: Num, per_block: float, sustained: float) -> Num:
    """Seconds for `count` bytes through `blocks` thread blocks.

    Little's law: a block moves at most the bytes that it has in flight per memory latency, `per_block`
    B/s, and all of them at most what the memory sustains. On an H200, reads by 1 to 528 blocks follow
    this with 59 GB/s a block (32 KiB in flight) or 189 (128 KiB) and a corner of power 2.7.
    """
    return either(count / (blocks * per_block), count / sustained, 2.7)
