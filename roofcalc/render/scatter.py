"""Predicted against measured as a picture: every row a point, both predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roofcalc.render import plot_format

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from roofcalc.validation import Validation

POINTS = 4000
"""Points drawn at most of each prediction; of more, evenly spaced ones."""


def plot_validation(found: Validation, path: str | Path) -> None:
    """Draw `figure` into `path`; PNG, SVG or PDF by its ending, the same bytes for the same rows."""
    import matplotlib
    import matplotlib.style

    kind = plot_format(path)
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with matplotlib.style.context("default"), matplotlib.rc_context({"svg.hashsalt": "roofcalc"}):
        figure(found).savefig(path, format=kind, metadata=metadata, dpi=150)


def figure(found: Validation) -> Figure:
    """Left: predicted over measured time of every row, both axes logarithmic, the diagonal where they agree.
    Right: predicted / measured by measured time, the band within 10 %."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(11, 5), layout="constrained")
    left, right = drawing.subplots(1, 2)
    every = slice(None, None, max(1, len(found.rows) // POINTS))
    measured = found.rows["time_s"][every]
    for name, values, color in (("roofline", found.roofline, "#b0b0b0"), ("expected", found.expected, "#c44e52")):
        predicted = values[every]
        left.plot(measured, predicted, ".", ms=3, color=color, alpha=0.6, label=name)
        right.plot(measured, predicted / measured, ".", ms=3, color=color, alpha=0.6, label=name)
    if len(measured):
        ends = [float(measured.min()), float(measured.max())]
        left.plot(ends, ends, "-", color="black", lw=0.8)
        right.fill_between(ends, 0.9, 1.1, color="black", alpha=0.08, lw=0)
    right.axhline(1, color="black", lw=0.8)
    right.set_ylim(0.01, 10)
    for axes, label in ((left, "predicted, s"), (right, "predicted / measured")):
        axes.set(xscale="log", yscale="log", xlabel="measured, s", ylabel=label)
        axes.grid(True, which="major", lw=0.3)
    left.legend(frameon=False)
    left.set_title(f"{len(found.rows)} measured kernels")
    right.set_title("within 10 % in the band")
    return drawing
