"""What a roofline picture shows, as values: machines, kernels, ranges of the axes, ceilings, the key."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from roofcalc.render import units
from roofcalc.render.fields import op_rate

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7F6000", "#56B4E9")
"""Okabe and Ito's colours: told apart with any colour vision. A GPU also has its own marker."""

MARKERS = ("o", "s", "^", "D", "v", "P")
_ROOM = 0.23
"""The part of the width right of the last point that is left to the names of the ceilings."""

_KEY = 40
"""Where a line of the key wraps, in characters."""


@dataclass(frozen=True)
class Machine:
    """A GPU's peaks (FLOP/s of tensor, vector, exp; B/s of hbm, l2), as in Report.peaks."""

    label: str
    peaks: Mapping[str, float]
    dtype: str

    @property
    def top(self) -> float:
        return self.peaks.get("tensor", self.peaks["vector"])


@dataclass(frozen=True)
class Point:
    """A kernel: its number, its machine, FLOP per byte, FLOP/s, and its own ceiling of exponentials."""

    number: int
    machine: int
    x: float
    y: float
    exp: float | None = None


@dataclass(frozen=True)
class Scene:
    """A picture's content: the key names the points' numbers, the footnote explains what is drawn."""

    machines: tuple[Machine, ...]
    points: tuple[Point, ...] = ()
    title: str = ""
    key: tuple[str, ...] = ()
    footnote: str = ""


def limits(scene: Scene) -> tuple[float, float, float, float]:
    """The axes' ranges: every ridge and every point, with room at the right for the ceilings' names."""
    ridges = [machine.top / machine.peaks["hbm"] for machine in scene.machines]
    xs = [float(point.x) for point in scene.points]
    low = min([0.5 * x for x in xs] + [min(ridges) / 100, 1.0 if not xs else 0.5])
    x0 = 10.0 ** math.floor(math.log10(low))
    x1 = max([x0 * (x / x0) ** (1 / (1 - _ROOM)) for x in xs] + [15 * max(ridges)])
    slopes = [machine.peaks["hbm"] * x0 for machine in scene.machines]
    tops = [machine.top for machine in scene.machines]
    exps = [point.exp for point in scene.points if point.exp]
    y0 = min(slopes + [0.6 * float(point.y) for point in scene.points])
    return x0, x1, y0, max([2.5 * max(tops)] + [2.5 * exp for exp in exps])


def full_ceilings(machine: Machine, scene: Scene) -> dict[str, tuple[float, str, str]]:
    """The full-width ceilings by pipe: their height, line style and label."""
    rate = op_rate(machine.dtype)
    found = {}
    if "tensor" in machine.peaks:
        peak = machine.peaks["tensor"]
        found["tensor"] = (peak, "-", f"tensor {machine.dtype} {units.si(peak, rate, trim=True)}")
    vector = machine.peaks["vector"]
    style = "--" if "tensor" in machine.peaks else "-"
    found["vector"] = (vector, style, f"fp32 {units.si(vector, 'FLOP/s', trim=True)}")
    if not scene.points:
        exp = machine.peaks["exp"]
        found["exp"] = (exp, ":", f"exp {units.si(exp, 'op/s')}, one op per exponential")
    return found


@dataclass(frozen=True)
class Entry:
    """A line of the key; with a machine's number it starts with that GPU's marker."""

    text: str
    machine: int | None = None
    dim: bool = False


def key_entries(scene: Scene) -> list[Entry]:
    """The key from the top down: machines (with their peaks where there are several), kernels, footnote."""
    found: list[Entry] = []
    for i, machine in enumerate(scene.machines):
        found.append(Entry(machine.label, i))
        if len(scene.machines) > 1:
            peak = units.si(machine.top, op_rate(machine.dtype), trim=True)
            bandwidth = units.si(machine.peaks["hbm"], "B/s", trim=True)
            found.append(
                Entry(f"{peak} · {bandwidth} · ridge {units.significant(machine.top / machine.peaks['hbm'])}")
            )
    for text in scene.key:
        first, *more = textwrap.wrap(text, _KEY, subsequent_indent="     ") or [""]
        found += [*([Entry("")] if text == scene.key[0] else []), Entry(first), *map(Entry, more)]
    if scene.footnote:
        found += [Entry(""), *(Entry(line, dim=True) for line in textwrap.wrap(scene.footnote, _KEY))]
    return found


def color_of(machine: int) -> str:
    return COLORS[machine % len(COLORS)]


def marker_of(machine: int) -> str:
    return MARKERS[machine % len(MARKERS)]
