"""The table's grid: which lines and columns there are, what fits a terminal, and how it is drawn."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roofcalc.core import Report, Row
from roofcalc.numeric import Num
from roofcalc.render import units, words
from roofcalc.render.fields import Key, effective, kernel_keys, roof_name

NOTICEABLE = 1.05
"""Executed over useful FLOP from which the executed ones get a column of their own."""

_REMARK = 16
_LEAST_WANTED = ("share", "effective", "launches", "FLOP/B", "executed", "FLOP", "HBM", "speed-up", "bound")


@dataclass(frozen=True)
class Line:
    """A line of the table; a heading has no rows, else there is one per GPU (None where it runs nothing)."""

    label: str
    rows: tuple[Row | None, ...] = ()
    speed_ups: tuple[Num | None, ...] = ()
    remark: str = ""


@dataclass(frozen=True)
class Column:
    """A column's cells, one per line. `gpu` stands over it where each GPU has one of its own."""

    head: str
    cells: tuple[str, ...]
    gpu: str = ""
    justify: str = "right"

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (self.head, self.gpu, *self.cells))


@dataclass(frozen=True)
class Grid:
    """What is drawn: `gap` spaces between columns, remarks `remark_width` wide (0: no room for them)."""

    columns: tuple[Column, ...]
    remarks: Column
    gap: int = 3
    remark_width: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        widths = [column.width for column in self.columns] + [self.remark_width] * bool(self.remark_width)
        return sum(widths) + self.gap * (len(widths) - 1)


def grid(lines: Sequence[Line], gpus: Sequence[str], width: int | None) -> Grid:
    """The columns for a terminal of `width`. Narrower gaps come first, then remarks that wrap, then
    remarks below the table, then fewer columns; what is left is never cut."""
    remarks = Column("", tuple(_remark(line, gpus) for line in lines), justify="left")
    full = Grid(tuple(_columns(lines, gpus)), remarks, remark_width=remarks.width)
    tight = replace(full, gap=2)
    wrapped = replace(tight, remark_width=min(_REMARK, remarks.width))
    if width is None or full.width <= width:
        return full
    if tight.width <= width:
        return tight
    if wrapped.width <= width:
        return replace(wrapped, remark_width=wrapped.remark_width + width - wrapped.width)
    return _narrowed(replace(tight, remark_width=0), width)


def _narrowed(of: Grid, width: int) -> Grid:
    """The grid without the columns that are missed least, until it fits."""
    for head in _LEAST_WANTED:
        if of.width <= width:
            break
        kept = tuple(column for column in of.columns if column.head != head)
        if len(kept) < len(of.columns):
            of = replace(of, columns=kept, left_out=(*of.left_out, head))
    return of


def lines(reports: Sequence[Report], gpus: Sequence[str], number: Mapping[Key, int]) -> list[Line]:
    """Per variant a heading, its kernels, and a total where there are several of them."""
    digits = len(str(max(number.values(), default=0)))
    made = []
    for variant in dict.fromkeys(report.variant for report in reports):
        by_gpu = {report.gpu: report for report in reports if report.variant == variant}
        there = [by_gpu.get(gpu) for gpu in gpus]
        keys = dict.fromkeys(key for report in there if report for key in kernel_keys(report))
        rows = [
            Line(f"  {number[key]:>{digits}} {key[1]}", tuple(_row(report, key) for report in there))
            for key in keys
        ]
        if len(rows) > 1:
            totals = tuple(report.total if report else None for report in there)
            rows.append(Line(f"  {'':>{digits}} total", totals))
        else:
            rows = [
                replace(line, rows=tuple(row and replace(row, share=None) for row in line.rows))
                for line in rows
            ]
        remark = " / ".join(
            dict.fromkeys(words.remark(report) for report in there if report and report.memory)
        )
        speed_ups = tuple(words.speed_up(report, reports) if report else None for report in there)
        made += [
            Line(variant),
            *rows[:-1],
            *(replace(r, speed_ups=speed_ups, remark=remark) for r in rows[-1:]),
        ]
    return made


def _row(report: Report | None, key: Key) -> Row | None:
    return dict(zip(kernel_keys(report), report.kernels, strict=True)).get(key) if report else None


def _remark(line: Line, gpus: Sequence[str]) -> str:
    """What stands beside a variant: with one GPU its speed-up too, which else has a column."""
    speed_up = [units.factor(line.speed_ups[0])] if len(gpus) == 1 and any(line.speed_ups) else []
    return " · ".join([*speed_up, *([line.remark] if line.remark else [])])


_Cell = Callable[[Row], str]
_SIZES: dict[str, _Cell] = {
    "launches": lambda row: units.count(row.launches),
    "FLOP": lambda row: units.si(row.flops),
    "executed": lambda row: units.si(row.executed_flops),
    "HBM": lambda row: units.size(row.bytes),
    "FLOP/B": lambda row: units.intensity(row.intensity),
}
_TIMES: dict[str, _Cell] = {
    "bound": roof_name,
    "roofline": lambda row: units.seconds(row.time),
    "expected": lambda row: units.seconds(row.expected, 2),
    "effective": effective,
    "share": lambda row: "" if row.share is None else units.percent(row.share),
}


def _columns(of: Sequence[Line], gpus: Sequence[str]) -> Iterator[Column]:
    """The label, the sizes (once where all GPUs agree), then what differs from GPU to GPU."""
    rows = [row for line in of for row in line.rows if row is not None]
    skipped = {
        "launches": all(row.launches == 1 for row in rows if row.name != "total"),
        "executed": all(row.executed_flops <= NOTICEABLE * row.flops for row in rows),
        "expected": all(row.expected is None for row in rows),
        "effective": all(row.expected is None for row in rows),
    }
    sizes = {head: cell for head, cell in _SIZES.items() if not skipped.get(head)}
    agreed = {head for head, cell in sizes.items() if all(_agree(line, cell) for line in of)}
    yield Column("", tuple(line.label for line in of), justify="left")
    for head, cell in sizes.items():
        if head in agreed:
            yield Column(head, tuple(_first(line, cell) for line in of))
    own = {**{head: cell for head, cell in sizes.items() if head not in agreed}, **_TIMES}
    for i, gpu in enumerate(gpus):
        over = gpu if len(gpus) > 1 else ""
        for head, cell in own.items():
            if skipped.get(head):
                continue
            cells = tuple(_cell(line, i, cell) for line in of)
            yield Column(head, cells, over, "left" if head == "bound" else "right")
            over = ""
        if len(gpus) > 1 and any(any(line.speed_ups) for line in of):
            yield Column("speed-up", tuple(_speed_up(line, i) for line in of))


def _agree(line: Line, cell: _Cell) -> bool:
    return len({cell(row) for row in line.rows if row is not None}) <= 1


def _first(line: Line, cell: _Cell) -> str:
    return next((cell(row) for row in line.rows if row is not None), "")


def _cell(line: Line, i: int, cell: _Cell) -> str:
    if not line.rows:
        return ""
    row = line.rows[i]
    return units.NONE if row is None else cell(row)


def _speed_up(line: Line, i: int) -> str:
    return "" if not any(line.speed_ups) or line.speed_ups[i] is None else units.factor(line.speed_ups[i])


def draw(of: Grid, color: bool) -> str:
    """The grid as text without trailing spaces; the first heading shares a line with the columns' heads."""
    table = Table(box=None, padding=(0, 0, 0, of.gap), pad_edge=False, header_style="")
    over = "\n" if any(column.gpu for column in of.columns) else ""
    columns = (*of.columns, *([of.remarks] if of.remark_width else ()))
    for n, column in enumerate(columns):
        head = Text(f"{column.gpu}{over}{column.head or column.cells[0]}", style="bold" if n == 0 else "dim")
        last = column is of.remarks
        table.add_column(
            head,
            justify="left" if column.justify == "left" else "right",
            no_wrap=not last,
            width=of.remark_width if last else None,
        )
    for i in range(1, len(of.columns[0].cells)):
        heading = not any(column.cells[i] for column in of.columns[1:])
        table.add_row(*(Text(column.cells[i], style="bold" if heading else "") for column in columns))
    out = io.StringIO()
    # The environment is kept out: rich takes FORCE_COLOR=0 for a wish for colour, and COLUMNS for the width.
    console = Console(
        file=out,
        width=of.width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        _environ={},
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def beside(of: Grid, all_lines: Sequence[Line]) -> list[str]:
    """The lines that a narrow terminal needs below the table: its remarks, and what was left out."""
    found = []
    if not of.remark_width:
        variant = ""
        for line, remark in zip(all_lines, of.remarks.cells, strict=True):
            variant = variant if line.rows else line.label
            found += [f"{variant}: {remark}"] if remark else []
    if of.left_out:
        found.append(f"Too narrow for: {', '.join(of.left_out)}.")
    return found
