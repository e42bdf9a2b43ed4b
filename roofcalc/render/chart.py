"""A roofline scene drawn with matplotlib: lines and markers first, then every label in a free place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullFormatter

from roofcalc.render import units
from roofcalc.render.placing import XY, Box, Page, along, around, segment
from roofcalc.render.scene import (
    Entry,
    Machine,
    Point,
    Scene,
    color_of,
    full_ceilings,
    key_entries,
    limits,
    marker_of,
)

DPI = 150
AXES = (7.2, 5.2)
"""Width and height of the axes in inches; the figure grows with its key."""

_SAME, _APART = 6.0, 16.0
"""In pixels: points this near are one place; a label this far from its place is joined to it by a line."""

_SMALL, _TEXT, _LINE, _MARKER = 8.0, 9.0, 0.19, 6.5
_LEFT, _BOTTOM, _TOP, _PAD = 0.75, 0.6, 0.45, 0.2


_Place = tuple[XY, list[Point]]


@dataclass
class _Chart:
    """The figure at work: its axes, and the page of what is taken, in pixels."""

    figure: Figure
    axes: Any
    renderer: Any
    page: Page

    def pixels(self, x: float, y: float) -> XY:
        px, py = self.axes.transData.transform((x, y))
        return float(px), float(py)

    def size(self, text: str, weight: str = "normal") -> tuple[float, float]:
        """Width and height of a label in pixels, with a pixel of margin."""
        width, height = _measure(self.renderer, text, _SMALL, weight)
        return width + 2, height + 2

    def line(self, a: XY, b: XY, color: str, **style: Any) -> None:
        """A line in data coordinates, which labels rather avoid."""
        self.axes.plot((a[0], b[0]), (a[1], b[1]), color=color, **style)
        self.page.lines.append(segment(self.pixels(*a), self.pixels(*b), 2.0))

    def label(
        self,
        text: str,
        candidates: Iterable[Box],
        color: str,
        leader: XY | None = None,
        weight: str = "normal",
    ) -> Box | None:
        """A text in the best of the candidate places, with a white rim that lifts it off lines."""
        box = self.page.place(candidates, leader, margin=6)
        if box is not None:
            x, y = self.figure.transFigure.inverted().transform(box.center)
            self.figure.text(
                x,
                y,
                text,
                fontsize=_SMALL,
                weight=weight,
                color=color,
                ha="center",
                va="center",
                rotation=math.degrees(box.angle),
                rotation_mode="anchor",
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
        return box


def _measure(renderer: Any, text: str, size: float, weight: str = "normal") -> tuple[float, float]:
    width, height, _ = renderer.get_text_width_height_descent(
        text, FontProperties(size=size, weight=weight), False
    )
    return float(width), float(height)


def draw(scene: Scene) -> Figure:
    """The scene as a figure, which is as large as its key needs."""
    renderer = FigureCanvasAgg(Figure(dpi=DPI)).get_renderer()  # type: ignore[no-untyped-call]
    entries = key_entries(scene)
    key_width = max(_measure(renderer, entry.text, _TEXT, "bold")[0] for entry in entries) / DPI + 0.25
    title_width = _measure(renderer, scene.title, _TEXT + 1)[0] / DPI
    width = _LEFT + max(AXES[0] + _PAD + key_width, title_width) + _PAD
    height = max(_BOTTOM + AXES[1] + _TOP, len(entries) * _LINE + _TOP + _PAD)
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    tall = height - _BOTTOM - _TOP
    axes = figure.add_axes((_LEFT / width, _BOTTOM / height, AXES[0] / width, tall / height))
    _frame(axes, scene)
    center = ((_LEFT + AXES[0] / 2) * DPI, (_BOTTOM + tall / 2) * DPI)
    chart = _Chart(figure, axes, renderer, Page(Box(center, AXES[0] * DPI - 4, tall * DPI - 4)))
    for i, machine in enumerate(scene.machines):
        _lines(chart, machine, color_of(i), scene)
    ceilings = _points(chart, scene)
    for i, machine in enumerate(scene.machines):
        _names(chart, machine, color_of(i), scene)
    _exps(chart, ceilings)
    _key(figure, entries, _LEFT + AXES[0] + _PAD)
    figure.text(_LEFT / width, 1 - 0.5 * _TOP / height, scene.title, fontsize=_TEXT + 1, va="center")
    return figure


def _frame(axes: Any, scene: Scene) -> None:
    x0, x1, y0, y1 = limits(scene)
    axes.set(xscale="log", yscale="log", xlim=(x0, x1), ylim=(y0, y1))
    axes.set_xlabel("FLOP per byte of HBM", fontsize=_TEXT)
    axes.set_ylabel("FLOP/s", fontsize=_TEXT)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: units.si(value, trim=True)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=_SMALL)
    axes.grid(which="major", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _lines(chart: _Chart, machine: Machine, color: str, scene: Scene) -> None:
    """The slopes of HBM and L2, the ceilings from the L2 slope on, and the ridge."""
    peaks, top = machine.peaks, machine.top
    x0, x1 = chart.axes.get_xlim()
    y0 = chart.axes.get_ylim()[0]
    for tier, style, width in (("l2", "-.", 1.0), ("hbm", "-", 1.8)):
        knee = top / peaks[tier]
        start = max(x0, y0 / peaks[tier])
        chart.line((start, peaks[tier] * start), (knee, top), color, linestyle=style, linewidth=width)
    for name, (height, style, _) in full_ceilings(machine, scene).items():
        start = max(x0, height / peaks["l2"])
        width = 1.8 if name == "tensor" or height == top else 1.0
        chart.line((start, height), (x1, height), color, linestyle=style, linewidth=width)
    ridge = top / peaks["hbm"]
    chart.line((ridge, y0), (ridge, top), color, linestyle=(0, (1, 3)), linewidth=0.8)


def _points(chart: _Chart, scene: Scene) -> list[_Place]:
    """Markers and own ceilings, then a number for each place: kernels that coincide share one.

    Gives back the ceilings, which are named last: their names have the most places to go to.
    """
    size = _MARKER * DPI / 72
    places = _places(chart, [(point, (point.x, point.y)) for point in scene.points])
    for at, points in places:
        machine = points[0].machine
        chart.axes.plot(
            *at,
            marker=marker_of(machine),
            markersize=_MARKER,
            color=color_of(machine),
            markeredgecolor="white",
            markeredgewidth=0.6,
            linestyle="none",
            zorder=5,
        )
        chart.page.solid.append(Box(chart.pixels(*at), size, size))
    ceilings = _places(chart, [(point, (point.x, point.exp)) for point in scene.points if point.exp])
    for (x, height), points in ceilings:
        ends = (x / 1.7, height), (x * 1.7, height)
        chart.line(*ends, color_of(points[0].machine), linestyle=":", linewidth=1.6)
        chart.page.solid.append(segment(chart.pixels(*ends[0]), chart.pixels(*ends[1]), 3.0))
    for at, points in places:
        color = color_of(points[0].machine)
        _name_point(chart, _numbers(points), chart.pixels(*at), color, gap=9, weight="bold")
    return ceilings


def _exps(chart: _Chart, ceilings: Sequence[_Place]) -> None:
    """The names of the kernels' own ceilings, from the top down so that each stands over its own."""
    for (x, height), points in sorted(ceilings, key=lambda place: -place[0][1]):
        text = f"exp of {_numbers(points)}: {units.si(height, 'FLOP/s')}"
        _name_point(chart, text, chart.pixels(x, height), color_of(points[0].machine), gap=4)


def _places(chart: _Chart, found: Sequence[tuple[Point, XY]]) -> list[_Place]:
    """Points of one machine that the eye cannot tell apart, together, each group at its first one."""
    places: list[_Place] = []
    for point, at in found:
        for there, group in places:
            apart = math.dist(chart.pixels(*there), chart.pixels(*at))
            if group[0].machine == point.machine and apart < _SAME:
                group.append(point)
                break
        else:
            places.append((at, [point]))
    return places


def _numbers(points: Sequence[Point]) -> str:
    return ",".join(map(str, sorted({point.number for point in points})))


def _name_point(chart: _Chart, text: str, at: XY, color: str, gap: float, weight: str = "normal") -> None:
    """A text beside a place, joined to it by a thin line where it stands apart."""
    size = chart.size(text, weight)
    box = chart.label(text, around(at, *size, gap), color, leader=at, weight=weight)
    box = box or chart.label(text, around(at, *size, gap, rings=40), color, weight=weight)
    if box is not None and math.dist(at, near := box.nearest(at)) > _APART:
        back = chart.axes.transData.inverted()
        (ax, ay), (bx, by) = back.transform(at), back.transform(near)
        chart.axes.plot((ax, bx), (ay, by), color="0.5", linewidth=0.6, zorder=4)


def _names(chart: _Chart, machine: Machine, color: str, scene: Scene) -> None:
    """The names of slopes, ceilings and ridge, each slid along its line to where there is room."""
    peaks, top = machine.peaks, machine.top
    x0, x1 = chart.axes.get_xlim()
    y0 = chart.axes.get_ylim()[0]
    for height, _, text in full_ceilings(machine, scene).values():
        ends = (max(x0, height / peaks["l2"]), height), (x1, height)
        _name_line(chart, text, ends, [1 - share / 20 for share in range(21)], color)
    for tier, label in (("hbm", "HBM"), ("l2", "L2")):
        start = max(x0, y0 / peaks[tier])
        ends = (start, peaks[tier] * start), (top / peaks[tier], top)
        text = f"{label} {units.si(peaks[tier], 'B/s', trim=True)}"
        _name_line(chart, text, ends, [0.1 + share / 25 for share in range(22)], color)
    ridge = top / peaks["hbm"]
    text = f"ridge {units.significant(ridge)}"
    foot, knee = chart.pixels(ridge, y0), chart.pixels(ridge, top)
    chart.label(text, _beside(foot, knee, *chart.size(text), gap=4), color)


def _name_line(chart: _Chart, text: str, ends: tuple[XY, XY], shares: Sequence[float], color: str) -> None:
    """A name along a line, or anywhere near its middle where the line has no room."""
    a, b = (chart.pixels(*end) for end in ends)
    size = chart.size(text)
    middle = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)
    chart.label(
        text, chain(along(a, b, *size, gap=3, shares=shares), around(middle, *size, gap=5, rings=40)), color
    )


def _beside(foot: XY, head: XY, width: float, height: float, gap: float) -> Iterator[Box]:
    """Places beside an upright line from its foot upward: right of it, else left."""
    steps = int((head[1] - foot[1]) / height)
    for step in range(1, steps):
        for side in (1, -1):
            yield Box((foot[0] + side * (gap + width / 2), foot[1] + height * step), width, height)


def _key(figure: Figure, entries: Sequence[Entry], left: float) -> None:
    """The key beside the axes, from the top down; `left` in inches."""
    width, height = figure.get_size_inches()
    for row, entry in enumerate(entries):
        y = 1 - (_TOP + row * _LINE) / height
        if entry.machine is not None:
            style: dict[str, Any] = {"color": color_of(entry.machine), "marker": marker_of(entry.machine)}
            figure.add_artist(
                Line2D([(left + 0.06) / width], [y], markersize=_MARKER, linestyle="none", **style)
            )
        figure.text(
            (left + 0.2 * (entry.machine is not None)) / width,
            y,
            entry.text,
            fontsize=_TEXT,
            va="center",
            color="0.35" if entry.dim else "black",
            weight="bold" if entry.machine is not None else "normal",
        )
