"""What every command does: read the shape, choose variants and GPUs, estimate, hand over to a renderer."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofcalc.cli.options import Given
from roofcalc.core import Report, RoofcalcError, Shape

if TYPE_CHECKING:
    from roofcalc.models import Command

SHAPE = ("T", "S", "d", "dv", "heads", "kv_heads", "batch", "layers", "dtype", "kv_dtype", "window")


def shape_of(given: Given, model: Mapping[str, Any] | None = None, **fixed: Any) -> Shape:
    """The shape that was asked for: the model's sizes, then what was typed, then `fixed`."""
    typed = {name: given[name] for name in SHAPE if given.get(name) is not None}
    if given.get("causal") is not None:
        typed["causal"] = given["causal"]
    if given.get("pass_") is not None:
        typed["direction"] = given["pass_"]
    return Shape.of(**{**(model or {}), **typed, **fixed})


LAYER = ("heads", "kv_heads", "d", "dv", "window")


def model_sizes(given: Given) -> tuple[dict[str, Any], tuple[str, ...], Any]:
    """The sizes that --model gives a shape, the notes on how they were chosen, and the model (None without).

    The layers are those that have this attention; with --layer it is that one alone.
    """
    if given["model"] is None:
        if given["layer"] is not None:
            raise RoofcalcError("--layer is a layer of --model, which is missing")
        return {}, (), None
    from roofcalc.hf import layer_shape, load_model

    model = load_model(given["model"])
    attention, notes = layer_shape(model, given["layer"])
    alike = sum(layer_shape(model, i)[0] == attention for i, layer in enumerate(model.layers) if layer.attention)
    layers = 1 if given["layer"] is not None else alike
    return {**{name: attention[name] for name in LAYER}, "layers": layers}, (*notes, *_latent(attention)), model


def _latent(attention: Mapping[str, Any]) -> tuple[str, ...]:
    if attention["kind"] != "mla":
        return ()
    rank, rope = attention["kv_lora_rank"], attention["rope_dim"]
    return (f"latent attention, here with K and V of every head; its cache holds {rank} + {rope} numbers a token",)


def machines(given: Given) -> list[Any]:
    """The GPUs that were asked for, with every --set applied to each."""
    from roofcalc.hardware import load

    names = given["gpu"] or ["h100"]
    return [load(name, given["set"] or ()) for name in dict.fromkeys(names)]


def reports(
    command: Command, given: Given, shape: Shape, options: Sequence[str], notes: Sequence[str] = ()
) -> list[Report]:
    """One report for each GPU and variant. `options` are those of the command that only some variants use."""
    from dataclasses import replace

    from roofcalc.estimate import estimate
    from roofcalc.models.choice import choose, options_for

    typed = {name: given[name] for name in options if given.get(name) not in (None, False)}
    found = []
    for gpu in machines(given):
        chosen, said = choose(command, given["variant"] or (), gpu.architecture)
        ignored = options_for(chosen, typed)
        for variant in chosen:
            plan = variant.plan(shape, gpu.limits, _planned(typed, shape, gpu, variant.name))
            extra = (*notes, *said.get(variant.name, ()), *ignored.get(variant.name, ()))
            plan = replace(plan, notes=(*plan.notes, *extra))
            found.append(estimate(plan, gpu, given.get("cache") or "cold"))
    return found


def _planned(options: Mapping[str, Any], shape: Shape, gpu: Any, variant: str) -> Mapping[str, Any]:
    """The options with `--splits auto` answered for this GPU."""
    if options.get("splits") != "auto":
        return options
    from roofcalc.planner import resolved

    return resolved(options, shape, gpu, variant)


def emit(
    command: str, given: Given, found: Sequence[Report], after: str = "", extra: Mapping[str, Any] | None = None
) -> None:
    """Print the reports in the format that was asked for, and draw them.

    What a command has beside its reports is `after` a table, and `extra` keys of the JSON.
    """
    from roofcalc.render import FORMATS
    from roofcalc.render.to_json import to_json

    form = given["format"] or "table"
    if form == "json":
        write(given, to_json(found, command=command, extra=extra))
    else:
        write(given, FORMATS[form](found, command=command, **layout(given)) + (after if form == "table" else ""))
    if given["plot"]:
        from roofcalc.render.plot import plot_roofline

        plot_roofline(found, given["plot"])


def layout(given: Given) -> dict[str, Any]:
    """What a renderer may know of where its text goes."""
    to_terminal = not given["output"] and sys.stdout.isatty()
    width = os.get_terminal_size().columns if to_terminal else None
    color = to_terminal and not os.environ.get("NO_COLOR")
    return {"width": width, "explain": given["explain"], "color": color}


def write(given: Given, text: str) -> None:
    """The result to stdout, or to the file of --output."""
    text = text if text.endswith("\n") else f"{text}\n"
    if given.get("output"):
        Path(given["output"]).write_text(text, encoding="utf-8", newline="")
    else:
        sys.stdout.write(text)


def check_outputs(given: Given) -> None:
    """Refuse, before any work, a plot ending that is not known and a path that cannot be written."""
    if given.get("plot"):
        from roofcalc.render import plot_format

        plot_format(given["plot"])
    for name in ("plot", "output"):
        path = given.get(name)
        if path:
            _check_writable(f"--{name} {path}", Path(path))


def _check_writable(label: str, path: Path) -> None:
    folder = path.parent
    if path.is_dir():
        raise RoofcalcError(f"{label}: that is a folder; name a file")
    if not folder.is_dir():
        raise RoofcalcError(f"{label}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise RoofcalcError(f"{label}: no permission to write there")
