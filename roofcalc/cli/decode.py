"""``roofcalc decode``: new tokens against a cache, the split planner, and what the cache takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roofcalc.cli import flow
from roofcalc.cli.app import AnswerIsNo, app
from roofcalc.cli.options import (
    CACHE,
    MACHINE,
    MASK,
    MODEL,
    RESULT,
    SIZES,
    VARIANT,
    Given,
    count,
    counts,
    number,
    option,
    parser,
    switch,
    takes,
    text,
)
from roofcalc.core import RoofcalcError, Shape

if TYPE_CHECKING:
    from roofcalc.kvcache import Fit, KvCache
    from roofcalc.planner import SplitPlan, SplitRow


def _splits(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return count(text)
    except RoofcalcError as error:
        raise RoofcalcError(f"{error}; or auto, the best number on this GPU") from None


TOKENS = number("T", "--T", "-T", help="New tokens; default 1. More is speculative decoding, causal.")
CACHED = option(
    "S",
    str | None,
    None,
    "--S",
    panel="Shape",
    parser=parser(counts, "counts"),
    metavar="N[,N...]",
    help="Cached keys; several lengths are one sequence each: 1k,8k,32k.",
    show_default=False,
)
SPLITS = option(
    "splits",
    str | None,
    None,
    "--splits",
    panel="Algorithm",
    parser=parser(_splits, "splits"),
    metavar="N|auto",
    help="Splits of the keys: a number, or the best on this GPU. Default: FlashAttention-2's rule on these units.",
    show_default=False,
)
LATENT = (
    number("kv_lora_rank", help="Latent numbers a token, for mla; default 512.", panel="Algorithm"),
    number("rope_dim", help="Rotated numbers a token, for mla; default 64.", panel="Algorithm"),
    switch("expanded", "mla without absorption: K and V of every head.", "Algorithm"),
)
PAGE = number("page_size", help="Tokens of a page, for paged; default 16.", panel="Algorithm")
WEIGHTS = text("weights", "Weights beside the cache, such as 16GB; default those of --model.", "Memory", "SIZE")
CHECK = switch("check", "Exit 1 when the cache does not fit the GPU's memory.", "Memory")
OPTIONS = ("splits", "page_size", "kv_lora_rank", "rope_dim", "expanded")


@app.command(rich_help_panel="Model")
@takes(
    CACHED, TOKENS, *SIZES, MASK, *MODEL, VARIANT, SPLITS, PAGE, *LATENT, WEIGHTS, CHECK, *MACHINE, CACHE, *RESULT
)  # fmt: skip
def decode(given: Given) -> None:
    """New tokens against S cached keys.

    One step of eight sequences: roofcalc decode --S 8192 --batch 8 --heads 32 --kv-heads 8
    """
    flow.check_outputs(given)
    if given["S"] is None:
        raise RoofcalcError(
            "decode needs --S, the number of cached keys that the new token attends to, such as --S 8192"
        )
    given, shape, notes, model = _asked(given)
    gpus = flow.machines(given)
    found = flow.reports("decode", given, shape, gpus, OPTIONS, notes)
    plans = [_split_plan(gpu, given, shape) for gpu in gpus]
    held, fits = _memory(given, shape, gpus, model)
    after = "".join(_plan_text(gpu.name, plan, len(gpus)) for gpu, plan in zip(gpus, plans, strict=True) if plan)
    whole = _whole(held, model)
    extra = {
        "splits": [_plan_fields(gpu.key, plan) for gpu, plan in zip(gpus, plans, strict=True) if plan],
        "kv_cache": {**asdict(held), "fits": {gpu.key: asdict(fit) for gpu, fit in zip(gpus, fits, strict=True)}},
    }
    after += _memory_text(held, shape, gpus, fits, _weights(given, model), whole)
    flow.emit("decode", given, found, after=after, extra=extra)
    if given["check"] and not all(fit.fits for fit in fits):
        raise AnswerIsNo


def _asked(given: Given) -> tuple[Given, Shape, tuple[str, ...], Any]:
    """What was typed with the model's answers filled in, the shape, notes and the model."""
    sizes, notes, model = flow.model_sizes(given)
    if model is not None and model.encoder:
        raise RoofcalcError(f"--model {model.name} is an encoder: it decodes no tokens and keeps no cache")
    given = {**given, **_latent(given, model)}
    if given["variant"] == ["mla"]:
        notes = ()
        for name in ("d", "dv"):
            if given[name] is not None:
                raise RoofcalcError(f"--{name} does not go with mla: its head dims follow the latent's ranks")
        if given["kv_heads"] is not None:
            raise RoofcalcError("--kv-heads does not go with mla: one latent serves all heads, or each has its own")
    notes = (*notes, *_beyond(model, max(given["S"])))
    lengths, tokens = given["S"], given["T"] or 1
    keys = {"S": lengths[0]} if len(lengths) == 1 else {"lengths": lengths}
    causal = given["causal"] if given["causal"] is not None else tokens > 1
    shape = flow.shape_of({**given, "S": None}, sizes, **keys, T=tokens, causal=causal)
    return given, shape, notes, model


def _beyond(model: Any, keys: int) -> tuple[str, ...]:
    """That the cache is longer than the model's context, where it is."""
    if model is None or model.context is None or keys <= model.context:
        return ()
    return (f"--S {keys:,} is beyond the context of {model.name}, {model.context:,} tokens",)


def _latent(given: Given, model: Any) -> Given:
    """What a model with latent attention answers: the variant, and the latent's ranks."""
    if model is None:
        return {}
    from roofcalc.hf import layer_shape

    attention, _ = layer_shape(model, given["layer"])
    if attention["kind"] != "mla" or given["variant"] not in (None, [], ["mla"]):
        return {}
    ranks = {name: attention[name] if given[name] is None else given[name] for name in ("kv_lora_rank", "rope_dim")}
    return {"variant": ["mla"], **ranks}


def _split_plan(gpu: Any, given: Given, shape: Shape) -> SplitPlan | None:
    """The planner's table, where a variant that splits is shown: the first of them."""
    from roofcalc.models import variants
    from roofcalc.planner import split_plan

    names = given["variant"] or ["split-kv"]
    names = list(variants("decode")) if "all" in names else names
    splitting = [name for name in names if "splits" in variants("decode")[name].options and name != "replicated"]
    if not splitting:
        return None
    name = "split-kv" if "split-kv" in splitting else splitting[0]
    known = {key: given[key] for key in OPTIONS if key != "splits" and given.get(key) not in (None, False)}
    options = {key: value for key, value in known.items() if key in variants("decode")[name].options}
    return split_plan(shape, gpu, name, **options)


def _plan_fields(gpu: str, plan: SplitPlan) -> dict[str, Any]:
    chosen = {"best": plan.best.splits, "rules": dict(plan.rules), "over_best": dict(plan.over_best)}
    return {"gpu": gpu, **chosen, "rows": [asdict(row) for row in plan.rows]}


def _plan_text(gpu: str, plan: SplitPlan, of: int) -> str:
    """The table of splits, and how far the libraries' rules are from the best."""
    from roofcalc.render import listing, units

    rows = [
        {
            "splits": str(row.splits),
            "keys": f"{row.chunk:,}",
            "units": f"{row.units:,}",
            "waves": units.significant(row.waves),
            "SMs busy": units.percent(row.sm_use),
            "partials": units.size(row.partial_bytes),
            "roofline": units.seconds(row.time),
            **({} if row.expected is None else {"expected": units.seconds(row.expected)}),
            "chosen by": ", ".join(row.chosen_by) + _empty(row),
        }
        for row in plan.rows
    ]
    default = {"flash2": " (the default)"}
    rules = "; ".join(
        f"{name}'s rule{default.get(name, '')} takes {splits}, {plan.over_best[name] - 1:.0%} above the best".replace(
            "%", " %"
        )
        for name, splits in plan.rules.items()
    )
    where = f" on {gpu}" if of > 1 else ""
    head = _wrapped(f"Splits of the keys ({plan.variant}){where}: best {plan.best.splits}; {rules}.")
    return f"\n{head}\n" + listing.columns(rows, right=[name for name in rows[0] if name != "chosen by"])


def _wrapped(line: str, indent: str = "") -> str:
    """A line of at most 120 columns, its rest indented, units beside their numbers."""
    from textwrap import fill

    joined = line.replace(" %", "\N{NO-BREAK SPACE}%")
    return fill(joined, 120, initial_indent=indent, subsequent_indent=f"{indent}  ").replace("\N{NO-BREAK SPACE}", " ")


def _empty(row: SplitRow) -> str:
    return "" if row.with_keys == row.splits else f" ({row.with_keys} with keys)"


def _weights(given: Given, model: Any) -> int:
    """Bytes of weights that share the memory: given, or the model's, or none."""
    if given["weights"] is not None:
        from roofcalc.quantities import Measure, QuantityError

        try:
            return int(Measure("B", "GB")(given["weights"]))
        except QuantityError as error:
            raise RoofcalcError(f"--weights: {error}") from None
    if model is None:
        return 0
    from roofcalc.hf import weight_bytes

    return int(weight_bytes(model))


def _memory(given: Given, shape: Shape, gpus: Sequence[Any], model: Any) -> tuple[KvCache, list[Fit]]:
    """What the cache takes, and whether it fits beside the weights on each GPU."""
    from roofcalc.kvcache import fit, kv_cache, mla_arrays, model_cache
    from roofcalc.models.mla import expanded_shape

    latent, wide, size = "mla" in (given["variant"] or ()), bool(given["expanded"]), given["page_size"]
    if model is not None:
        held = model_cache(model, shape, page_size=size, expanded=wide)
    elif latent and not wide:
        held = kv_cache(shape, page_size=size, arrays=mla_arrays(*_ranks(given)))
    else:
        held = kv_cache(expanded_shape(shape, _ranks(given)[1]) if latent else shape, page_size=size)
    weights = _weights(given, model)
    return held, [fit(held, gpu.memory.hbm.capacity, weights) for gpu in gpus]


def _ranks(given: Given) -> tuple[int, ...]:
    """The latent's ranks, typed or the published ones."""
    from roofcalc.models.latent import LORA_RANK, ROPE_DIM

    typed = {"kv_lora_rank": LORA_RANK, "rope_dim": ROPE_DIM}
    return tuple(default if given[name] is None else given[name] for name, default in typed.items())


def _whole(held: KvCache, model: Any) -> str:
    """Whose layers the cache is, where a model says: all of them, whichever are shown above."""
    if model is None:
        return ""
    layers = len(model.layers)
    which = f"all {layers} layers" if held.layers == layers else f"{held.layers} of {layers} layers, which cache"
    return f" of the whole of {model.name} ({which})"


def _memory_text(
    held: KvCache, shape: Shape, gpus: Sequence[Any], fits: Sequence[Fit], weights: int, whole: str
) -> str:
    from roofcalc.render.units import size

    full = "" if held.growth == held.per_token else f" ({size(held.growth)} once the windows are full)"
    unlike = shape.lengths is not None and len(set(shape.lengths)) > 1
    longest = "the longest sequence" if unlike else "a sequence"
    state = f" with {size(held.state)} of state" if held.state else ""
    each = f"{size(held.per_token)} a token{full}, {size(held.per_sequence)} {longest}{state}"
    lines = ["", _wrapped(f"KV cache{whole}: {each}, {size(held.batch)} the batch.")]
    for gpu, fit in zip(gpus, fits, strict=True):
        beside = f" beside {size(weights)} of weights" if weights else ""
        verdict = "fits" if fit.fits else f"does not fit ({size(-fit.free)} too much)"
        alike = "sequence" if fit.sequences == 1 else "sequences"
        room = f"{fit.sequences:,} {alike} of {shape.S:,} tokens" if fit.tokens is None else f"{fit.tokens:,} tokens"
        said = f"It {verdict} in {size(gpu.memory.hbm.capacity)} of {gpu.name}{beside}; {room} would."
        lines.append(_wrapped(said, "  "))
    return "\n".join(lines) + "\n"
