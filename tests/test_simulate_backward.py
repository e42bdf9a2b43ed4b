"""The backward passes of naive and flash2, run in NumPy: what they move and the gradients they reach.

The gradients are held against two others: the closed form on whole matrices in float64, written here with
nothing of the package, and central differences of the loss sum(dO∘O).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roofcalc.core import Plan, Shape
from roofcalc.hardware import load
from roofcalc.models import variants
from roofcalc.simulate.backward import Adding, run
from roofcalc.simulate.layer import Layer, inputs

LIMITS = load("h100").limits
Arrays = dict[str, NDArray[np.float64]]

SHAPES: dict[str, dict[str, Any]] = {
    "square": {"T": 96, "d": 16, "heads": 2, "batch": 2},
    "causal, ragged tiles": {"T": 75, "d": 8, "heads": 2, "causal": True},
    "window": {"T": 90, "d": 8, "heads": 1, "causal": True, "window": 20},
    "window on both sides": {"T": 90, "d": 8, "heads": 1, "window": 20},
    "few queries": {"T": 40, "S": 110, "d": 8, "heads": 1, "causal": True},
    "grouped heads": {"T": 64, "d": 8, "heads": 6, "kv_heads": 2, "causal": True},
    "dv": {"T": 50, "d": 8, "dv": 24, "heads": 2},
}


def planned(variant: str, sizes: dict[str, Any]) -> Plan:
    options = {"block_q": 16, "block_kv": 32} if variant == "flash2" else {}
    return variants("attention")[variant].plan(Shape.of(direction="bwd", **sizes), LIMITS, options)


def upstream(shape: Shape) -> NDArray[np.float64]:
    return np.random.default_rng(7).standard_normal((shape.batch, shape.heads, shape.T, shape.dv))


def weights(shape: Shape, Q: NDArray[Any], K: NDArray[Any]) -> NDArray[np.float64]:
    """softmax(Q Kᵀ / sqrt(d)) of one head under the mask, whole rows."""
    i, j = np.arange(shape.T)[:, None] + shape.S - shape.T, np.arange(shape.S)[None, :]
    hidden = (j > i) if shape.causal else np.zeros((shape.T, shape.S), bool)
    if shape.window is not None:
        hidden = hidden | (np.abs(i - j) >= shape.window)
    s = np.where(hidden, -np.inf, Q @ K.T / np.sqrt(shape.d))
    e = np.exp(s - s.max(axis=1, keepdims=True))
    weights: NDArray[np.float64] = e / e.sum(axis=1, keepdims=True)
    return weights


def loss(shape: Shape, arrays: Arrays, dO: NDArray[np.float64]) -> float:
    total = 0.0
    for b in range(shape.batch):
        for h in range(shape.heads):
            kv = h // shape.group
            O = weights(shape, arrays["Q"][b, h], arrays["K"][b, kv]) @ arrays["V"][b, kv]  # noqa: E741
            total += float((dO[b, h] * O).sum())
    return total


def closed_form(shape: Shape, arrays: Arrays, dO: NDArray[np.float64]) -> Arrays:
    """dV = Pᵀ dO; with the Jacobian diag(p) - p pᵀ of each row's softmax: dQ = dS K, dK = dSᵀ Q."""
    got = {f"d{name}": np.zeros(arrays[name].shape) for name in "QKV"}
    for b in range(shape.batch):
        for h in range(shape.heads):
            kv = h // shape.group
            Q, K, V = arrays["Q"][b, h], arrays["K"][b, kv], arrays["V"][b, kv]
            P = weights(shape, Q, K)
            jacobian = np.einsum("ij,jk->ijk", P, np.eye(shape.S)) - np.einsum("ij,ik->ijk", P, P)
            dS = np.einsum("ijk,ik->ij", jacobian, dO[b, h] @ V.T) / np.sqrt(shape.d)
            got["dQ"][b, h] += dS @ K
            got["dK"][b, kv] += dS.T @ Q
            got["dV"][b, kv] += P.T @ dO[b, h]
    return got


@pytest.mark.parametrize("variant", ["naive", "flash2"])
@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
def test_counts_equal_the_ledger_and_gradients_the_closed_form(variant: str, sizes: dict[str, Any]) -> None:
    plan = planned(variant, sizes)
    arrays = {name: a.astype(np.float64) for name, a in inputs(plan.shape).items()}
    dO = upstream(plan.shape)
    gradients, moved = run(Layer(plan, LIMITS, np.float64), arrays, dO)
    ledger: dict[tuple[str, str], int] = {}
    for kernel in plan.kernels:
        for line in kernel.accesses:
            if line.tier != "smem":
                key = (line.tensor, line.mode)
                ledger[key] = ledger.get(key, 0) + line.elements
    assert moved == ledger
    for name, right in closed_form(plan.shape, arrays, dO).items():
        assert np.abs(gradients[name] - right).max() < 1e-11, name


@pytest.mark.parametrize("variant", ["naive", "flash2"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_central_differences(variant: str, causal: bool) -> None:
    plan = planned(variant, {"T": 5, "S": 7, "d": 3, "dv": 2, "heads": 2, "kv_heads": 1, "causal": causal})
    arrays = {name: a.astype(np.float64) for name, a in inputs(plan.shape).items()}
    dO = upstream(plan.shape)
    gradients, _ = run(Layer(plan, LIMITS, np.float64), arrays, dO)
    step = 1e-5
    for name in "QKV":
        for index in np.ndindex(*arrays[name].shape):
            up, down = ({**arrays, name: arrays[name].copy()} for _ in range(2))
            up[name][index] += step
            down[name][index] -= step
            slope = (loss(plan.shape, up, dO) - loss(plan.shape, down, dO)) / (2 * step)
            # the error of a central difference is of order step² times the third derivative
            assert gradients[f"d{name}"][index] == pytest.approx(slope, abs=1e-6)


def test_an_atomic_add_counts_as_one_write() -> None:
    memory = Adding({"x": np.ones(4)})
    memory.add("x", (slice(0, 3),), np.full(3, 2.0))
    assert memory.moved == {("x", "read"): 0, ("x", "write"): 3}
    assert memory.read("x", (slice(None),)).tolist() == [3, 3, 3, 1]
    assert memory.moved == {("x", "read"): 4, ("x", "write"): 3}
