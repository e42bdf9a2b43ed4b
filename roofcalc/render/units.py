"""The rim where numbers become text: SI prefixes, three significant digits, no exponent.

Every function takes None for "does not apply" and prints it as a dash.
"""

from __future__ import annotations

from roofcalc.numeric import Num

NONE = "–"
_PREFIXES = ("y", "z", "a", "f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y")
_NO_PREFIX = _PREFIXES.index("")


def _exponent(value: float, digits: int) -> int:
    """The power of ten of `value` once it is rounded to `digits` (999.6 to three has 3, not 2)."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def significant(value: float, digits: int = 3) -> str:
    """`digits` significant digits without an exponent; digits before the point are all kept."""
    return f"{value:.{max(0, digits - 1 - _exponent(value, digits))}f}" if value else "0"


def si(value: Num | None, unit: str = "", *, digits: int = 3, trim: bool = False, largest: str = "Y") -> str:
    """A value with an SI prefix: ``4.43 GB``, ``550 G``, ``1.32 ms``.

    Counts below 1000 are printed whole. `trim` drops zeros after the point, `largest` is the largest
    prefix that the unit takes (kiloseconds are nobody's unit).
    """
    if value is None:
        return NONE
    value = float(value)
    step = _exponent(value, digits) // 3 if value else 0
    step = max(-_NO_PREFIX, min(step, _PREFIXES.index(largest) - _NO_PREFIX))
    whole = step == 0 and value.is_integer()
    text = f"{value:.0f}" if whole else significant(value / 1000.0**step, digits)
    if trim and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {_PREFIXES[step + _NO_PREFIX]}{unit}".rstrip()


def seconds(value: Num | None, digits: int = 3) -> str:
    return si(value, "s", digits=digits, largest="")


def size(value: Num | None) -> str:
    """Bytes, decimal: 1 GB is 1e9 bytes."""
    return si(value, "B")


def binary(value: Num | None) -> str:
    """Bytes of on-chip memory, binary: ``164 KiB``, ``40 MiB``."""
    if value is None:
        return NONE
    kib = float(value) / 1024
    return f"{kib:.4g} KiB" if kib < 1024 else f"{kib / 1024:.4g} MiB"


def intensity(value: Num | None) -> str:
    """FLOP per byte: one digit after the point, whole from 1000 on, two significant digits below 1."""
    if value is None:
        return NONE
    value = float(value)
    if abs(value) < 0.95:
        return significant(value, 2)
    return f"{value:.0f}" if abs(value) >= 999.95 else f"{value:.1f}"


def percent(share: Num | None) -> str:
    """A share as a whole percentage, or with two significant digits below 1 %."""
    if share is None:
        return NONE
    value = 100.0 * float(share)
    return f"{significant(value, 2) if abs(value) < 0.995 else f'{value:.0f}'} %"


def factor(value: Num | None) -> str:
    """How many times: ``4.7 x``, ``12 x``, ``0.82 x``."""
    return NONE if value is None else f"{significant(float(value), 2)} x"


def count(value: Num | None) -> str:
    """An exact count with its thousands apart: ``33,554,432``."""
    return NONE if value is None else f"{value:,}"
