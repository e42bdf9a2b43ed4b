"""`verify --pass bwd`: counted gradients held against the slope of the loss, which knows nothing of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from roofcalc.core import Limits, Mode, Plan
from roofcalc.simulate import backward
from roofcalc.simulate.hbm import Array
from roofcalc.simulate.layer import Layer, inputs

STEP = 1e-4
TOLERANCE = 1e-6
"""The largest relative error of a right gradient: a central difference of this step errs by about 1e-8."""

BACKWARD = ("naive", "flash2")
"""The variants whose backward pass can be run."""


def run(plan: Plan, limits: Limits, dtype: DTypeLike) -> tuple[dict[tuple[str, Mode], int], float]:
    """What the backward pass of `plan` moved, by array and direction, and its error.

    The error is that of the slope of sum(dO∘O) along one random direction of Q, of K and of V, by central
    differences in float64, relative to the slope's size; the largest of the three.
    """
    arrays = {name: array.astype(np.float64) for name, array in inputs(plan.shape).items()}
    arrays["Q"] /= 3  # a softer softmax has smaller third derivatives, so the difference is sharper
    shape = plan.shape
    dO = np.random.default_rng(1).standard_normal((shape.batch, shape.heads, shape.T, shape.dv))
    gradients, moved = backward.run(Layer(plan, limits, dtype), arrays, dO)
    reference = Layer(plan, limits, np.float64)
    return moved, max(_error(reference, arrays, dO, gradients[f"d{name}"], name) for name in "QKV")


def _error(layer: Layer, arrays: Mapping[str, Array], dO: Array, gradient: Array, name: str) -> float:
    """How far <gradient, v> lies from the slope along v, over the size that such a slope has."""
    v = np.random.default_rng(2).standard_normal(arrays[name].shape)
    losses = [
        float((dO * backward.saved(layer, {**arrays, name: arrays[name] + sign * STEP * v})["O"]).sum())
        for sign in (1, -1)
    ]
    slope = (losses[0] - losses[1]) / (2 * STEP)
    size = float(np.linalg.norm(gradient.astype(np.float64)))
    return abs(float((gradient.astype(np.float64) * v).sum()) - slope) / max(size, 1e-300)
