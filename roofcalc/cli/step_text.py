"""What `roofcalc step` says beside its kernels: groups, the three ways of launching, memory."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roofcalc.core import Report
from roofcalc.launches import MODES, Overlap, Timing, by_group, timing
from roofcalc.render import units
from roofcalc.render.fields import plain
from roofcalc.render.listing import columns
from roofcalc.render.to_table import PIPED_WIDTH

if TYPE_CHECKING:
    from roofcalc.budget import Budget

PREFILL = "activations grow with the prompt: --prefill N --check tells whether a longer one fits"
CONSTANT = "no limit on the context: the cache does not grow"
LABELS = {"graph": "CUDA graph", "eager": "eager", "persistent": "persistent kernel"}


def fields(
    report: Report, gpu: Any, held: Budget, given: Mapping[str, Any], tokens: int, issue: float | None
) -> dict[str, Any]:
    """The details of one report of `tokens` tokens as plain values, for JSON: groups, launches by mode, memory.

    `issue` is the host time that an eager step is expected to need, in seconds; None takes a launch's cost.
    """
    overlap: Overlap = given["overlap"] or "max"
    times = {mode: timing(report, gpu.launch, mode, overlap, issue) for mode in MODES}
    return {
        "gpu": report.gpu,
        "variant": report.variant,
        "launch": given["launch"] or "eager",
        "overlap": overlap,
        "fusion": given["fusion"] or "standard",
        "groups": [
            {name: plain(value) for name, value in asdict(part).items()} for part in by_group(report, gpu.launch)
        ],
        "modes": {mode: _mode(one, tokens) for mode, one in times.items()},
        "memory": _held(held, prefill=given["prefill"] is not None),
    }


def _mode(one: Timing, tokens: int) -> dict[str, Any]:
    return {
        "launches": plain(one.launches),
        "host": plain(one.host),
        "device": plain(one.device),
        "expected_host": plain(one.expected_host),
        "expected_device": plain(one.expected_device),
        "step": plain(one.step),
        "expected": plain(one.expected),
        "tokens_per_second": tokens / one.step,
        "bound": "host" if one.host_bound else "device",
        "kernel_limit": one.limit,
    }


def after(reports: Sequence[Report], details: Sequence[Mapping[str, Any]]) -> str:
    """The text below the table: for each report its groups, its launches and its memory."""
    many = len(reports) > 1
    blocks = []
    for report, detail in zip(reports, details, strict=True):
        where = f" ({report.variant} on {report.hardware})" if many else ""
        blocks += [
            f"\nBy group{where}:\n{_groups(detail)}",
            f"\nLaunches{where}:\n{_modes(detail)}{_sentences(report, detail)}",
            f"\n{_memory(report, detail['memory'])}",
        ]
    return "".join(blocks)


def _groups(detail: Mapping[str, Any]) -> str:
    rows = [
        {
            "group": part["name"],
            "launches": units.count(part["launches"]),
            "FLOP": units.si(part["flops"]),
            "HBM": units.size(part["bytes"]),
            "roofline": units.seconds(part["time"]),
            "expected": units.seconds(part["expected"], 2),
            "host, if eager": units.seconds(part["host"]),
        }
        for part in detail["groups"]
    ]
    return columns(rows, right=[name for name in rows[0] if name != "group"])


def _modes(detail: Mapping[str, Any]) -> str:
    chosen = detail["launch"]
    rows = [
        {
            "launch": f"{LABELS[mode]}{' (chosen)' if mode == chosen else ''}",
            "host": units.seconds(one["host"]),
            "device": units.seconds(one["device"]),
            "step": units.seconds(one["step"]),
            "tokens/s at most": units.si(one["tokens_per_second"]),
            "expected": units.seconds(one["expected"], 2),
            "launches bind below": units.seconds(one["kernel_limit"]),
            "who waits": "the GPU waits for the host" if one["bound"] == "host" else "the host waits for the GPU",
        }
        for mode, one in detail["modes"].items()
    ]
    return columns(rows, right=[name for name in rows[0] if name not in ("launch", "who waits")])


def _sentences(report: Report, detail: Mapping[str, Any]) -> str:
    """When each view of the launches applies, and what the elementwise group costs in the naive one."""
    eager = detail["modes"]["eager"]
    each = eager["kernel_limit"]
    small = next((part for part in detail["groups"] if part["name"] == "elementwise"), None)
    said = (
        "Launches run ahead of the GPU, so an eager step takes the larger of host and device (--overlap max); "
        "they add up (--overlap none) only where the host waits for every kernel."
    )
    if small is not None:
        share = units.percent(small["host"] / report.total.time)
        said += (
            f" Added up, the elementwise group alone is {units.count(small['launches'])} × {units.seconds(each)} = "
            f"{units.seconds(small['host'])}, {share} of the roofline's {units.seconds(report.total.time)}."
        )
    said += (
        " A persistent kernel pays a barrier at every stage, that is at every kernel of this list; one that joins "
        "stages, or loads the next weights meanwhile, pays less. The host's cost is that of a launch from C++; "
        "PyTorch's operators take two to five times that, which --fusion none expects of an eager step."
    )
    return f"{textwrap.fill(said, PIPED_WIDTH, break_long_words=False, break_on_hyphens=False)}\n"


def _held(held: Budget, *, prefill: bool) -> dict[str, Any]:
    """What the step holds. In a prefill the activations grow with the context too, so no longest one is told."""
    context = None if prefill else held.largest_context
    return {**asdict(held), "largest_context": context, "free": held.free, "fits": held.fits, "prefill": prefill}


def _memory(report: Report, held: Mapping[str, Any]) -> str:
    parts = [f"{units.size(held['weights'])} of weights", f"{units.size(held['kv'])} of KV cache"]
    parts += [f"{units.size(held['state'])} of states"] if held["state"] else []
    parts += [f"{units.size(held['intermediates'])} of intermediates"]
    capacity = units.size(held["capacity"])
    verdict = f"fit {capacity}" if held["fits"] else f"do not fit {capacity}: {units.size(-held['free'])} too much"
    batch, context = held["largest_batch"], held["largest_context"]
    limits = [
        f"largest batch at this context {units.count(batch)}" if batch is not None else "",
        PREFILL if held["prefill"] else CONSTANT,
    ]
    if context is not None:
        limits[1] = f"longest context at this batch {units.count(context)} tokens"
    said = f"Memory on {report.hardware}: {', '.join(parts)} {verdict}; {'; '.join(filter(None, limits))}."
    return f"{textwrap.fill(said, PIPED_WIDTH, break_long_words=False, break_on_hyphens=False)}\n"
