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
    from roofcalc.models import Command, Variant

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
    said = (*notes, *_latent(attention), *_causal(given, model))
    return {**{name: attention[name] for name in LAYER}, "layers": layers}, said, model


def _causal(given: Given, model: Any) -> tuple[str, ...]:
    """A decoder's mask is not part of its sizes: say so where it was not asked for."""
    if model.encoder or given["causal"] is not None or given["S"] is not None or given["T"] in (None, 1):
        return ()
    return (f"{model.name} is a decoder: add --causal for its mask (without it a window looks both ways)",)


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
    command: Command,
    given: Given,
    shape: Shape,
    gpus: Sequence[Any],
    options: Sequence[str],
    notes: Sequence[str] = (),
) -> list[Report]:
    """One report for each of `gpus` and each variant. `options` are those of the command that only some variants use.

    A variant that was not named is left out, with a note, where it cannot run; what was typed for it is not.
    """
    from roofcalc.models.choice import choose, options_for

    typed = {name: given[name] for name in options if given.get(name) not in (None, False)}
    named = bool(given["variant"]) and "all" not in given["variant"]
    found: list[Report] = []
    left_out: dict[str, RoofcalcError] = {}
    for gpu in gpus:
        chosen, said = choose(command, given["variant"] or (), gpu.architecture)
        ignored = options_for(chosen, typed)
        for variant in chosen:
            extra = (*notes, *said.get(variant.name, ()), *ignored.get(variant.name, ()), *_underived(given))
            try:
                found.append(_report(variant, shape, gpu, typed, extra, given.get("cache") or "cold"))
            except RoofcalcError as error:
                if named or variant.options & typed.keys():
                    raise
                left_out[f"{variant.name} on {gpu.key}"] = error
    if not found:
        raise next(iter(left_out.values()))
    return _with_notes(found, [f"{name} is left out: {error}" for name, error in left_out.items()])


def _report(
    variant: Variant, shape: Shape, gpu: Any, options: Mapping[str, Any], notes: Sequence[str], cache: str
) -> Report:
    from dataclasses import replace

    from roofcalc.estimate import estimate

    plan = variant.plan(shape, gpu.limits, _planned(options, shape, gpu, variant.name))
    return estimate(replace(plan, notes=(*plan.notes, *notes)), gpu, cache)


def _with_notes(found: Sequence[Report], notes: Sequence[str]) -> list[Report]:
    """The reports with notes on what is not among them, on each: a note that all share is printed once."""
    from dataclasses import replace

    return [replace(report, notes=(*report.notes, *notes)) for report in found]


def _underived(given: Given) -> tuple[str, ...]:
    """What --set changes and what it leaves: peaks are figures of their own, not made from SMs and clocks."""
    fields = [text.partition("=")[0].strip() for text in given["set"] or ()]
    base = [field for field in fields if field == "sms" or field.startswith("clocks.")]
    if not base:
        return ()
    return (f"--set {', '.join(base)} leaves the peaks (tensor, vector, exp, l2, smem) as they are; set them too",)


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
    wide = width(given)
    color = wide is not None and not os.environ.get("NO_COLOR")
    return {"width": wide, "explain": given["explain"], "color": color}


def width(given: Given) -> int | None:
    """The columns of the terminal that the text goes to; None where it goes elsewhere."""
    if given["output"] or sys.stdout is None or not sys.stdout.isatty():
        return None
    return os.get_terminal_size().columns or 80


def write(given: Given, text: str) -> None:
    """The result to stdout, or to the file of --output."""
    text = text if text.endswith("\n") else f"{text}\n"
    if given.get("output"):
        Path(given["output"]).write_text(text, encoding="utf-8", newline="")
    elif sys.stdout is not None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise SystemExit(0) from None  # who reads has read enough; the parser would make this exit 1


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
