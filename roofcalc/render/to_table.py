"""Reports as a table for people: kernels numbered, one group of columns for each GPU."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from roofcalc.core import Report
from roofcalc.render import words
from roofcalc.render.fields import Key, gpu_line, numbers, shape_line
from roofcalc.render.grid import beside, draw, grid, lines

PIPED_WIDTH = 120
"""Where running text wraps when there is no terminal; the table itself may be wider."""

_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=%|x\b|[kMGTPEmµn]?(?:B|s|FLOP|op)\b)")


def to_table(
    reports: Sequence[Report],
    *,
    width: int | None = None,
    explain: bool = False,
    color: bool = False,
    **_style: object,
) -> str:
    """The table, its closing sentences and notes; with `explain` the ledger of every kernel after it.

    `width` is the terminal's in columns; None means a pipe, where the table is as wide as it needs to be.
    Columns that do not fit are left out, and named below; a number is never cut. `color` styles the
    headings with ANSI codes. Reports of different shapes get a table each, numbered through.
    """
    number = numbers(reports)
    shapes: dict[str, list[Report]] = {}
    for report in reports:
        shapes.setdefault(shape_line(report), []).append(report)
    text = "\n".join(_block(block, number, width, color) for block in shapes.values())
    if explain:
        from roofcalc.render.explain import explanation

        text += "\n" + explanation(reports)
    return text


def _block(reports: Sequence[Report], number: Mapping[Key, int], width: int | None, color: bool) -> str:
    """The reports of one shape: header, table, closing sentences, notes."""
    gpus = list(dict.fromkeys(report.gpu for report in reports))
    every = lines(reports, gpus, number)
    fitted = grid(every, gpus, width)
    room = width or PIPED_WIDTH
    under = [
        *beside(fitted, every),
        *_paragraph(words.closing(reports)),
        *map("Note: {}".format, words.notes(reports)),
    ]
    parts = [*_header(reports, room), "", draw(fitted, color), *(_wrapped(text, room) for text in under)]
    return "\n".join(parts) + "\n"


def _paragraph(sentences: Sequence[str]) -> list[str]:
    return [" ".join(sentences)] if sentences else []


def _header(reports: Sequence[Report], room: int) -> list[str]:
    """A line for each GPU and one for the shape; a single GPU shares the line where there is room."""
    gpus = list(dict.fromkeys(gpu_line(report) for report in reports))
    shape = shape_line(reports[0])
    together = f"{gpus[0]}      {shape}"
    if len(gpus) == 1 and len(together) <= room:
        return [together]
    return [_wrapped(line, room) for line in (*gpus, shape)]


def _wrapped(text: str, room: int) -> str:
    """The text in lines of `room` columns; a number stays with its unit."""
    joined = _NUMBER_AND_UNIT.sub("\u00a0", text)
    lines = textwrap.fill(
        joined, room, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return lines.replace("\u00a0", " ")
