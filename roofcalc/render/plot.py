"""Rooflines as a picture: the machine's slopes and ceilings, and where each kernel stands under them.

Both axes are logarithmic: FLOP per byte of HBM, and FLOP/s. A kernel's point is at (flops / bytes,
flops / time), where time is the roofline's: the point is what its own binding roof lets it attain, so it
lies on the HBM slope, on a ceiling, or below both where another resource binds or where the pipe executes
more than the useful FLOP that the axis counts. Its FLOP are those of all pipes (4 d + 5 a score in
attention), so a kernel at the tensor roof may stand a per cent above the tensor ceiling.

The exponential has no height of its own on an axis of FLOP/s: the special-function unit does 3.87e12
exponentials a second on an H100, and how many FLOP come with each depends on the kernel: 5 in a softmax,
4 d + 5 = 517 in attention with d = 128. So a kernel with exponentials has its own short ceiling, flops / exp
time, drawn where it is less than five times above the kernel. A picture of machines alone has no kernel;
there the line is the bare rate, labelled so.

The L2 slope is of FLOP per byte through L2, drawn over the same axis: it says what a kernel whose HBM
bytes all came from L2 could attain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roofcalc.core import Report, Row
from roofcalc.render import plot_format, units
from roofcalc.render.chart import draw
from roofcalc.render.fields import kernel_keys, numbers, roof_name, shape_line
from roofcalc.render.scene import Machine, Point, Scene

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEAR = 5.0
"""A kernel's own ceiling of exponentials is drawn up to this many times above the kernel."""

MOST = 4
"""How many different heights above their kernels are drawn, the nearest first: more cannot be told apart."""

_FIGURE_SPACE = "\u2007"
OWN_EXP = "exp: a kernel's own ceiling, the exp rate times its FLOP per exponential"


def plot_roofline(reports: Sequence[Report], path: str | Path) -> None:
    """Draw the reports' GPUs and kernels into `path`; numbers are those of the table.

    PNG, SVG or PDF by the ending, the same bytes for the same reports. Raises RoofcalcError for another
    ending, OSError where `path` cannot be written.
    """
    _save(scene(reports), path)


def plot_machines(machines: Mapping[str, Mapping[str, float]], path: str | Path, dtype: str = "bf16") -> None:
    """Draw the rooflines of machines alone: peaks as in Report.peaks (FLOP/s, B/s), by label."""
    _save(machines_alone(machines, dtype), path)


def machines_alone(machines: Mapping[str, Mapping[str, float]], dtype: str = "bf16") -> Scene:
    """The scene of plot_machines."""
    drawn = tuple(Machine(label, peaks, dtype) for label, peaks in machines.items())
    return Scene(drawn, title=f"Rooflines for {dtype} at the data sheets' clocks")


def scene(reports: Sequence[Report]) -> Scene:
    """The scene of plot_roofline: machines, kernels as points, and the key that names them."""
    first = {report.gpu: report for report in reversed(reports)}
    gpus = list(dict.fromkeys(report.gpu for report in reports))
    number = numbers(reports)
    points = [
        Point(number[key], gpus.index(report.gpu), row.intensity, row.flops / row.time, _exp_ceiling(row))
        for report in reports
        for key, row in zip(kernel_keys(report), report.kernels, strict=True)
        if row.intensity and not _hidden(row)
    ]
    nearest = sorted({point.exp / point.y for point in points if point.exp})[:MOST]
    points = [p if p.exp and p.exp / p.y in nearest else replace(p, exp=None) for p in points]
    shapes = list(dict.fromkeys(shape_line(report) for report in reports))
    return Scene(
        machines=tuple(
            Machine(first[gpu].hardware, first[gpu].peaks, first[gpu].shape.dtype) for gpu in gpus
        ),
        points=tuple(points),
        title=shapes[0] if len(shapes) == 1 else "",
        key=tuple(_key(reports, len(gpus) == 1)),
        footnote=OWN_EXP if any(point.exp for point in points) else "",
    )


def _hidden(row: Row) -> str:
    """Why a kernel has no place on logarithmic axes; empty where it has one."""
    if not row.intensity:
        return "no FLOP" if row.bytes else "no HBM bytes"
    return "" if row.time else "no time"


def _exp_ceiling(row: Row) -> float | None:
    seconds = row.roofs.get("exp")
    return float(row.flops / seconds) if seconds and NEAR * seconds > row.time else None


def _key(reports: Sequence[Report], with_time: bool) -> list[str]:
    """A line for each number of the table, with its time and bound where there is but one GPU."""
    number = numbers(reports)
    digits = len(str(len(number)))
    found: dict[int, str] = {}
    for report in reports:
        for key, row in zip(kernel_keys(report), report.kernels, strict=True):
            text = f"{number[key]:{_FIGURE_SPACE}>{digits}}  {report.variant} {row.name}"
            if _hidden(row):
                text += f" (not drawn: {_hidden(row)})"
            elif with_time:
                text += f" · {units.seconds(row.time)}, {roof_name(row)}"
            found.setdefault(number[key], text)
    return [found[n] for n in sorted(found)]


def figure(of: Scene) -> Figure:
    """The scene drawn, nothing saved."""
    import matplotlib.style

    with matplotlib.style.context("default"):
        return draw(of)


def _save(of: Scene, path: str | Path) -> None:
    """Write the picture without date or version, so that the same input gives the same bytes."""
    import matplotlib
    import matplotlib.style

    ending = plot_format(path)
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[ending]
    with matplotlib.style.context("default"), matplotlib.rc_context({"svg.hashsalt": "roofcalc"}):
        drawn = draw(of)
        drawn.savefig(path, format=ending, metadata=metadata, dpi=drawn.dpi)
