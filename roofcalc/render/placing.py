"""Where labels go: rectangles that may be turned, and a search for a place where none meets another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

XY = tuple[float, float]
_CROSSING = 12


@dataclass(frozen=True)
class Box:
    """A rectangle of width x height pixels around a centre, turned by `angle` radians."""

    center: XY
    width: float
    height: float
    angle: float = 0.0

    def corners(self) -> tuple[XY, ...]:
        c, s = math.cos(self.angle), math.sin(self.angle)
        halves = [(x * self.width / 2, y * self.height / 2) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        return tuple((self.center[0] + x * c - y * s, self.center[1] + x * s + y * c) for x, y in halves)

    def wider(self, by: float) -> Box:
        """The same rectangle with `by` pixels more at its left and right."""
        return Box(self.center, self.width + 2 * by, self.height, self.angle)

    def nearest(self, point: XY) -> XY:
        """The point of an upright rectangle that is nearest to `point`."""
        (x0, y0), _, (x1, y1), _ = self.corners()
        return min(max(point[0], x0), x1), min(max(point[1], y0), y1)


def segment(a: XY, b: XY, thickness: float = 1.0) -> Box:
    """A straight line from a to b as a thin rectangle."""
    center = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)
    return Box(center, math.dist(a, b), thickness, math.atan2(b[1] - a[1], b[0] - a[0]))


def overlap(a: Box, b: Box) -> bool:
    """Whether two rectangles meet: they do unless one of their four directions separates them."""
    of_a, of_b = a.corners(), b.corners()
    for angle in (a.angle, a.angle + math.pi / 2, b.angle, b.angle + math.pi / 2):
        c, s = math.cos(angle), math.sin(angle)
        along_a = [x * c + y * s for x, y in of_a]
        along_b = [x * c + y * s for x, y in of_b]
        if max(along_a) <= min(along_b) or max(along_b) <= min(along_a):
            return False
    return True


def inside(box: Box, frame: Box) -> bool:
    """Whether every corner of `box` lies in the upright rectangle `frame`."""
    (x0, y0), _, (x1, y1), _ = frame.corners()
    return all(x0 <= x <= x1 and y0 <= y <= y1 for x, y in box.corners())


@dataclass
class Page:
    """What is taken: `solid` no label may touch, `lines` it should rather not cross."""

    frame: Box
    solid: list[Box] = field(default_factory=list)
    lines: list[Box] = field(default_factory=list)

    def place(self, candidates: Iterable[Box], leader: XY | None = None, margin: float = 0) -> Box | None:
        """The best free candidate, taken from now on with `margin` pixels to its sides; None if none is free.

        The best is the earliest, where crossing a line counts as much as standing _CROSSING places later.
        With `leader`, the line from there to the candidate must be free as well.
        """
        best: tuple[int, Box] | None = None
        for rank, box in enumerate(candidates):
            if best is not None and rank >= best[0]:
                break
            wide = box.wider(margin)
            if not inside(box, self.frame) or any(overlap(wide, other) for other in self.solid):
                continue
            if leader is not None and self._blocked(leader, box):
                continue
            cost = rank + _CROSSING * sum(overlap(box, line) for line in self.lines)
            if best is None or cost < best[0]:
                best = (cost, box)
        if best is None:
            return None
        self.solid.append(best[1].wider(margin))
        return best[1]

    def _blocked(self, start: XY, box: Box) -> bool:
        line = segment(start, box.center)
        return any(overlap(line, other) for other in self.solid if not _holds(other, start))


def _holds(box: Box, point: XY) -> bool:
    return overlap(box, Box(point, 0.1, 0.1))


def around(point: XY, width: float, height: float, gap: float, rings: int = 10) -> Iterator[Box]:
    """Places beside a point, nearest first: right and above before left and below, in growing rings."""
    for ring in range(rings):
        reach = gap + 10 * ring
        for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1), (-1, 1), (-1, 0), (0, -1), (-1, -1)):
            center = (point[0] + dx * (reach + width / 2), point[1] + dy * (reach + height / 2))
            yield Box(center, width, height)


def along(a: XY, b: XY, width: float, height: float, gap: float, shares: Sequence[float]) -> Iterator[Box]:
    """Places along the line from a to b, turned with it: over it rather than under it.

    A share of 0 starts the label at a, 1 ends it at b.
    """
    length, angle = math.dist(a, b), math.atan2(b[1] - a[1], b[0] - a[0])
    c, s = math.cos(angle), math.sin(angle)
    for share in shares:
        for side in (1, -1):
            walk = width / 2 + share * max(0.0, length - width)
            rise = side * (gap + height / 2)
            yield Box((a[0] + c * walk - s * rise, a[1] + s * walk + c * rise), width, height, angle)
