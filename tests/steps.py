"""Steps of preset models for the tests, and what their ledgers hold."""

from __future__ import annotations

from typing import Any

from roofcalc.core import Plan, Report
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.hf import Model, load_model
from roofcalc.hf.memory import stored_bits, touched_experts
from roofcalc.models.step import Ask, is_weight, step
from roofcalc.models.step_weights import Reader

READER = Reader(stored_bits, touched_experts)


def plan_of(model: str | Model, gpu: str = "h100", **ask: Any) -> Plan:
    """The plan of a step; the keyword arguments are those of Ask."""
    found = load_model(model) if isinstance(model, str) else model
    return step(found, Ask(**ask), load(gpu).limits, READER)


def report_of(model: str | Model, gpu: str = "h100", **ask: Any) -> Report:
    return estimate(plan_of(model, gpu, **ask), load(gpu))


def moved(plan: Plan, *tensors: str, mode: str = "read") -> Any:
    """HBM bytes of the tensors over all launches."""
    lines = [(k.launches, a) for k in plan.kernels for a in k.accesses if a.tier == "hbm" and a.mode == mode]
    return sum(n * a.bytes for n, a in lines if a.tensor in tensors)


def weights_read(plan: Plan) -> Any:
    """Bytes of stored weights that a step reads, rows of embedding tables left out."""
    return sum(
        k.launches * a.bytes
        for k in plan.kernels
        for a in k.accesses
        if is_weight(a.tensor) and not a.tensor.startswith("E")
    )


def launches(plan: Plan, group: str | None = None) -> Any:
    return sum(k.launches for k in plan.kernels if group is None or k.group == group)
