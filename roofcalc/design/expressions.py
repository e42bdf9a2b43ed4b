"""The values of a design's formulas, exact: ``T / 3 * 3`` is T to the last digit.

simpleeval walks the tree. Plain numbers are calculated as fractions; params may be NumPy arrays.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from simpleeval import InvalidExpression, SimpleEval  # type: ignore[import-untyped]

from roofcalc import numeric
from roofcalc.design.grammar import ExpressionError, fault, parse
from roofcalc.numeric import Num, everywhere, is_array
from roofcalc.quantities import shown

Names = Mapping[str, Num]

LARGEST = 10**30
_POWER_BITS = 512
_INT64 = 2**63
_NUMBER = re.compile(r"\s*-?[0-9.]+(?:[eE][+-]?[0-9]+)?\s*")


def evaluate(text: str, names: Names, scale: Num = 1) -> Num:
    """The value of a formula, `scale` times: an int where it is whole, else a float.

    It is an array where a name that the formula uses is one.

    Raises ExpressionError for anything but arithmetic over `names`, and for a value that is no
    number below 10^30.
    """
    body = parse(text, names)
    evaluator = SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names=dict(names))
    evaluator.nodes = {kind: evaluator.nodes[kind] for kind in (ast.Name, ast.BinOp, ast.UnaryOp, ast.Call)}
    evaluator.nodes[ast.Constant] = _constant
    try:
        value = _tidy(_OPERATORS[ast.Mult](evaluator.eval(text, body), scale))
        if not everywhere(abs(value) < LARGEST):
            raise OverflowError
    except ZeroDivisionError:
        raise fault(text, f"divides by zero{_at(text, names)}") from None
    except OverflowError:
        raise fault(text, f"is too large{_at(text, names)}; no GPU counts to 10^30") from None
    except (ArithmeticError, ValueError, InvalidExpression) as error:
        raise fault(text, f"{error}{_at(text, names)}") from None
    except RecursionError:
        raise fault(text, "is nested too deeply") from None
    return value


def whole(text: str, names: Names, least: int = 1) -> Num:
    """The value of a formula that counts something: whole and at least `least`. Raises ExpressionError."""
    value = evaluate(text, names)
    for broken, wanted in (
        (value != floor(value), f"a whole number is wanted: write {_rounded(text, value)}"),
        (value < least, f"a whole number of at least {least} is wanted"),
    ):
        if not everywhere(broken == 0):
            found = f"found {text.strip()}" if _NUMBER.fullmatch(text) else None
            found = found or f"{text!r} is {shown(_pick(value, broken))}{_at(text, names, broken)}"
            raise ExpressionError(f"{found}; {wanted}")
    return value.astype("int64") if is_array(value) else int(value)


def _rounded(text: str, value: Num) -> str:
    if _NUMBER.fullmatch(text):
        return f"{math.floor(value)} or {math.ceil(value)}"
    return f"ceil({text}) or floor({text})"


def _pick(value: Num, broken: Num) -> Num:
    """The element of `value` at the first place where `broken` holds; a plain number as it is."""
    if not is_array(value):
        return value
    same = is_array(broken) and value.size == broken.size
    return value.flat[int(broken.argmax())].item() if same else "[...]"


def _at(text: str, names: Names, broken: Num = False) -> str:
    """`` at T=8192, D=4096``: the values of the names that a formula uses."""
    used = [name for name in names if re.search(rf"\b{name}\b", text)]
    values = [f"{name}={_pick(names[name], broken)}" for name in used]
    return f" at {', '.join(values)}" if values else ""


def floor(a: Num) -> Num:
    """The greatest integer <= a."""
    return -numeric.ceil(-a)


def displayed(text: str) -> str:
    """A formula as the ledger prints it: ``2·T·D`` for ``2*T*D``."""
    return re.sub(r"(?<!\*)\s*\*\s*(?!\*)", "·", text.strip())


def _constant(node: ast.Constant) -> int | Fraction:
    if isinstance(node.value, float) and not math.isfinite(node.value):
        raise OverflowError
    value: Any = node.value
    return Fraction(repr(value)) if isinstance(value, float) else value


def _tidy(value: Num) -> Num:
    """A fraction as an int where it is whole, else as a float."""
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError
    return value


def _lifted(function: Callable[[Num, Num], Num]) -> Callable[[Num, Num], Num]:
    """A binary function that never meets a fraction and an array at once."""

    def apply(a: Num, b: Num) -> Num:
        return function(_tidy(a), _tidy(b)) if is_array(a) or is_array(b) else function(a, b)

    return apply


def multiply(a: Num, b: Num) -> Num:
    """a · b. Raises OverflowError where an array's integers would wrap around."""
    if (is_array(a) or is_array(b)) and not everywhere(abs(a * 1.0 * b) < _INT64):
        raise OverflowError
    return a * b


def _nonzero(b: Num) -> Num:
    if not everywhere(b != 0):
        raise ZeroDivisionError
    return b


def _divide(a: Num, b: Num) -> Num:
    _nonzero(b)
    if is_array(a) or is_array(b):
        return a // b if everywhere(a % b == 0) else a / b
    return a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / Fraction(b)


def _power(a: Num, b: Num) -> Num:
    """A bounded power; whole exponents are exact."""
    if is_array(a) or is_array(b):
        if not everywhere(abs(a) <= 2**32) or not everywhere(abs(b) <= 64):
            raise OverflowError
        power = (a * 1.0) ** b
        if not everywhere(abs(power) < _INT64):
            raise OverflowError
        return power if not everywhere(b >= 0) else a**b
    if isinstance(a, float) or b != int(b):
        if a < 0:
            raise ArithmeticError("takes a fractional power of a negative number")
        return float(a) ** float(b)
    exact = Fraction(a)
    if max(abs(exact.numerator), exact.denominator).bit_length() * abs(int(b)) > _POWER_BITS:
        raise OverflowError
    return exact ** int(b)


def _sqrt(a: Num) -> Num:
    """The square root, exact for the squares of fractions."""
    if not everywhere(a >= 0):
        raise ArithmeticError("takes the square root of a negative number")
    if is_array(a) or isinstance(a, float):
        return a**0.5
    exact = Fraction(a)
    root = Fraction(math.isqrt(exact.numerator), math.isqrt(exact.denominator))
    return root if root * root == exact else float(a) ** 0.5


def _log2(a: Num) -> Num:
    if not everywhere(a > 0):
        raise ArithmeticError("takes the logarithm of a number that is not above zero")
    return numeric.log2(a)


def _many(function: Callable[[Num, Num], Num]) -> Callable[..., Num]:
    return lambda *values: reduce(_lifted(function), values)


_OPERATORS: dict[type[ast.AST], Callable[..., Num]] = {
    ast.Add: _lifted(operator.add),
    ast.Sub: _lifted(operator.sub),
    ast.Mult: _lifted(multiply),
    ast.Div: _lifted(_divide),
    ast.FloorDiv: _lifted(lambda a, b: a // _nonzero(b)),
    ast.Mod: _lifted(lambda a, b: a % _nonzero(b)),
    ast.Pow: _lifted(_power),
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

_FUNCTIONS: dict[str, Callable[..., Num]] = {
    "min": _many(numeric.minimum),
    "max": _many(numeric.maximum),
    "ceil": numeric.ceil,
    "floor": floor,
    "sqrt": _sqrt,
    "log2": _log2,
}
