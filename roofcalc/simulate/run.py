"""`verify`: run a variant's algorithm twice, count what it moves, hold both against what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from roofcalc.core import Limits, Mode, Plan, RoofcalcError, Shape
from roofcalc.models import Command, VariantError, variants
from roofcalc.models.cache import SCALED, visible
from roofcalc.models.choice import options_for
from roofcalc.numeric import is_array
from roofcalc.simulate import gradients, materialised, split, tiled
from roofcalc.simulate.hbm import HBM, Array
from roofcalc.simulate.layer import Layer, error, inputs, memory
from roofcalc.simulate.verification import TensorCount, Verification

MOST_SCORES = 200_000_000
MOST_NUMBERS = 250_000_000
MOST_TILES = 1_000_000

_RUNS: dict[tuple[Command, str], Callable[[HBM, Layer], None]] = {
    ("attention", "naive"): materialised.chain,
    ("attention", "eager"): materialised.chain,
    ("attention", "chunked"): tiled.chunked,
    ("attention", "two-pass"): tiled.two_pass,
    ("attention", "flash1"): tiled.keys_outer,
    ("attention", "flash2"): tiled.queries_outer,
    ("attention", "flash3"): tiled.queries_outer,
    ("attention", "ideal"): tiled.ideal,
    ("decode", "naive"): materialised.chain,
    ("decode", "flash"): split.per_head,
    ("decode", "flash-gqa"): split.per_group,
    ("decode", "split-kv"): split.split_kv,
}
VARIANTS = tuple(dict.fromkeys(name for _, name in _RUNS))
"""The variants that can be run."""


def verify(
    variant: str,
    shape: Shape,
    limits: Limits,
    options: Mapping[str, Any] | None = None,
    command: Command | None = None,
) -> Verification:
    """Run `variant` in float64 and float32 on tiles of its plan; count elements, compare results.

    The ledger's lines are summed over HBM and L2, since the run has one slow memory: what L2 serves is a
    real read of an SM. `command` chooses between two variants of one name (attention first). Raises
    RoofcalcError for a variant without a run, an option that it does not use, more than one layer,
    arrays of sizes, and sizes that do not fit this machine's memory or patience.
    """
    found = _found(variant, command)
    options_for([variants(found)[variant]], options or {})
    _check_shape(shape, found, variant)
    plan = variants(found)[variant].plan(shape, limits, options)
    _check_size(plan)
    if shape.direction == "bwd":
        moved, error64 = gradients.run(plan, limits, np.float64)
        _, error32 = gradients.run(plan, limits, np.float32)
        tensors = _compare(plan, moved)
        return Verification(variant, shape, tensors, error64, error32, gradients.TOLERANCE, "the slope of the loss")
    arrays = inputs(shape)
    moved, error64 = _run(found, variant, plan, limits, arrays, np.float64)
    again, error32 = _run(found, variant, plan, limits, arrays, np.float32)
    assert moved == again, "the precision changed what moves"
    return Verification(variant, shape, _compare(plan, moved), error64, error32)


def _found(variant: str, command: Command | None) -> Command:
    for name in _RUNS:
        if name[1] == variant and command in (None, name[0]):
            return name[0]
    near = get_close_matches(variant, VARIANTS, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}" if near else f"; choose from {', '.join(VARIANTS)}"
    raise VariantError(f"verify has no run of {variant!r}{hint}")


def _check_shape(shape: Shape, command: Command, variant: str) -> None:
    sizes = (shape.batch, shape.heads, shape.kv_heads, shape.T, shape.S, shape.d, shape.dv)
    if any(is_array(size) for size in sizes):
        raise RoofcalcError("verify runs one shape at a time; give plain numbers")
    if shape.direction == "fwd+bwd":
        raise RoofcalcError("--pass fwd+bwd: verify runs one pass at a time, fwd or bwd")
    if shape.direction == "bwd" and variant not in gradients.BACKWARD:
        raise RoofcalcError(f"--pass bwd: verify runs the backward pass of {' and '.join(gradients.BACKWARD)}")
    if shape.layers != 1:
        raise RoofcalcError(f"--layers {shape.layers}: verify runs one layer")
    if shape.lengths is not None:
        raise RoofcalcError("verify runs sequences of one length; give --S one number")
    if command == "decode" and shape.kv_dtype in SCALED:
        raise RoofcalcError(f"--kv-dtype {shape.kv_dtype}: verify runs no quantised cache; leave it out")


def _check_size(plan: Plan) -> None:
    """Refuse what would not fit memory, or not end soon, before any array exists."""
    shape = plan.shape
    if shape.square > MOST_SCORES:
        raise RoofcalcError(
            f"verify would compute {shape.square:,} scores, at most {MOST_SCORES:,}; "
            f"choose a smaller --T, --S, --heads or --batch"
        )
    held = shape.batch * shape.heads * shape.T * (shape.d + shape.dv)
    held += shape.batch * shape.kv_heads * shape.S * (shape.d + shape.dv)
    written = {a.tensor: a.elements for k in plan.kernels for a in k.accesses if a.mode == "write"}
    held += sum(written.get(name, 0) for name in ("S", "P", "O_partial"))
    if held > MOST_NUMBERS:
        raise RoofcalcError(
            f"verify would hold {held:,} numbers in memory, at most {MOST_NUMBERS:,} (2 GB in float64); "
            f"choose smaller sizes"
        )
    tiles = [(k.tile.block_q, k.tile.block_kv) for k in plan.kernels if k.tile is not None]
    smallest = min((q * kv for q, kv in tiles if q and kv), default=shape.square)
    if shape.square > MOST_TILES * smallest:
        raise RoofcalcError(
            f"verify would run {shape.square // smallest:,} tiles, at most {MOST_TILES:,}; "
            f"choose a larger --block-q or --block-kv"
        )


def _run(
    command: Command, variant: str, plan: Plan, limits: Limits, arrays: dict[str, Array], dtype: DTypeLike
) -> tuple[dict[tuple[str, Mode], int], float]:
    """One run: what it moved, and its error."""
    layer = Layer(plan, limits, dtype)
    inner, placed = (layer, arrays) if command == "attention" else _cut(layer, arrays)
    hbm = memory(inner, placed)
    _RUNS[command, variant](hbm, inner)
    moved = hbm.moved
    return moved, error(layer, arrays, hbm.read("O", ()))


def _cut(layer: Layer, arrays: dict[str, Array]) -> tuple[Layer, dict[str, Array]]:
    """A decode kernel gets the cache from the first key that some query sees."""
    seen = visible(layer.shape)
    last = slice(layer.shape.S - seen.S, layer.shape.S)
    placed = {name: a if name == "Q" else a[:, :, last] for name, a in arrays.items()}
    return replace(layer, plan=replace(layer.plan, shape=seen)), placed


def _compare(plan: Plan, moved: Mapping[tuple[str, Mode], int]) -> tuple[TensorCount, ...]:
    """Every line of the ledger and every access of the run, summed by tensor and direction."""
    ledger: dict[tuple[str, Mode], int] = {}
    for kernel in plan.kernels:
        for access in kernel.accesses:
            if access.tier in ("hbm", "l2"):
                key = access.tensor, access.mode
                ledger[key] = ledger.get(key, 0) + kernel.launches * int(access.elements)
    names = list(dict.fromkeys((*ledger, *moved)))
    return tuple(TensorCount(*name, moved.get(name, 0), ledger.get(name, 0)) for name in names)
