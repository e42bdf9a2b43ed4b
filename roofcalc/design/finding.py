"""A finding, and the numbers in its text: three digits, an SI prefix, a unit."""

from __future__ import annotations

from dataclasses import dataclass

from quantiphy import Quantity

from roofcalc.numeric import Num


@dataclass(frozen=True)
class Finding:
    """One statement about a design: its kind, one line of text, the kernel that it is about.

    `kernel` is None for the whole. `forbids`: the kernel cannot run, or cannot do what the design says.
    `value` is the number that the text turns on, in SI base units or as a plain ratio.
    """

    kind: str
    text: str
    kernel: str | None = None
    value: Num = None
    forbids: bool = False


def size(value: Num) -> str:
    """Bytes, decimal: 33.6 MB."""
    return Quantity(float(value), "B").render(prec=2)


def seconds(value: Num) -> str:
    return Quantity(float(value), "s").render(prec=2).replace("us", "µs")


def kib(value: Num) -> str:
    """Bytes of a block: its shared memory, whose limits are whole KiB, and its loads in flight."""
    return f"{value / 1024:.4g} KiB" if value < 1024 * 10_000 else f"{count(value // 1024)} KiB"


def flop_per_byte(value: Num) -> str:
    return f"{_significant(value)} FLOP/B"


def percent(share: Num) -> str:
    """A share with three digits; the smallest ones without an exponent."""
    if 0 < share < 1e-6:
        return "under 0.0001 %"
    return f"{_significant(100 * share)} %"


def times(factor: Num) -> str:
    return f"{_significant(factor)} x"


def count(value: Num) -> str:
    """An exact count with its thousands apart."""
    return f"{value:,}"


def _significant(value: Num) -> str:
    """Three digits, or all before the point."""
    value = float(value)
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
