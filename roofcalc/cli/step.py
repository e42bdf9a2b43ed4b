"""``roofcalc step``: a whole decode step of a model, or its prefill, and how its launches bind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofcalc.cli import flow
from roofcalc.cli.app import AnswerIsNo, app
from roofcalc.cli.options import (
    MACHINE,
    MODEL,
    RESULT,
    VARIANT,
    Given,
    number,
    switch,
    takes,
    word,
)
from roofcalc.core import DTYPES, KV_DTYPES, Report, RoofcalcError

if TYPE_CHECKING:
    from roofcalc.models.step import Ask

LAUNCH = word("launch", ("eager", "graph", "persistent"), "How kernels are launched; default eager.", "Launches")
OVERLAP = word(
    "overlap", ("max", "none"), "Host and device side by side, or one after the other; default max.", "Launches"
)
FUSION = word(
    "fusion", ("none", "standard", "all"), "Which elementwise steps share a kernel; default standard.", "Algorithm"
)
PREFILL = number("prefill", help="Run the model over N tokens instead of one decode step.", panel="Shape")
SPLITS = number("splits", help="Splits of the keys; default FlashAttention-2's rule.", panel="Algorithm")
PAGE = number("page_size", help="Tokens of a page, for paged; default 16.", panel="Algorithm")
CHECK = switch("check", "Exit 1 when weights, cache and intermediates do not fit the GPU's memory.", "Memory")
OPTIONS = ("splits", "page_size")
CACHED = number("S", "--S", help="Cached keys of a sequence, the new token's among them.")
TYPES = (
    word("dtype", DTYPES, "Type of activations and of unquantised weights; default the model's.", "Shape"),
    word("kv_dtype", KV_DTYPES, "Type of the KV cache; default dtype.", "Shape"),
)
BATCH = number("batch", help="Sequences; default 1.")
WARM = word("cache", ("cold", "warm"), "warm: activations that fit L2 stay there. Default cold.", "Machine")


@app.command(rich_help_panel="Model")
@takes(
    MODEL[0], CACHED, BATCH, *TYPES, PREFILL, VARIANT, FUSION, SPLITS, PAGE,
    LAUNCH, OVERLAP, CHECK, *MACHINE, WARM, *RESULT,
)  # fmt: skip
def step(given: Given) -> None:
    """A whole decode step of a model: every kernel, what launching them costs, and what fits.

    One token of one sequence: roofcalc step --model llama-3-8b --batch 1 --S 8192
    """
    flow.check_outputs(given)
    if given["model"] is None:
        raise RoofcalcError("step needs --model, a preset or a config.json, such as --model llama-3-8b")
    if given["S"] is None and given["prefill"] is None:
        raise RoofcalcError("step needs --S, the number of cached keys, such as --S 8192 (or --prefill N)")
    from roofcalc.cli.step_text import after, fields
    from roofcalc.hf import load_model

    model = load_model(given["model"])
    model = replace(model, dtype=given["dtype"] or model.dtype)
    found = [one for gpu in flow.machines(given) for one in _reports(given, model, gpu)]
    reports = [report for report, _, _ in found]
    details = [
        fields(one, gpu, _budget(given, model, one, gpu), given, _tokens(given), issue) for one, gpu, issue in found
    ]
    flow.emit("step", given, reports, after=after(reports, details), extra={"steps": details})
    if given["check"] and not all(detail["memory"]["fits"] for detail in details):
        raise AnswerIsNo


def _reports(given: Given, model: Any, gpu: Any) -> list[tuple[Report, Any, float | None]]:
    """One report for each variant on a GPU with the figures of its launches, and the expected host time.

    What `--fusion none` lists is eager PyTorch's kernels, so its expected host time is PyTorch's.
    """
    from roofcalc.estimate import estimate
    from roofcalc.hf.memory import stored_bits, touched_experts
    from roofcalc.launches import timing
    from roofcalc.models.choice import choose, options_for
    from roofcalc.models.step import step as build
    from roofcalc.models.step_weights import Reader
    from roofcalc.predict_host import issued
    from roofcalc.transform import fuse_step, warm_step

    command: Any = "attention" if given["prefill"] else "decode"
    names = given["variant"] or (() if given["prefill"] else ("split-kv",))
    chosen, said = choose(command, names, gpu.architecture)
    chosen = chosen if given["variant"] else chosen[-1:]
    typed = {name: given[name] for name in OPTIONS if given[name] is not None}
    ignored = options_for(chosen, typed)
    # Of all variants those that the layers can run: latent attention takes mla by itself.
    chosen = [one for one in chosen if one.name != "mla"] if "all" in names else chosen
    found: dict[str, tuple[Report, Any, float | None]] = {}
    for variant in chosen:
        own = {name: value for name, value in typed.items() if name in variant.options}
        plan = build(
            model, _ask(given, model, gpu, variant.name, own), gpu.limits, Reader(stored_bits, touched_experts)
        )
        plan = fuse_step(plan) if given["fusion"] == "all" else plan
        plan = warm_step(plan, gpu.limits.l2) if given["cache"] == "warm" else plan
        own_notes = (*said.get(variant.name, ()), *ignored.get(variant.name, ()), *_unused(given, variant.name, model))
        notes = (*_notes(given, model, gpu), *plan.notes, *own_notes)
        report = estimate(replace(plan, notes=notes), gpu)
        one = timing(report, gpu.launch, given["launch"] or "eager", given["overlap"] or "max")
        totals = {"host": one.host, "device": one.device, "tokens_per_second": _tokens(given) / one.step}
        calibration, _ = gpu.calibrated
        from_python = given["fusion"] == "none" and calibration is not None
        issue = float(issued(plan.kernels, calibration.host, "torch")) if from_python else None
        found.setdefault(plan.variant, (replace(report, totals=totals), gpu, issue))
    return list(found.values())


def _unused(given: Given, variant: str, model: Any) -> tuple[str, ...]:
    """What was asked of attention that the model's layers have no use for."""
    if not given["variant"]:
        return ()
    if not model.attentions:
        return (f"{model.name} has no attention: --variant {variant} is not used",)
    if all(attention.kind == "mla" for attention in model.attentions) and variant != "mla" and not given["prefill"]:
        return (f"the layers of {model.name} have latent attention and take mla: --variant {variant} is not used",)
    return ()


def _tokens(given: Given) -> int:
    """Tokens that a step handles: one a sequence, or all of a prefill."""
    return _batch(given) * int(given["prefill"] or 1)


def _batch(given: Given) -> int:
    return 1 if given["batch"] is None else int(given["batch"])


def _keys(given: Given) -> int:
    """Tokens in the cache once the step is done."""
    return int(given["prefill"] if given["S"] is None else given["S"])


def _ask(given: Given, model: Any, gpu: Any, variant: str, options: Mapping[str, Any]) -> Ask:
    from roofcalc.models.step import Ask

    return Ask(
        batch=_batch(given),
        S=_keys(given),
        prefill=given["prefill"],
        variant=variant,
        fusion=given["fusion"] or "standard",
        dtype=given["dtype"],
        kv_dtype=given["kv_dtype"],
        narrow="fp8" if _in_fp8(model) and "fp8" in gpu.tensor else None,
        options=options,
    )


def _in_fp8(model: Any) -> bool:
    return model.quantisation is not None and "fp8" in model.quantisation.method


def _notes(given: Given, model: Any, gpu: Any) -> Sequence[str]:
    said = [f"{model.name}, --fusion {given['fusion'] or 'standard'}"]
    keys = _keys(given)
    if model.context and keys > model.context:
        said.append(f"{keys} tokens are more than the {model.context} that {model.name} was made for")
    if model.quantisation is not None and not (_in_fp8(model) and "fp8" in gpu.tensor):
        dtype = given["dtype"] or model.dtype
        said.append(f"{model.quantisation.method} weights are unpacked on chip; the products run in {dtype}")
    return said


def _budget(given: Given, model: Any, report: Report, gpu: Any) -> Any:
    from roofcalc.budget import budget

    return budget(
        model,
        batch=_batch(given),
        S=_keys(given),
        kv_dtype=given["kv_dtype"] or given["dtype"] or model.dtype,
        intermediates=int(report.memory),
        capacity=int(gpu.memory.hbm.capacity),
    )
