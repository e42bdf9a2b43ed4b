"""Fit the constants of a GPU's `calibration:` block to measured times, one family after the other.

    python benchmarks/fit.py measurements.csv [FAMILY ...]

Prints each family's constants, found by coordinate descent from those in the hardware file, with the errors
on the rows that were fitted and on those that were not (see accuracy.py). The file is not changed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import numpy as np
from accuracy import held_out, text

from roofcalc.constants import Calibration, Constants, constants, families
from roofcalc.core import RoofcalcError
from roofcalc.hardware import Hardware, load
from roofcalc.measured import Array, Rows, read
from roofcalc.predict import Asked
from roofcalc.validation import errors, questions

ROUNDS = 40
CLIP = 0.3
MOST = dict.fromkeys(("hbm", "l2", "read", "write", "warp", "padded", "shared", "backward"), 0.98) | {"overlap": 8.0}
"""Upper bounds: a share of a bandwidth (reads alone were measured at 97 % of HBM), a power that means "the longer"."""


def _kernels(*names: str) -> Callable[[Rows], Array]:
    return lambda r: np.isin(text(r, "kernel"), names) & np.isin(text(r, "op"), ("attention", "decode"))


def _library(op: str, word: str, direction: str = "fwd") -> Callable[[Rows], Array]:
    return lambda r: (r["op"] == op) & (np.char.find(text(r, "library"), word) == 0) & (r["pass"] == direction)


def _fused(word: str, direction: str) -> Callable[[Rows], Array]:
    return lambda r: _library("attention", word, direction)(r) & (np.char.find(text(r, "variant"), "flash") == 0)


def _split(word: str) -> Callable[[Rows], Array]:
    return lambda r: _library("decode", word)(r) & (r["variant"] == "split-kv")


ROWS: dict[str, Callable[[Rows], Array]] = {
    "elementwise": lambda r: (
        ((r["op"] == "elementwise") & (np.char.find(text(r, "variant"), "_wall") < 0))
        | (_kernels("mask", "dropout")(r) & (r["variant"] == "eager") & (r["batch"] == 4))
    ),
    "softmax": lambda r: (
        (r["variant"] == "eager")
        & (_kernels("softmax", "bwd_ds")(r) | ((r["op"] == "attention") & (r["kernel"] == "")))
    ),
    "bmm": _kernels("scores", "pv", "bwd_dv", "bwd_dp", "bwd_dq", "bwd_dk"),
    "linear": lambda r: r["op"] == "linear",
    "forward.torch": _fused("torch", "fwd"),
    "forward.cudnn": _fused("cudnn", "fwd"),
    "backward.torch": _fused("torch", "bwd"),
    "backward.cudnn": _fused("cudnn", "bwd"),
    "decode.torch": _split("torch"),
    "decode.cudnn": _split("cudnn"),
    "decode.triton": _split("triton"),
}
"""The rows that each family is fitted to; a library's decode falls back to its forward kernel."""


def loss(predicted: Array, measured: Array) -> float:
    """Mean of |log(predicted / measured)|, cut at 0.3, and its 85th percentile by half."""
    off = np.abs(np.log(predicted / measured))
    return float(np.minimum(off, CLIP).mean() + 0.5 * np.percentile(off, 85))


def with_constants(hardware: Hardware, path: str, values: dict[str, float]) -> Hardware:
    """The GPU with other constants of one family."""
    calibration = hardware.calibration
    assert calibration is not None
    family, _, library = path.partition(".")
    ours = getattr(calibration, family)
    one = ours[library] if library else ours
    fitted = one.model_copy(update=values)
    changed = {**ours, library: fitted} if library else fitted
    new = calibration.model_copy(update={family: changed})
    return hardware.model_copy(update={"calibration": new, "calibrated": (new, "")})


def fit(
    hardware: Hardware, path: str, asked: list[tuple[Asked, Array]], measured: Array, use: Array
) -> tuple[Hardware, float]:
    """The constants with the least loss: each in turn a little larger or smaller, steps that adapt."""
    units = {c.path.rpartition(".")[2]: c.unit for c in constants(_calibration(hardware)) if _family(c.path) == path}
    family: Constants = dict(families(_calibration(hardware)))[path]
    values = {name: float(getattr(family, name)) for name in units}
    steps = dict.fromkeys(values, 0.1)
    chance = random.Random(0)

    def at(trial: dict[str, float]) -> float:
        predicted = predict(with_constants(hardware, path, trial), asked, len(measured))
        known = use & ~np.isnan(predicted)
        return loss(predicted[known], measured[known])

    best = at(values)
    for _ in range(ROUNDS):
        for name in values:
            for sign in (1, -1):
                trial = {**values, name: values[name] * float(np.exp(sign * steps[name] * chance.uniform(0.2, 1)))}
                trial[name] = min(max(trial[name], 1e-9), MOST.get(name, np.inf))
                found = at(trial)
                if found < best:
                    values, best = trial, found
                    steps[name] = min(steps[name] * 1.6, 0.4)
                    break
            else:
                steps[name] = max(steps[name] * 0.7, 1e-3)
    return with_constants(hardware, path, values), best


def _family(path: str) -> str:
    return path.rpartition(".")[0]


def _calibration(hardware: Hardware) -> Calibration:
    assert hardware.calibration is not None
    return hardware.calibration


def predict(hardware: Hardware, asked: list[tuple[Asked, Array]], count: int) -> Array:
    """Expected seconds of every row, NaN for one without a plan."""
    times = np.full(count, np.nan)
    for one, at in asked:
        try:
            times[at] = one.times(hardware)[1]
        except RoofcalcError:
            continue
    return times


def main(path: str, wanted: list[str]) -> None:
    every = read(path)
    hardware = load(str(every["gpu"][0]))
    for name in wanted or list(ROWS):
        rows = every.where(ROWS[name](every))
        held = held_out(rows)
        asked, measured = questions(rows)[0], rows["time_s"]
        hardware, least = fit(hardware, name, asked, measured, ~held)
        predicted = predict(hardware, asked, len(rows))
        known = ~np.isnan(predicted)
        print(f"{name}: loss {least:.4f}")
        for label, part in (("fitted", known & ~held), ("held out", known & held)):
            if part.any():
                error = errors(predicted[part], measured[part])
                print(f"  {label} {int(part.sum())}: {error.median:.1%} / {error.p90:.1%}, bias {error.bias:.3f}")
        for constant in constants(_calibration(hardware)):
            if _family(constant.path) == name:
                print(f"  {constant.path.rpartition('.')[2]}: {constant.value:.4g} {constant.unit}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
