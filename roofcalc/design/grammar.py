"""What a design's formula may say: the parts of Python's grammar that are arithmetic, and nothing else."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection

from roofcalc.core import RoofcalcError
from roofcalc.quantities import nearest, shown

LONGEST = 1000
"""Characters of a formula."""

FUNCTIONS = ("min", "max", "ceil", "floor", "sqrt", "log2")
"""The functions that a formula may call; min and max take two numbers or more, the others one."""

OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd)

_KINDS = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Constant, ast.Name, ast.expr_context, *OPERATORS)
_ALLOWED = f"a formula has numbers, params, + - * / // % ** and {', '.join(FUNCTIONS)}"


class ExpressionError(RoofcalcError, ValueError):
    """A formula that cannot be used. A ValueError, so that pydantic adds the field to it."""


def fault(text: str, message: str) -> ExpressionError:
    """The error of a formula: the formula, cut where it is long, and what is wrong with it."""
    line = " ".join(text.split())
    return ExpressionError(f"{line if len(line) <= 60 else f'{line[:57]}...'!r} {message}")


def parse(text: str, names: Collection[str]) -> ast.expr:
    """The tree of a formula, once every part of it is known to be arithmetic over `names`.

    Raises ExpressionError, which says what to write instead.
    """
    if not text.strip():
        raise fault(text, "is empty; a number or a formula is wanted")
    if len(text) > LONGEST:
        raise fault(text, f"has {len(text)} characters; a formula has at most {LONGEST}")
    for sign, instead in _SIGNS.items():
        if sign in text:
            raise fault(text, f"has the sign {sign}; write {instead} for it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(" ".join(text.split()), mode="eval").body
        nodes = list(ast.walk(body))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise fault(text, _syntax(text, names)) from None
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    for node in nodes:
        if node not in called:
            _check(node, text, names)
    return body


def _check(node: ast.AST, text: str, names: Collection[str]) -> None:
    if isinstance(node, ast.BitXor):
        raise fault(text, f"uses ^, which is no power here; write {text.strip().replace('^', '**')}")
    if isinstance(node, ast.Attribute):
        raise fault(text, f"uses the attribute .{node.attr}, which is not allowed; {_ALLOWED}")
    if not isinstance(node, _KINDS):
        raise _beyond(node, text)
    if isinstance(node, ast.Call):
        _check_call(node, text, names)
    if isinstance(node, ast.Name) and node.id not in names:
        if node.id in FUNCTIONS:
            raise fault(text, f"has {node.id} without its numbers; write {node.id}(...)")
        known = nearest(node.id, names) if names else "; there are no params before it"
        raise fault(text, f"has the unknown name {node.id!r}{known}")
    if isinstance(node, ast.Constant) and type(node.value) not in (int, float):
        beside = isinstance(node.value, complex)  # 2j is Python's imaginary number
        raise fault(text, _syntax(text, names) if beside else f"has {shown(node.value)} where a number is wanted")


def _beyond(node: ast.AST, text: str) -> ExpressionError:
    return fault(text, f"is more than arithmetic ({type(node).__name__}); {_ALLOWED}")


def _check_call(node: ast.Call, text: str, names: Collection[str]) -> None:
    function = node.func
    if isinstance(function, ast.Attribute):
        raise fault(text, f"uses the attribute .{function.attr}, which is not allowed; {_ALLOWED}")
    if not isinstance(function, _KINDS):
        raise _beyond(function, text)
    if not isinstance(function, ast.Name) or function.id in names:
        before = ast.unparse(function)
        before = before if isinstance(function, ast.Name | ast.Constant) else f"({before})"
        raise fault(text, f"lacks an operator; write {before}*(...)")
    if function.id not in FUNCTIONS:
        raise fault(text, f"calls {function.id}(), which is not allowed{nearest(function.id, FUNCTIONS)}")
    several = function.id in ("min", "max")
    fitting = len(node.args) >= 2 if several else len(node.args) == 1
    if not fitting or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        wanted = "two numbers or more" if several else "one number"
        raise fault(text, f"is wrong: {function.id}() takes {wanted}")


_BESIDE = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z_]\w*)", re.ASCII)
_PARTED = re.compile(r"([A-Za-z_]\w*)\s+([A-Za-z_]\w*)", re.ASCII)
_SIGNS = {"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "²": "**2", "³": "**3"}


def _syntax(text: str, names: Collection[str]) -> str:
    """What is wrong with a formula that does not parse, and what to write instead."""
    for parted in (*_BESIDE.finditer(text), *_PARTED.finditer(text)):
        if parted[2] in names and (parted[1] in names or parted[1][0].isdigit()):
            return f"lacks an operator; write {parted[1]}*{parted[2]}"
    beside = _BESIDE.search(text)
    if beside:
        found = f"has {beside[0]!r}, which is neither a number nor a param"
        return f"{found}; write a plain number, without a unit or a prefix (8k is 8*1024)"
    return f"is no formula; {_ALLOWED}, such as ceil(T / 128)"
