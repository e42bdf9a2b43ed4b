"""The roofline picture: where points stand, that no label meets another, and that bytes repeat."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from roofcalc.core import Report, Row, Shape
from roofcalc.render import PLOT_ENDINGS
from roofcalc.render.placing import Box, Page, inside, overlap
from roofcalc.render.plot import figure, machines_alone, plot_machines, plot_roofline, scene
from roofcalc.render.scene import Scene
from roofcalc.shape import RoofcalcError

H100 = {
    **{"tensor": 989.4e12, "vector": 66.9e12, "exp": 3.865e12},
    **{"hbm": 3.35e12, "l2": 9.4e12, "smem": 30.9e12, "ridge": 295.34},
}
A100 = {
    **{"tensor": 312e12, "vector": 19.5e12, "exp": 2.436e12},
    **{"hbm": 2.039e12, "l2": 7.22e12, "smem": 19.5e12, "ridge": 153.0},
}
PEAKS = {"h100": H100, "a100": A100}


def kernel(name: str, intensity: float, gpu: str, exp_share: float | None = None) -> Row:
    """A kernel of 1e12 FLOP under the HBM slope and the tensor ceiling; exp as a share of its time."""
    flops = 1_000_000_000_000
    roofs = {
        "hbm": flops / intensity / PEAKS[gpu]["hbm"],
        "tensor": flops / PEAKS[gpu]["tensor"],
        "exp": None,
    }
    roof = max(("hbm", "tensor"), key=lambda key: roofs[key] or 0)
    time = roofs[roof] or 0
    if exp_share:
        roofs["exp"] = exp_share * time
    moved = round(flops / intensity)
    bound = "memory" if roof == "hbm" else "compute"
    return Row(name, flops, flops, moved, intensity, time, 1, bound=bound, roof=roof, roofs=roofs, share=1.0)


def report(variant: str, gpu: str, *kernels: Row) -> Report:
    return Report(gpu, gpu.upper(), variant, "", Shape.of(T=8192), kernels, kernels[0], 0, PEAKS[gpu])


def naive(gpu: str) -> Report:
    rows = (
        kernel("scores", 124.12, gpu),
        kernel("softmax", 1.25, gpu, exp_share=0.22),
        kernel("pv", 124.12, gpu),
    )
    return report("naive", gpu, *rows)


def eager(gpu: str) -> Report:
    sizes = {"scores": 124.12, "scale": 0.125, "mask": 0.0833, "softmax": 0.625, "dropout": 0.2, "pv": 124.12}
    return report("eager", gpu, *(kernel(name, intensity, gpu) for name, intensity in sizes.items()))


def flash(gpu: str) -> Report:
    return report("flash", gpu, kernel("attention", 4136, gpu, exp_share=0.5))


def crowd(gpu: str) -> Report:
    """Twelve kernels within one decade, some of them on one place."""
    return report("mine", gpu, *(kernel(f"k{i}", 20 + 6 * (i // 2), gpu, exp_share=0.4) for i in range(12)))


SCENES: dict[str, Scene] = {
    "default": scene([naive("h100"), flash("h100")]),
    "eager": scene([eager("h100"), flash("h100")]),
    "two GPUs": scene([naive("a100"), naive("h100"), eager("a100"), eager("h100"), flash("h100")]),
    "machines": machines_alone({"A100 SXM4 80 GB": A100, "H100 SXM5 80 GB": H100}),
    "decode": scene([report("flash", "h100", kernel("attention", 1.0, "h100"))]),
    "crowd": scene([crowd("h100"), naive("h100")]),
    "long key": scene(
        [report("v", "h100", *(kernel(f"a name {i} " * 6, 2.0**i, "h100") for i in range(16)))]
    ),
}


def labels(drawn: Figure) -> list[Text]:
    """Every text that the picture shows, ticks and axis labels included."""
    drawn.canvas.draw()
    axes = drawn.axes[0]
    ticks = [
        tick
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for place, tick in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        if low <= place <= high
    ]
    return [text for text in (*drawn.texts, axes.xaxis.label, axes.yaxis.label, *ticks) if text.get_text()]


def polygon(text: Text) -> list[tuple[float, float]]:
    """The corners of a text as drawn, turned about the centre of its extent, in pixels."""
    turned = text.get_rotation()
    around = text.get_window_extent()
    center = ((around.x0 + around.x1) / 2, (around.y0 + around.y1) / 2)
    text.set_rotation(0)
    flat = text.get_window_extent()
    text.set_rotation(turned)
    halves, angle = (flat.width / 2, flat.height / 2), math.radians(turned)
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    c, s = math.cos(angle), math.sin(angle)
    return [
        (
            center[0] + x * halves[0] * c - y * halves[1] * s,
            center[1] + x * halves[0] * s + y * halves[1] * c,
        )
        for x, y in signs
    ]


def apart(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]]) -> bool:
    """Whether an edge of one of two convex polygons has all of the other beyond it."""
    for one, other in ((a, b), (b, a)):
        for (x0, y0), (x1, y1) in itertools.pairwise([*one, one[0]]):
            if all((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) <= 0 for x, y in other):
                return True
    return False


@pytest.mark.parametrize("name", SCENES)
def test_no_label_meets_another_or_leaves_the_picture(name: str) -> None:
    drawn = figure(SCENES[name])
    shapes = [(text.get_text(), polygon(text)) for text in labels(drawn)]
    for (first, a), (second, b) in itertools.combinations(shapes, 2):
        assert apart(a, b), f"{first!r} meets {second!r}"
    width, height = drawn.get_size_inches() * drawn.dpi
    for text, corners in shapes:
        assert all(0 <= x <= width and 0 <= y <= height for x, y in corners), f"{text!r} is cut"


@pytest.mark.parametrize("name", SCENES)
def test_no_label_covers_a_marker(name: str) -> None:
    drawn = figure(SCENES[name])
    axes = drawn.axes[0]
    shapes = [(text.get_text(), polygon(text)) for text in labels(drawn)]
    for marked in (one for one in axes.lines if one.get_marker() not in ("None", None)):
        ((x, y),) = axes.transData.transform(marked.get_xydata())
        half = marked.get_markersize() / 2 * drawn.dpi / 72 * 0.9
        square = [(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]
        for text, corners in shapes:
            assert apart(square, corners), f"{text!r} covers a marker"


def test_polygons_that_meet_are_found() -> None:
    square = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]
    diamond = [(3.0, 0.0), (5.0, 2.0), (3.0, 4.0), (1.0, 2.0)]
    assert not apart(square, [(x + 1, y + 1) for x, y in square])
    assert not apart(square, diamond)
    assert apart(square, [(x + 1.1, y + 1.1) for x, y in diamond])


def texts(of: Scene) -> list[str]:
    return [text.get_text() for text in figure(of).texts]


def test_points_stand_at_intensity_and_attained_rate() -> None:
    points = {point.number: point for point in SCENES["default"].points}
    assert points[1].x == 124.12
    assert points[1].y == pytest.approx(124.12 * 3.35e12)  # on the HBM slope
    assert points[4].y == pytest.approx(989.4e12)  # on the tensor ceiling
    assert points[4].exp == pytest.approx(2 * 989.4e12)  # exp takes half of the time
    assert points[1].exp is None


def test_an_exp_ceiling_far_above_its_kernel_is_left_out() -> None:
    far = scene([report("v", "h100", kernel("k", 10, "h100", exp_share=0.1))])
    assert far.points[0].exp is None
    assert far.footnote == ""


def test_slopes_ceilings_ridge_and_kernels_are_named() -> None:
    found = texts(SCENES["default"])
    for text in ("HBM 3.35 TB/s", "L2 9.4 TB/s", "tensor bf16 989 TFLOP/s", "fp32 66.9 TFLOP/s", "ridge 295"):
        assert text in found
    assert {"1,3", "2", "4", "exp of 4: 1.98 PFLOP/s"} <= set(found)  # scores and pv coincide
    assert any(
        re.fullmatch(r"1  naive scores · 2\.40 ms, HBM", text) for text in found
    )  # 1e12/124.12/3.35e12


def test_machines_alone_label_the_bare_rate_of_exponentials() -> None:
    found = texts(SCENES["machines"])
    assert "exp 3.87 Top/s, one op per exponential" in found
    assert {"ridge 153", "ridge 295", "H100 SXM5 80 GB", "312 TFLOP/s · 2.04 TB/s · ridge 153"} <= set(found)


def test_a_slope_label_follows_its_line() -> None:
    drawn = figure(SCENES["machines"])
    drawn.canvas.draw()
    axes = drawn.axes[0]
    (x0, y0), (x1, y1) = axes.transData.transform([(1, 3.35e12), (10, 33.5e12)])
    label = next(text for text in drawn.texts if text.get_text() == "HBM 3.35 TB/s")
    assert label.get_rotation() == pytest.approx(math.degrees(math.atan2(y1 - y0, x1 - x0)), abs=0.1)


def test_a_kernel_without_hbm_bytes_or_flop_is_named_but_not_drawn() -> None:
    warm = replace(kernel("warm", 10, "h100"), bytes=0, intensity=None)
    copy = replace(kernel("copy", 10, "h100"), flops=0, intensity=0.0)
    of = scene([report("v", "h100", warm, copy, kernel("k", 10, "h100"))])
    assert [point.number for point in of.points] == [3]
    assert of.key[:2] == ("1  v warm (not drawn: no HBM bytes)", "2  v copy (not drawn: no FLOP)")
    assert figure(of)


def test_fp32_has_no_tensor_ceiling() -> None:
    peaks = {name: value for name, value in H100.items() if name != "tensor"}
    found = texts(machines_alone({"H100": peaks}, "fp32"))
    assert "ridge 20.0" in found  # 66.9 / 3.35
    assert not any("tensor" in text for text in found)


@pytest.mark.parametrize("ending", PLOT_ENDINGS)
def test_the_same_reports_give_the_same_bytes(tmp_path: Path, ending: str) -> None:
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    plot_roofline([naive("h100"), flash("h100")], first)
    plot_roofline([naive("h100"), flash("h100")], second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    assert b"CreationDate" not in first.read_bytes()
    assert b"dc:date" not in first.read_bytes()


def test_the_ending_decides_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    plot_machines({"H100": H100}, tmp_path / "roof.SVG")
    assert (tmp_path / "roof.SVG").read_text().startswith("<?xml")
    with pytest.raises(RoofcalcError, match=r"choose \.png, \.svg, \.pdf"):
        plot_roofline([naive("h100")], tmp_path / "roof.jpg")
    assert not (tmp_path / "roof.jpg").exists()


def test_turned_boxes_meet_only_where_they_do() -> None:
    slope = Box((0, 0), 100, 10, math.pi / 4)
    assert overlap(slope, Box((30, 30), 5, 5))
    assert not overlap(slope, Box((30, -30), 40, 40))  # inside its upright extent, beside the box itself
    assert not inside(slope, Box((0, 0), 70, 70))


def test_a_label_goes_to_the_first_free_place_and_rather_not_over_a_line() -> None:
    def at(x: float) -> Box:
        return Box((x, 0.0), 10, 10)

    page = Page(Box((0, 0), 200, 200), solid=[at(0)], lines=[Box((20, 0), 1, 100)])
    found: Any = page.place([at(5), at(20), at(40)])
    assert found.center == (40, 0)
    assert page.place([at(40)]) is None
    assert page.place([at(98)]) is None
