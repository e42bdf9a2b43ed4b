"""Renderers: each turns the same reports into one format, and sees nothing but reports.

A renderer is ``(reports, *, command, width=None, explain=False, color=False) -> str``; its text ends
with a newline. Only the table uses `width` and `color`; the ledger is always part of the JSON.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from roofcalc.core import RoofcalcError

if TYPE_CHECKING:
    from roofcalc.core import Report

PLOT_ENDINGS = ("png", "svg", "pdf")


class Renderer(Protocol):
    """Reports to text. `width` is the terminal's, None where there is none."""

    def __call__(
        self,
        reports: Sequence[Report],
        *,
        command: str,
        width: int | None = None,
        explain: bool = False,
        color: bool = False,
    ) -> str: ...


def _lazy(name: str) -> Renderer:
    """The function `name` of the module of that name, imported when it is first called."""

    def render(
        reports: Sequence[Report],
        *,
        command: str,
        width: int | None = None,
        explain: bool = False,
        color: bool = False,
    ) -> str:
        function: Renderer = getattr(importlib.import_module(f"roofcalc.render.{name}"), name)
        return function(reports, command=command, width=width, explain=explain, color=color)

    return render


FORMATS: Mapping[str, Renderer] = {name: _lazy(f"to_{name}") for name in ("table", "json", "csv", "markdown")}


def plot_format(path: str | Path) -> str:
    """`png`, `svg` or `pdf`, by the ending of `path`; RoofcalcError for any other ending."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in PLOT_ENDINGS:
        found = f"ends in .{ending}" if ending else "has no ending"
        raise RoofcalcError(f"the plot {str(path)!r} {found}; choose .{', .'.join(PLOT_ENDINGS)}")
    return ending
