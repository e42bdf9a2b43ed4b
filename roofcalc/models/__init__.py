"""The registry of variants: the one place where a name, its paper and its function meet.

A model is a function ``(shape, limits, **options) -> Plan``. Its keyword-only parameters are the
options that it understands; the command line, the list of variants and the property tests all read
the registry.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

from roofcalc.core import Limits, Plan, RoofcalcError, Shape

Model = Callable[..., Plan]
Command = Literal["attention", "decode"]
FAMILIES: Mapping[Command, tuple[str, ...]] = {
    "attention": ("standard", "flash", "backward_standard", "backward_flash"),
    "decode": ("decode", "split_kv", "paged", "mla"),
}
"""The modules that register a command's variants, in the order in which they are listed."""


class VariantError(RoofcalcError):
    """A name that no variant has, or an option that none of the chosen ones uses."""


@dataclass(frozen=True)
class Variant:
    """A named algorithm: where it is published and the function that counts it."""

    name: str
    command: Command
    source: str
    build: Model

    @property
    def backward(self) -> Model | None:
        """The model of the backward pass, where there is one."""
        return _BACKWARD.get((self.command, self.name))

    @property
    def options(self) -> frozenset[str]:
        """The keyword-only parameters of the model: what it understands beside the shape."""
        models = (self.build, self.backward or self.build)
        parameters = [p for model in models for p in inspect.signature(model).parameters.values()]
        return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    @property
    def summary(self) -> str:
        """The first line of the model's docstring."""
        return (inspect.getdoc(self.build) or "").split("\n")[0]

    def plan(self, shape: Shape, limits: Limits, options: Mapping[str, Any] | None = None) -> Plan:
        """The plan of `shape`, every layer of it, with those `options` that this variant understands."""
        passes = [self._pass(name, shape, limits, options or {}) for name in shape.direction.split("+")]
        return repeat(reduce(_after, passes), shape.layers)

    def _pass(self, name: str, shape: Shape, limits: Limits, options: Mapping[str, Any]) -> Plan:
        model = self.build if name == "fwd" else self.backward
        if model is None:
            have = [v.name for v in variants(self.command).values() if v.backward]
            raise VariantError(f"{self.name} has no backward pass; these have one: {', '.join(have)}")
        parameters = inspect.signature(model).parameters
        return model(shape, limits, **{key: value for key, value in options.items() if key in parameters})


_REGISTRY: dict[tuple[str, str], Variant] = {}
_BACKWARD: dict[tuple[str, str], Model] = {}


def variant(name: str, *, source: str, command: Command = "attention") -> Callable[[Model], Model]:
    """Register a model under `name`; a name given twice is an error."""

    def register(build: Model) -> Model:
        if (command, name) in _REGISTRY:
            raise ValueError(f"the variant {name!r} of {command} is registered twice")
        _REGISTRY[command, name] = Variant(name, command, source, build)
        return build

    return register


def backward(name: str, *, command: Command = "attention") -> Callable[[Model], Model]:
    """Register the model of a variant's backward pass."""

    def register(build: Model) -> Model:
        if (command, name) in _BACKWARD:
            raise ValueError(f"the backward pass of {name!r} is registered twice")
        _BACKWARD[command, name] = build
        return build

    return register


def variants(command: Command) -> dict[str, Variant]:
    """Every variant of a command by name, in the order of their families."""
    families = FAMILIES[command]
    for family in families:
        importlib.import_module(f"roofcalc.models.{family}")
    found = [v for v in _REGISTRY.values() if v.command == command]
    return {v.name: v for v in sorted(found, key=lambda v: families.index(v.build.__module__.rpartition(".")[2]))}


def _after(first: Plan, second: Plan) -> Plan:
    """One plan that runs both: the memory is what the second one needs to have kept."""
    notes = tuple(dict.fromkeys((*first.notes, *second.notes)))
    return replace(first, kernels=(*first.kernels, *second.kernels), notes=notes, memory=second.memory)


def repeat(plan: Plan, layers: int) -> Plan:
    """The same plan for `layers` layers, one after the other."""
    if layers == 1:
        return plan
    kernels = tuple(replace(kernel, launches=kernel.launches * layers) for kernel in plan.kernels)
    return replace(plan, kernels=kernels)
