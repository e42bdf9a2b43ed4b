"""The options that commands share, each named, read and explained once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from roofcalc.core import DTYPES, KV_DTYPES, RoofcalcError

Parsed = TypeVar("Parsed")
Given = dict[str, Any]
"""What the user typed, by option; None (or an empty list, or False) where nothing was."""

FORMATS = ("table", "json", "csv", "markdown")


def parser(parse: Callable[[str], Parsed], name: str) -> Callable[[Any], Parsed]:
    """`parse` as typer wants it: its RoofcalcError becomes the command line's own kind of error."""

    def read(value: Any) -> Parsed:
        try:
            return parse(str(value))
        except RoofcalcError as error:
            raise typer.BadParameter(str(error)) from None

    read.__name__ = name
    return read


def count(text: str) -> int:
    """8192, 8k, 128K or 1M, binary."""
    from roofcalc.quantities import count as read

    return read(text)


def counts(text: str) -> tuple[int, ...]:
    """One count or several, split by commas."""
    return tuple(count(part) for part in text.split(","))


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser that takes one of the words `allowed`."""

    def parse(text: str) -> str:
        if text not in allowed:
            from roofcalc.quantities import nearest

            near, listed = nearest(text, allowed), f"choose from {', '.join(allowed)}"
            known = f"{near} ({listed})" if near.startswith("; did you mean") else f"; {listed}"
            raise RoofcalcError(f"{text!r} is not known{known}")
        return text

    return parse


def option(name: str, kind: Any, default: Any, *flags: str, panel: str, **more: Any) -> inspect.Parameter:
    """One option as a keyword parameter of a command."""
    info = typer.Option(*flags, rich_help_panel=panel, **more)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def number(name: str, *flags: str, help: str, panel: str = "Shape") -> inspect.Parameter:
    """An option that is a count."""
    flags = flags or (f"--{name.replace('_', '-')}",)
    reader = parser(count, "count")
    return option(
        name, int | None, None, *flags, panel=panel, parser=reader, metavar="N", help=help, show_default=False
    )


def word(name: str, allowed: tuple[str, ...], help: str, panel: str) -> inspect.Parameter:
    """An option that is one of a few words; they stand in the metavar while they are short."""
    flag = f"--{name.strip('_').replace('_', '-')}"
    reader = parser(one_of(*allowed), "word")
    listed = "|".join(allowed)
    metavar, help = (listed, help) if len(listed) < 16 else ("NAME", f"{help} One of {', '.join(allowed)}.")
    shown = {"metavar": metavar, "show_default": False}
    return option(name, str | None, None, flag, panel=panel, parser=reader, help=help, **shown)


def text(name: str, help: str, panel: str, metavar: str, flag: str | None = None) -> inspect.Parameter:
    """An option that is free text."""
    flag = flag or f"--{name.replace('_', '-')}"
    return option(name, str | None, None, flag, panel=panel, help=help, metavar=metavar, show_default=False)


def several(name: str, help: str, panel: str, metavar: str) -> inspect.Parameter:
    """An option that may be given more than once."""
    flag = f"--{name}"
    return option(name, list[str] | None, None, flag, panel=panel, help=help, metavar=metavar, show_default=False)


def switch(name: str, help: str, panel: str, flag: str | None = None) -> inspect.Parameter:
    """An option that is on when it is there."""
    flag = flag or f"--{name.replace('_', '-')}"
    return option(name, bool, False, flag, panel=panel, help=help, show_default=False)


def argument(name: str, help: str, *, required: bool, metavar: str | None = None) -> inspect.Parameter:
    """A word without a flag."""
    info = typer.Argument(help=help, metavar=metavar or name.upper(), show_default=False)
    default = inspect.Parameter.empty if required else None
    kind = Annotated[str if required else str | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


TOKENS = number("T", "--T", "-T", help="Query tokens: 8192, 8k, 128K, 1M (binary).")
KEYS = number("S", "--S", help="Keys; default T.")
SIZES = (
    number("d", help="Head dimension of Q and K; default 128."),
    number("dv", help="Head dimension of V; default d."),
    number("heads", help="Query heads; default 32."),
    number("kv_heads", help="KV heads (GQA, MQA); default heads."),
    number("batch", help="Sequences; default 1."),
    number("layers", help="Layers of this shape; default 1."),
    word("dtype", DTYPES, "Type of Q, K, V, scores and O; default bf16.", "Shape"),
    word("kv_dtype", KV_DTYPES, "Type of K and V; default dtype.", "Shape"),
    number("window", help="Keys j with 0 <= i - j < N when causal, |i - j| < N when not."),
)
MASK = option(
    "causal",
    bool | None,
    None,
    "--causal/--no-causal",
    panel="Shape",
    help="Query i sees the keys up to its own position, aligned at the bottom right.",
    show_default=False,
)
MODEL = (
    text("model", "Take the sizes of a model: a preset or a config.json; see `roofcalc models`.", "Shape", "NAME|FILE"),
    option(
        "layer",
        int | None,
        None,
        "--layer",
        panel="Shape",
        metavar="N",
        help="Which of the model's layers, from 0, where they differ.",
        show_default=False,
    ),
)
PASS = word("pass_", ("fwd", "bwd", "fwd+bwd"), "Forward, backward or both; default fwd.", "Shape")
MACHINE = (
    several("gpu", "GPU by name or YAML file; give it twice to compare. Default h100.", "Machine", "NAME|FILE"),
    several("set", "Change a figure: --set memory.hbm.bandwidth=4.8TB/s.", "Machine", "FIELD=VALUE"),
)
CACHE = word("cache", ("cold", "warm"), "warm: what fits L2 is served by L2. Default cold.", "Machine")
VARIANT = several("variant", "Algorithm, or all; may be given twice. See `roofcalc variants`.", "Algorithm", "NAME")
FORMAT = word("format", FORMATS, "How the result is printed; default table.", "Output")
EXPLAIN = switch("explain", "Print every access and work item with its formula.", "Output")
PLOT = text("plot", "Draw the roofline into FILE (.png, .svg, .pdf).", "Output", "FILE")
OUTPUT = text("output", "Write the result to FILE instead of stdout.", "Output", "FILE")
RESULT = (FORMAT, EXPLAIN, PLOT, OUTPUT)


def takes(*parameters: inspect.Parameter) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Give a command its options: the function receives what was typed as one mapping."""

    def wrap(function: Callable[[Given], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(given)

        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        command.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return wrap
