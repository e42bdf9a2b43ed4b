"""``roofcalc gpus`` and ``roofcalc variants``: what is there, and where each figure comes from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any

from roofcalc.cli import flow
from roofcalc.cli.app import app
from roofcalc.cli.options import FORMAT, MACHINE, OUTPUT, Given, argument, takes
from roofcalc.core import RoofcalcError

NAME = argument("name", "Show this one in full.", required=False)


@app.command(rich_help_panel="Look up")
@takes(NAME, FORMAT, MACHINE[1], OUTPUT)
def gpus(given: Given) -> None:
    """The GPUs, or every figure of one with its source."""
    flow.check_outputs(given)
    from roofcalc.hardware import load, names

    if given["name"] is None:
        found = [load(name, given["set"] or ()) for name in names()]
        print_rows(given, "gpus", [_gpu(gpu) for gpu in found], _GPU_TEXT)
    else:
        gpu = load(given["name"], given["set"] or ())
        flow.write(given, _figures(gpu, given["format"] or "table"))


def _gpu(gpu: Any) -> dict[str, Any]:
    memory = gpu.memory
    bf16 = gpu.tensor.get("bf16")
    return {
        "name": gpu.key,
        "gpu": gpu.name,
        "architecture": gpu.architecture,
        "sms": gpu.sms,
        "bf16": bf16,
        "fp8": gpu.tensor.get("fp8"),
        "hbm": memory.hbm.bandwidth,
        "capacity": memory.hbm.capacity,
        "ridge": bf16 / memory.hbm.bandwidth if bf16 else None,
    }


def _si(unit: str) -> Callable[[Any], str]:
    def show(value: Any) -> str:
        from roofcalc.render.units import si

        return si(value, unit, digits=4, trim=True)

    return show


_GPU_TEXT: Mapping[str, Callable[[Any], str]] = {
    "bf16": _si("FLOP/s"),
    "fp8": _si("FLOP/s"),
    "hbm": _si("B/s"),
    "capacity": _si("B"),
    "ridge": lambda value: "–" if value is None else f"{value:.0f}",
}


def print_rows(
    given: Given, key: str, rows: Sequence[dict[str, Any]], text: Mapping[str, Callable[[Any], str]]
) -> None:
    """Rows of plain values in the format that was asked for; `text` prints a column for people."""
    from roofcalc.render import listing

    shown = [{name: text.get(name, str)(value) for name, value in row.items()} for row in rows]
    right = [name for name, value in rows[0].items() if not isinstance(value, str)]
    match given["format"] or "table":
        case "json":
            out = listing.to_json(**{key: rows})
        case "csv":
            out = listing.to_csv(rows)
        case "markdown":
            out = listing.to_markdown(shown)
        case _:
            out = listing.columns(shown, right=right, width=flow.width(given))
    flow.write(given, out)


def _figures(gpu: Any, form: str) -> str:
    """Every number of one GPU with its unit and its source, and its on-chip memory against HBM."""
    from roofcalc.hardware import figures
    from roofcalc.render import listing

    found = figures(gpu)
    rows = [figure._asdict() for figure in found]
    if form == "json":
        about = {
            "name": gpu.key,
            "gpu": gpu.name,
            "architecture": gpu.architecture,
            "aliases": list(gpu.aliases),
        }
        return listing.to_json(gpu={**about, "sram": gpu.sram, "figures": rows})
    if form == "csv":
        return listing.to_csv(rows)
    shown = [
        {
            "figure": figure.path,
            "value": _value(figure, form),
            "source": figure.source,
        }
        for figure in found
    ]
    if form == "markdown":
        return listing.to_markdown(shown)
    head = f"{gpu.name} · {gpu.architecture} · roofcalc name {gpu.key}"
    if gpu.aliases:
        head += f" (also {', '.join(gpu.aliases)})"
    return f"{head}\n\n{listing.columns(shown, right=['value'])}\n{_against_hbm(gpu)}"


def _value(figure: Any, form: str) -> str:
    """A figure with its unit; in the table the sizes of on-chip memory are binary, as programmers give them."""
    from roofcalc.render.units import binary, si

    if form == "table" and figure.unit == "B" and figure.path.startswith(("memory.smem.", "memory.l2.")):
        return binary(figure.value)
    return si(figure.value, figure.unit, digits=4, trim=True) if figure.unit else f"{figure.value:,}"


def _against_hbm(gpu: Any) -> str:
    """One paragraph: how small, how fast and how near the on-chip memory is."""
    from roofcalc.render.units import si

    hbm, smem = gpu.memory.hbm, gpu.memory.smem
    lines = [
        f"bandwidth {si(smem.bandwidth, 'B/s')} of shared memory, {smem.bandwidth / hbm.bandwidth:.1f} times HBM",
        f"latency {si(smem.latency, 's')} against {si(hbm.latency, 's')}, {hbm.latency / smem.latency:.0f} times less",
    ]
    if gpu.sram is not None:
        per_sm = smem.sram_per_sm // 1024
        lines.insert(
            0,
            f"size {gpu.sms} x {per_sm} KiB = {gpu.sram // 1024:,} KiB ({si(gpu.sram, 'B')}) of shared memory "
            f"and L1, {hbm.capacity / gpu.sram:,.0f} times smaller than HBM",
        )
    return "On-chip SRAM against HBM\n" + "".join(f"  {line}\n" for line in lines)


@app.command(rich_help_panel="Look up")
@takes(NAME, FORMAT, OUTPUT)
def variants(given: Given) -> None:
    """The algorithms, or one of them: what it counts, its source, its options."""
    flow.check_outputs(given)
    from roofcalc.models import Command, variants
    from roofcalc.quantities import nearest

    commands: tuple[Command, ...] = ("attention", "decode")
    found = [variant for command in commands for variant in variants(command).values()]
    if given["name"] is None:
        rows = [_variant(variant) for variant in found]
        short = ("command", "name", "passes", "summary")
        if given["format"] in (None, "table"):
            rows = [{name: row[name] for name in short} for row in rows]
        print_rows(given, "variants", rows, {})
        return
    chosen = [variant for variant in found if variant.name == given["name"]]
    if not chosen:
        names = [variant.name for variant in found]
        raise RoofcalcError(f"unknown variant {given['name']!r}{nearest(given['name'], dict.fromkeys(names))}")
    if given["format"] in (None, "table"):
        flow.write(given, "\n".join(_page(variant) for variant in chosen))
    else:
        rows = [{**_variant(variant), "text": _text(variant)} for variant in chosen]
        print_rows(given, "variants", rows, {})


def _variant(variant: Any) -> dict[str, str]:
    return {
        "command": variant.command,
        "name": variant.name,
        "passes": "fwd, bwd" if variant.backward else "fwd",
        "options": " ".join(sorted(f"--{option.replace('_', '-')}" for option in variant.options)),
        "source": variant.source,
        "summary": variant.summary,
    }


_RAISES = re.compile(r"\s*\bRaises \w+[^.]*\.(?=\s|$)")


def _text(variant: Any) -> str:
    """What a variant's docstring says to a reader: all but what it raises."""
    paragraphs = (inspect.getdoc(variant.build) or "").split("\n\n")
    kept = [(text, _RAISES.sub("", text).strip()) for text in paragraphs]
    return "\n\n".join(text if text == told else fill(told, 110) for text, told in kept if told)


def _page(variant: Any) -> str:
    """All that is known of a variant, as text."""
    about = _variant(variant)
    lines = [f"{about['command']} --variant {about['name']}", "", _text(variant), ""]
    lines += [
        f"passes:  {about['passes']}",
        f"options: {about['options'] or 'none'}",
        f"source:  {about['source']}",
    ]
    return "\n".join(lines) + "\n"
