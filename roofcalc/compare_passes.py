"""What recomputing costs and what it saves: two reports of one shape as one sentence."""

from __future__ import annotations

from roofcalc.core import Report
from roofcalc.numeric import Num
from roofcalc.render.units import seconds, si, significant, size


def matrix_flops(report: Report) -> Num:
    """FLOP of the matrix products on the tensor pipe, over all launches: an attention's FLOPs in print."""
    return sum(
        (row.launches * work.ops for row in report.kernels for work in row.work if work.pipe == "tensor"), 0
    )


def trade(stored: Report, recomputed: Report) -> str:
    """Extra FLOP against saved bytes, after the opening of FlashAttention's Figure 2: "more work, faster".

    `stored` passes its scores through memory, `recomputed` computes them again; both of one shape with plain
    sizes, in a dtype that tensor cores multiply.
    """
    before, after = stored.total, recomputed.total
    work = matrix_flops(recomputed) / matrix_flops(stored)
    than = "as" if _same(work) else "than"
    flops = f"{si(matrix_flops(recomputed), 'FLOP')} against {si(matrix_flops(stored), 'FLOP')}"
    useful = ""
    if not all(_same(_run_over_useful(report)) for report in (stored, recomputed)):
        useful = "useful "
        flops += f"; executed {si(after.executed_flops, 'FLOP')} against {si(before.executed_flops, 'FLOP')}"
    moved = f"{size(after.bytes)} against {size(before.bytes)}"
    time = f"{seconds(after.time)} against {seconds(before.time)}"
    return (
        f"{recomputed.variant} does {_more(work)} {useful}matrix work {than} {stored.variant} ({flops}), "
        f"moves {_times(before.bytes / after.bytes, 'fewer', 'more')} bytes ({moved}) "
        f"and its roofline is {_times(before.time / after.time, 'faster', 'slower')} ({time})"
    )


def _run_over_useful(report: Report) -> Num:
    return report.total.executed_flops / report.total.flops


def _same(ratio: float) -> bool:
    return bool(abs(ratio - 1) < 0.005)


def _more(ratio: float) -> str:
    if _same(ratio):
        return "the same"
    return f"{abs(ratio - 1):.0%}".replace("%", " %") + (" more" if ratio > 1 else " less")


def _times(ratio: float, above: str, below: str) -> str:
    return f"{significant(max(ratio, 1 / ratio), 2)} times {above if ratio >= 1 else below}"
