"""The ledger in words: every access and every work item with its formula, and the time of every roof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roofcalc.core import Access, Report, Row, Work
from roofcalc.render import units
from roofcalc.render.fields import (
    ROOFS,
    gpu_line,
    kernel_keys,
    moved,
    numbers,
    op_rate,
    over_launches,
    shape_line,
)

_NOISE = 1e-12
"""Terms of an expected time below this, in seconds, are nothing or rounding and not printed."""


def explanation(reports: Sequence[Report]) -> str:
    """One section per report: its kernels under the numbers of the table.

    Bytes and operations are those of all launches of a kernel; the formula of an access gives its
    elements, so bytes are that times the size of one element.
    """
    number = numbers(reports)
    lines: list[str] = []
    for report in reports:
        lines += [
            "",
            f"{report.variant} on {gpu_line(report)}",
            f"  {shape_line(report)}",
            f"  {report.source}",
        ]
        for key, row in zip(kernel_keys(report), report.kernels, strict=True):
            lines += ["", f"  {number[key]} {row.name}", *(f"    {line}" for line in _kernel(row))]
    return "\n".join(lines[1:]) + "\n"


def _kernel(row: Row) -> Iterator[str]:
    yield from _aligned([_access(row, access) for access in row.ledger])
    yield from _aligned([_work(row, item) for item in row.work])
    if row.intensity is not None:
        ridge = "" if row.ridge is None else f"; ridge {units.intensity(row.ridge)}"
        yield (
            f"intensity {units.intensity(row.intensity)} FLOP/B = {units.count(row.flops)} FLOP "
            f"/ {units.count(row.bytes)} B{ridge}"
        )
    yield from _aligned(list(_roofs(row)))
    if row.units is not None:
        yield _grid(row)
    if row.expected is not None:
        yield f"expected {units.seconds(row.expected)}"
        yield from _aligned(
            [(f"  {t.name}", _signed(t.seconds), t.why) for t in row.terms if abs(t.seconds) >= _NOISE]
        )
        if row.terms:
            most = max(row.terms, key=lambda term: float(term.seconds))
            share = units.percent(min(1, most.seconds / row.expected))
            yield f"  attack {most.name} first: {share} of the expected time"


def _access(row: Row, access: Access) -> tuple[str, ...]:
    elements = access.elements * row.launches
    formula = f"{over_launches(row, access.why)}: {units.count(elements)} {access.dtype}"
    return f"{access.mode}s", access.tensor, ROOFS[access.tier], units.size(moved(row, access)), formula


def _work(row: Row, item: Work) -> tuple[str, ...]:
    ops, run = item.ops * row.launches, item.run * row.launches
    name = f"{item.pipe} {item.dtype}" if item.pipe == "tensor" else item.pipe
    unit = op_rate(item.dtype).removesuffix("/s") if item.pipe != "exp" else "op"
    executed = "" if run == ops else f"; executed {units.si(run, unit)}"
    return "work", name, units.si(ops, unit), f"{over_launches(row, item.why)}: {units.count(ops)}{executed}"


def _roofs(row: Row) -> Iterator[tuple[str, ...]]:
    """The time of every roof, with the one that binds marked."""
    for name, label in ROOFS.items():
        time = row.roofs.get(name)
        if time is not None:
            share = "binds" if name == row.roof else f"{units.percent(time / row.time)}" if row.time else ""
            yield "roof", label, units.seconds(time), share


def _grid(row: Row) -> str:
    text = f"grid {units.count(row.units)} thread blocks"
    if row.waves is not None:
        text += f" = {units.significant(row.waves)} waves, {units.percent(row.sm_use)} of the SMs in use"
    return text + (" each launch" if row.launches != 1 else "")


def _signed(seconds: float) -> str:
    """Signed, for a term that hides others is below 0."""
    return f"{'-' if seconds < 0 else '+'}{units.seconds(abs(seconds))}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as columns two spaces apart; the last column is as long as it likes."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
