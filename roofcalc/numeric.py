"""Arithmetic on a number or on a NumPy array of numbers, without importing NumPy for plain numbers.

Models use these helpers in place of ``if`` on a size, so that one function serves ``T=8192`` and a
million values of T at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

Num: TypeAlias = Any
"""An ``int``, a ``float`` or a NumPy array of either."""

if TYPE_CHECKING:
    from types import ModuleType


def is_array(value: object) -> bool:
    """Whether `value` is a NumPy array (of any rank), told without importing NumPy."""
    return hasattr(value, "__array_namespace__") or hasattr(value, "__array_interface__")


def _numpy() -> ModuleType:
    import numpy

    return numpy


def ceil_div(a: Num, b: Num) -> Num:
    """The least integer >= a / b, exact for integers."""
    return -(-a // b)


def minimum(a: Num, b: Num) -> Num:
    if is_array(a) or is_array(b):
        return _numpy().minimum(a, b)
    return min(a, b)


def maximum(a: Num, b: Num) -> Num:
    if is_array(a) or is_array(b):
        return _numpy().maximum(a, b)
    return max(a, b)


def where(condition: Num, yes: Num, no: Num) -> Num:
    """`yes` where `condition` holds, `no` elsewhere; both are evaluated."""
    if is_array(condition):
        return _numpy().where(condition, yes, no)
    return yes if condition else no


def ceil(a: Num) -> Num:
    """The least integer >= a."""
    return _numpy().ceil(a) if is_array(a) else math.ceil(a)


def log2(a: Num) -> Num:
    """The logarithm of a > 0 to base 2."""
    return _numpy().log2(a) if is_array(a) else math.log2(a)


def over(counts: range, value: Callable[[Num], Num], like: Num) -> Num:
    """value(n) for every n of `counts`: a list, or one array with a first axis for n where `like` is an array."""
    if not is_array(like):
        return [value(n) for n in counts]
    return value(_numpy().arange(counts.start, counts.stop).reshape(-1, *(1,) * like.ndim))


def first_within(values: Num, share: float) -> Num:
    """The index of the first of `values` (as `over` makes them) that is at least `share` of the largest."""
    if is_array(values):
        return (values >= share * values.max(axis=0)).argmax(axis=0)
    least = share * max(values)
    return next(i for i, value in enumerate(values) if value >= least)


def everywhere(condition: Num) -> bool:
    """Whether `condition` holds for the number, or for every element of the array."""
    return bool(condition.all()) if is_array(condition) else bool(condition)


def floor_sum(n: Num, m: int, a: int, b: Num) -> Num:
    """The sum of ``(a * i + b) // m`` over ``0 <= i < n``, exact, for b >= 0 and plain `a` and `m`.

    Euclid's algorithm on (a, m), so the number of steps does not depend on `n` or `b`, which may be
    arrays. It counts the tiles that a diagonal mask leaves without walking over them.
    """
    total = 0 * n
    while True:
        total = total + (n - 1) * n // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        if a == 0:
            return total
        top = a * n + b
        n, b = top // m, top % m
        a, m = m, a


def largest(values: Mapping[str, Num | None]) -> tuple[Any, Num]:
    """The name of the largest value and that value, element by element; None entries do not count.

    With nothing but None the name is None and the value 0.
    """
    present = {name: value for name, value in values.items() if value is not None}
    if not present:
        return None, 0.0
    if not any(is_array(value) for value in present.values()):
        name = max(present, key=lambda key: float(present[key]))
        return name, present[name]
    numpy = _numpy()
    stack = numpy.stack(numpy.broadcast_arrays(*present.values()))
    return numpy.array(list(present))[stack.argmax(axis=0)], stack.max(axis=0)
