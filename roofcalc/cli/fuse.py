"""``roofcalc fuse``: what joining neighbours of a chain saves, one fusion at a time."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from roofcalc.cli import flow
from roofcalc.cli.app import app
from roofcalc.cli.attention import ELEMENTWISE
from roofcalc.cli.options import (
    KEYS,
    MACHINE,
    MASK,
    RESULT,
    SIZES,
    TOKENS,
    Given,
    argument,
    number,
    takes,
)
from roofcalc.core import Plan, Report, RoofcalcError, Shape

if TYPE_CHECKING:
    from roofcalc.transform import Saving

CHAINS = ("rmsnorm-linear", "linear-residual", "silu-mul", "attention")
CHAIN = argument("chain", f"Which chain: {', '.join(CHAINS)}.", required=True)
WIDTH = number("d_model", help="Features of a row, of rmsnorm-linear, linear-residual and silu-mul; default 4096.")
ATTENTION_ONLY = ("S", "d", "dv", "heads", "kv_heads", "layers", "kv_dtype", "window", "causal", "elementwise")


@app.command(rich_help_panel="Model")
@takes(CHAIN, WIDTH, TOKENS, KEYS, *SIZES, MASK, ELEMENTWISE, *MACHINE, *RESULT)
def fuse(given: Given) -> None:
    """What fusing neighbours of a chain saves: bytes, launches, time.

    The vector between two kernels: roofcalc fuse rmsnorm-linear --d-model 4096 --batch 1
    """
    flow.check_outputs(given)
    _refuse_unused(given)
    from roofcalc.estimate import estimate
    from roofcalc.transform import chains, savings

    found: list[Report] = []
    steps: list[dict[str, Any]] = []
    text = []
    for gpu in flow.machines(given):
        plans = chains(_chain(given, gpu))
        reports = [estimate(plan, gpu) for plan in plans]
        saved = savings(reports, gpu.memory.hbm.bandwidth)
        found += reports
        steps += [{"gpu": gpu.key, **one.fields()} for one in saved]
        text.append(_text(gpu.name, saved, gpu.launch.host))
    flow.emit("fuse", given, found, after="".join(text), extra={"fusions": steps})


def _refuse_unused(given: Given) -> None:
    chain = given["chain"]
    if chain not in CHAINS:
        from roofcalc.quantities import nearest

        raise RoofcalcError(f"no chain {chain!r}{nearest(chain, CHAINS)}; choose from {', '.join(CHAINS)}")
    unused = ("d_model",) if chain == "attention" else ATTENTION_ONLY
    for name in unused:
        if given[name] is not None:
            raise RoofcalcError(f"--{name.replace('_', '-')} is not used by fuse {chain}")
    if chain == "attention" and given["T"] is None:
        raise RoofcalcError("fuse attention needs --T, the number of query tokens, such as --T 8192")


def _chain(given: Given, gpu: Any) -> Plan:
    """The kernels of a chain as they are before any fusion."""
    from roofcalc.models import variants

    if given["chain"] == "attention":
        options = {} if given["elementwise"] is None else {"elementwise": given["elementwise"]}
        plan = variants("attention")["eager"].plan(flow.shape_of(given), gpu.limits, options)
        return replace(plan, variant="not fused")
    from roofcalc.design.load import DesignShape
    from roofcalc.models.neighbours import neighbours

    sizes = {"batch": given["batch"] or 1, "T": given["T"] or 1, "d_model": given["d_model"] or 4096}
    rows, dtype = sizes["batch"] * sizes["T"], given["dtype"] or "bf16"
    plan = neighbours(given["chain"], rows=rows, width=sizes["d_model"], dtype=dtype, limits=gpu.limits)
    return replace(plan, shape=cast(Shape, DesignShape(dtype, sizes)))


def _text(gpu: str, saved: Sequence[Saving], host: float) -> str:
    """A line for each fusion: what it moves and takes, what it saves over the one before, whether it pays."""
    from roofcalc.render import units
    from roofcalc.render.listing import columns
    from roofcalc.render.to_table import PIPED_WIDTH

    rows: list[Mapping[str, str]] = [
        {
            "fused": one.name,
            "launches": units.count(one.launches),
            "HBM": units.size(one.bytes),
            "roofline": units.seconds(one.time),
            "written no more": units.size(one.saved_write) if one.before else "",
            "read no more": units.size(one.saved_read) if one.before else "",
            "time saved": units.seconds(one.saved_time) if one.before else "",
            "pays": one.verdict if one.before else "",
        }
        for one in saved
    ]
    table = columns(rows, right=[name for name in rows[0] if name not in ("fused", "pays")])
    said = (
        f"A launch that goes saves up to {units.seconds(host)} of host time beside the bytes. `expected` is PyTorch's "
        "before and a good hand-written kernel's after. Work is kept as it is: "
        "a tiled kernel may repeat what it fuses, and must hold the row that a norm or a softmax needs."
    )
    said = textwrap.fill(said, PIPED_WIDTH, break_long_words=False, break_on_hyphens=False)
    return f"\nFusions on {gpu}, one after the other:\n{table}{said}\n"
