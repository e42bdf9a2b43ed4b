"""Predictions in which the host takes part: a model's whole step, launches alone, wall times of small kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from roofcalc.core import Kernel, Plan, RoofcalcError
from roofcalc.hf import Model, load_model
from roofcalc.hf.memory import stored_bits, touched_experts
from roofcalc.models.elementwise import rmsnorm_chain
from roofcalc.models.step import Ask, step
from roofcalc.models.step_weights import Reader
from roofcalc.numeric import Num, is_array

if TYPE_CHECKING:
    from roofcalc.constants import Host
    from roofcalc.hardware import Hardware

WALL = "_wall"
UNFUSED = "_unfused_norm"


def step_plan(plain: Mapping[str, Any], sizes: Mapping[str, Num], hardware: Hardware) -> Plan:
    """The step of a row's model, as plain PyTorch runs it. Raises RoofcalcError for more than one row."""
    batch, keys = sizes["batch"], sizes["S"]
    if is_array(batch) and batch.size > 1:
        raise RoofcalcError("the steps of a model are evaluated one by one")
    model = _model(str(plain["model"]))
    ask = Ask(batch=int(batch.item()), S=int(keys.item()), fusion="none")
    plan = step(model, ask, hardware.limits, Reader(stored_bits, touched_experts))
    if not str(plain["variant"]).endswith(UNFUSED):
        return plan
    kernels = tuple(part for one in plan.kernels for part in _unfused(one, ask.batch, model))
    return replace(plan, kernels=kernels)


@cache
def _model(name: str) -> Model:
    return load_model(name)


def _unfused(kernel: Kernel, rows: int, model: Model) -> tuple[Kernel, ...]:
    """A norm as its eight operations; any other kernel as it is."""
    if kernel.family != "reduction":
        return (kernel,)
    chain = rmsnorm_chain(rows, kernel.sizes["elements"] // rows, model.dtype)
    return tuple(replace(one, launches=kernel.launches, group=kernel.group) for one in chain)


def mode_of(variant: str) -> str:
    """`graph` or `eager`: how the kernels of a step's row were launched."""
    return "graph" if variant.startswith("graph") else "eager"


def issued(kernels: tuple[Kernel, ...], host: Host, library: str | None) -> Num:
    """Seconds that the host needs to issue the kernels one after the other from Python."""
    return sum((kernel.launches * _one(kernel, host, library) for kernel in kernels), 0.0)


def _one(kernel: Kernel, host: Host, library: str | None) -> float:
    if library == "triton":
        return host.triton
    return {"linear": host.linear, "reduction": host.fused}.get(kernel.family or "", host.operation)


def launch_time(plain: Mapping[str, Any], sizes: Mapping[str, Num], host: Host) -> Num:
    """Seconds of a row of op=launch: a tiny operation from Python, or a chain of `n` of them as a CUDA graph.

    Raises RoofcalcError for a kernel that is none of those.
    """
    name, graph = str(plain["kernel"]), plain["variant"] == "graph"
    if name.startswith("chain"):
        if graph and name.endswith("_host"):
            return host.replay + 0 * sizes["n"]
        synced = host.replay if graph and name.endswith("_synced") else 0.0
        return sizes["n"] * (host.node if graph else host.operation) + synced
    each = {"linear": host.linear, "sdpa": host.fused, "triton": host.triton}
    costs = [cost for start, cost in each.items() if name.startswith(start)]
    if not costs and not name.startswith(("add", "mul")):
        raise RoofcalcError(f"op 'launch' has no kernel {name!r}")
    return (costs[0] if costs else host.operation) + 0 * sizes["n"]
