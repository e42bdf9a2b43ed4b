"""How many splits a decode kernel should take on a GPU, and how far the libraries' rules are from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofcalc.core import Kernel, Plan, Report, RoofcalcError, Shape
from roofcalc.estimate import estimate
from roofcalc.models import Variant, variants
from roofcalc.models.cache import visible
from roofcalc.models.splitting import flash3_choice
from roofcalc.splits import MOST

if TYPE_CHECKING:
    from roofcalc.hardware import Hardware

AUTO = "auto"
ATTENTION = ("split", "attention")
"""What variants call the kernel whose keys are split."""


@dataclass(frozen=True)
class SplitRow:
    """One number of splits: keys of a split, units, waves, SMs in use, bytes between the kernels, seconds.

    `with_keys` of the splits have a key: fewer than `splits` where whole blocks leave the last ones empty.
    `time` is the roofline of both kernels, `expected` the calibrated time where the GPU has one; `chosen_by`
    names who takes this number: best, flash2, flash3.
    """

    splits: int
    with_keys: int
    chunk: int
    units: int
    waves: float
    sm_use: float
    partial_bytes: int
    time: float
    expected: float | None
    chosen_by: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """What the planner compares: the expected time, the roofline where there is none."""
        return self.time if self.expected is None else self.expected


@dataclass(frozen=True)
class SplitPlan:
    """The table of a variant, its best row, what each library's rule takes and how much longer that is.

    flash2 is the variant's default (FlashAttention-2's rule on its own units), flash3 that library's own choice.
    """

    variant: str
    best: SplitRow
    rows: tuple[SplitRow, ...]
    rules: Mapping[str, int]
    over_best: Mapping[str, float]


def best_splits(shape: Shape, hardware: Hardware, name: str = "split-kv", **options: Any) -> int:
    """The number of splits whose kernels take the least time together, the least such number.

    Raises RoofcalcError for a variant without splits.
    """
    return _least(_distinct(_evaluated(shape, hardware, name, options, _candidates(shape)))).splits


def resolved(options: Mapping[str, Any], shape: Shape, hardware: Hardware, name: str) -> dict[str, Any]:
    """The options of a variant with `splits="auto"` replaced by the best number on this GPU."""
    plain = {key: value for key, value in options.items() if key != "splits"}
    if options.get("splits") != AUTO or "splits" not in variants("decode")[name].options:
        return dict(options)
    known = {key: value for key, value in plain.items() if key in _variant(name).options}
    return {**plain, "splits": best_splits(shape, hardware, name, **known)}


def split_plan(shape: Shape, hardware: Hardware, name: str = "split-kv", **options: Any) -> SplitPlan:
    """The table of a decode shape: powers of two, the best number, what FlashAttention-2 and -3 choose.

    Their choices are timed as splits of this variant's kernel. `options` are the variant's (page_size,
    kv_lora_rank, ...). Raises RoofcalcError for a variant without splits.
    """
    candidates = _candidates(shape)
    top = candidates[-1]
    limits = hardware.limits
    default = _variant(name).plan(shape, limits, options)
    rules = {"flash2": _longest(default).sizes["splits"], "flash3": flash3_choice(_attended(default), limits)}
    rules = {rule: min(int(number), _keys(shape)) for rule, number in rules.items()}
    found = _evaluated(shape, hardware, name, options, sorted({*candidates, *rules.values()}))
    distinct = _distinct(found)
    best = _least(distinct)
    powers = {2**power for power in range(top.bit_length())} & {row.splits for row in distinct}
    shown = {best.splits, *rules.values(), *powers}
    labelled = tuple(_labelled(row, best.splits, rules) for row in found if row.splits in shown)
    by_splits = {row.splits: row for row in found}
    over = {rule: by_splits[number].seconds / best.seconds for rule, number in rules.items()}
    return SplitPlan(name, next(row for row in labelled if row.splits == best.splits), labelled, rules, over)


def _variant(name: str) -> Variant:
    known = variants("decode")
    if name not in known or "splits" not in known[name].options:
        with_splits = ", ".join(key for key, variant in known.items() if "splits" in variant.options)
        raise RoofcalcError(f"{name} has no splits; these have: {with_splits}")
    return known[name]


def _keys(shape: Shape) -> int:
    """Keys that the longest sequence's queries see."""
    return int(visible(shape).S)


def _attended(plan: Plan) -> Shape:
    """The shape that the attention kernel sees: of `mla` one KV head as wide as the latent."""
    seen: Shape = _longest(plan).sizes["shape"]
    return replace(seen, batch=plan.shape.batch, lengths=plan.shape.lengths)


def _longest(plan: Plan) -> Kernel:
    """The attention kernel, of unlike sequences that of the longest alone."""
    kernel = next(kernel for kernel in plan.kernels if kernel.name in ATTENTION)
    alone: tuple[Kernel, ...] = kernel.sizes.get("alone", (kernel,))
    return max(alone, key=lambda one: int(one.sizes["shape"].S))


def _candidates(shape: Shape) -> list[int]:
    """Every number of splits that the libraries' kernels are built for, one key a split at most."""
    return list(range(1, min(MOST, _keys(shape)) + 1))


def _evaluated(
    shape: Shape, hardware: Hardware, name: str, options: Mapping[str, Any], numbers: Iterable[int]
) -> list[SplitRow]:
    variant = _variant(name)
    found = []
    for splits in numbers:
        plan = variant.plan(shape, hardware.limits, {**options, "splits": splits})
        sizes = _longest(plan).sizes
        found.append(_row(splits, int(sizes["splits"]), int(sizes["chunk"]), estimate(plan, hardware)))
    return found


def _distinct(rows: Iterable[SplitRow]) -> list[SplitRow]:
    """The rows without those whose last splits are empty: a smaller number has the same chunks."""
    return [row for row in rows if row.with_keys == row.splits]


def _row(splits: int, with_keys: int, chunk: int, report: Report) -> SplitRow:
    attention = next(row for row in report.kernels if row.name in ATTENTION)
    partial = [line for line in attention.ledger if line.tensor in ("O_partial", "L_partial")]
    expected = report.total.expected
    return SplitRow(
        splits=splits,
        with_keys=with_keys,
        chunk=chunk,
        units=int(attention.units or 0),
        waves=float(attention.waves or 0),
        sm_use=float(attention.sm_use or 0),
        partial_bytes=sum(int(line.bytes) for line in partial),
        time=float(report.total.time),
        expected=None if expected is None else float(expected),
    )


def _least(rows: Iterable[SplitRow]) -> SplitRow:
    """The fastest row; of equals, to a millionth, the one with fewer splits."""
    found = list(rows)
    fastest = min(row.seconds for row in found)
    return next(row for row in found if row.seconds <= fastest * (1 + 1e-6))


def _labelled(row: SplitRow, best: int, rules: Mapping[str, int]) -> SplitRow:
    names = [
        *(["best"] if row.splits == best else []),
        *(rule for rule, n in rules.items() if n == row.splits),
    ]
    return replace(row, chosen_by=tuple(names))
