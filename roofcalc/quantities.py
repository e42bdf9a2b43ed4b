"""Text with a unit, as people write it in a file, turned into a number in SI base units.

k, M, G, T and P are powers of 1000, Ki, Mi, Gi and Ti powers of 1024; ``b`` is bits and ``B`` bytes.
A number without its unit, or with another one, is an error that says which unit is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from quantiphy import Quantity

from roofcalc.core import RoofcalcError

_LARGE = ("", "k", "M", "G", "T", "P")
_BINARY = ("Ki", "Mi", "Gi", "Ti")
_SMALL = ("", "m", "u", "µ", "μ", "n", "p")
_UNITS = {
    "FLOP/s": ("floating-point operations per second", _LARGE),
    "op/s": ("operations per second", _LARGE),
    "B/s": ("bytes per second", _LARGE + _BINARY),
    "B": ("bytes", _LARGE + _BINARY),
    "Hz": ("a clock in hertz", _LARGE),
    "s": ("seconds", _SMALL),
}
_NUMBER = r"[+-]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*([^\W\d_].*)?", re.DOTALL)
NUMBER = re.compile(_NUMBER)
"""A plain decimal number, whole or not, with or without an exponent."""


class QuantityError(RoofcalcError, ValueError):
    """Text that is no quantity of the unit wanted. A ValueError, so that pydantic adds the field to it."""


@dataclass(frozen=True)
class Measure:
    """What a field holds: a positive quantity of `unit`, written most often in `typical` (``TB/s``).

    Calling it turns text into a number in `unit`; bytes must come out whole. `also` names a second
    unit that counts the same thing.
    """

    unit: str
    typical: str
    also: str | None = None

    def __call__(self, value: object) -> float:
        """The number that `value` (``"3.35 TB/s"``) means, in `unit`. Raises QuantityError."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(f"found {shown(value)}; {self._wanted()}")
        text = value.strip() if isinstance(value, str) else shown(value)
        match = _QUANTITY.fullmatch(text)
        if match is None:
            raise QuantityError(f"{text!r} is not a number with a unit; {self._wanted()}")
        number, unit = match.groups()
        if not unit:
            raise QuantityError(f"{text!r} has no unit; {self._wanted(number)}")
        base = next((base for base in self._bases() if unit in _spellings(base)), None)
        if base is None:
            raise QuantityError(self._foreign(number, unit))
        # quantiphy takes an exponent in place of the prefix, never both: "1e3 GB/s" would lose its G
        exponent = "e" in number.lower()
        amount = float(Quantity(f"{1 if exponent else number} {unit}", binary=True))
        amount *= float(number) if exponent else 1
        if not 0 < amount < float("inf"):
            raise QuantityError(f"{text!r} must be above zero and finite; {self._wanted()}")
        if base != "B":
            return amount
        if amount != int(amount):
            raise QuantityError(f"{text!r} is not a whole number of bytes; {self._wanted()}")
        return int(amount)

    def _bases(self) -> tuple[str, ...]:
        return (self.unit,) if self.also is None else (self.unit, self.also)

    def _wanted(self, number: str | None = None) -> str:
        """The unit that is meant; a bare number above 1e5 is read in base units to suggest a spelling."""
        large = number is not None and self.unit != "s" and 1e5 <= float(number) < float("inf")
        number = number or "1"
        example = Quantity(float(number), self.unit).render() if large else f"{number} {self.typical}"
        return f"{_UNITS[self.unit][0]} ({self.unit}) wanted, such as '{example}'"

    def _foreign(self, number: str, unit: str) -> str:
        known = [spelling for base in self._bases() for spelling in _spellings(base)]
        if unit.startswith("K") and f"k{unit[1:]}" in known:
            clear = f"'{number} k{unit[1:]}' (1000)"
            binary = f" or '{number} Ki{unit[1:]}' (1024)" if f"Ki{unit[1:]}" in known else ""
            return f"the unit {unit!r} is not clear; write {clear}{binary}"
        folded = {spelling.casefold(): spelling for spelling in reversed(known)}
        near = get_close_matches(unit.casefold(), folded, n=1, cutoff=0.7)
        suggestion = folded[near[0]] if near else self.typical
        bits = " (b is bits, B is bytes)" if "b" in unit and "B" in suggestion else ""
        wanted = f"{_UNITS[self.unit][0]} ({self.unit}) wanted, such as '{number} {suggestion}'"
        return f"the unit {unit!r} does not fit{bits}; {wanted}"


def whole(value: object) -> int:
    """A count: a plain integer above zero, no unit and no boolean. Raises QuantityError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise QuantityError(f"found {shown(value)}; a whole number of at least 1 without a unit is wanted")
    return value


_COUNT = re.compile(r"\s*0*([0-9]{1,1000})([kKMG]?)\s*", re.ASCII)
_BINARY_POWER = {"": 0, "k": 10, "K": 10, "M": 20, "G": 30}
LARGEST = 2**53
"""The largest count: above it a double no longer tells a number from the next."""


def count(value: object) -> int:
    """A count as people type it on a command line: ``8192``, ``8k``, ``128K``, ``1M``, powers of 1024.

    Raises QuantityError for anything but a whole number of at least 1 and at most 2^53.
    """
    match = _COUNT.fullmatch(value if isinstance(value, str) else shown(value))
    amount = int(match[1]) << _BINARY_POWER[match[2]] if match else 0
    found = shown(value) if len(str(value)) <= 40 else "a text of that length"
    if amount > LARGEST:
        raise QuantityError(f"{found} is too large; at most 2^53 is wanted, {LARGEST}")
    if amount < 1:
        examples = "such as 8192, 8k (8192), 128K or 1M (powers of 1024)"
        raise QuantityError(f"{found} is no count; a whole number of at least 1 is wanted, {examples}")
    return amount


def shown(value: object) -> str:
    """A value as a YAML file writes it, for an error's one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, float):
        return f"{value:.10g}".replace("e+", "e")
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)


def nearest(found: str, allowed: Iterable[str]) -> str:
    """``; did you mean X`` for the nearest of `allowed`, or all of them when none is near."""
    names = list(allowed)
    folded = {name.casefold(): name for name in names}
    near = get_close_matches(found.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]}" if near else f"; allowed: {', '.join(names)}"


def _spellings(base: str) -> tuple[str, ...]:
    return tuple(prefix + base for prefix in _UNITS[base][1])
