"""Ordered lookup of config.json keys: which name was found, what was defaulted, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from roofcalc.hf.model import ModelError
from roofcalc.hf.names import NAMES

LARGEST = 2**40
"""Above every size of a model; far below what makes counting slow."""


def is_whole(value: object) -> bool:
    """Whether `value` is an integer (JSON's true and false are none)."""
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class Keys:
    """The keys of one section of a config.json over the defaults of its configuration class.

    A key that is present wins over the class default even when it is null: null asks for the derived
    value (`num_key_value_heads: null` means as many as heads). `class_type` is the type whose class gave
    the defaults. `log` collects, while one file is
    read, which key gave each figure.
    """

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]
    file: str
    model_type: str
    prefix: str = ""
    class_type: str = ""
    log: dict[str, str] = field(default_factory=dict)

    def error(self, text: str) -> ModelError:
        return ModelError(f"{self.file}: {text}")

    def find(self, names: Sequence[str]) -> tuple[str, Any]:
        """The first name that has a value that is not null, and the value; ("", None) without one."""
        for name in names:
            if self.given.get(name) is not None:
                return name, self.given[name]
        if any(name in self.given for name in names):
            return "", None
        for name in names:
            if self.defaults.get(name) is not None:
                return name, self.defaults[name]
        return "", None

    def record(self, figure: str, name: str) -> None:
        default = "" if name in self.given else f" (default of {self.class_type or self.model_type})"
        self.log.setdefault(figure, f"{self.prefix if not default else ''}{name}{default}")

    def value(self, figure: str) -> Any:
        """The figure's value as it stands, or None."""
        name, value = self.find(NAMES.get(figure, (figure,)))
        if value is not None:
            self.record(figure, name)
        return value

    def size(self, figure: str, least: int = 1) -> int | None:
        """A whole number of at least `least`; None where no key has one. Wrong types are errors."""
        name, value = self.find(NAMES.get(figure, (figure,)))
        if value is None:
            return None
        self.record(figure, name)
        return self.checked(name, value, least)

    def checked(self, name: str, value: Any, least: int = 1) -> int:
        if not is_whole(value):
            raise self.error(f"{self.prefix}{name} is {shown(value)}; it must be a whole number")
        if value < least:
            raise self.error(f"{self.prefix}{name} is {shown(value)}; it must be at least {least}")
        if value > LARGEST:
            raise self.error(f"{self.prefix}{name} is {shown(value)}; no model has more than 2**40")
        return int(value)

    def need(self, figure: str) -> int:
        """A size that nothing can be derived from; its absence is an error that names the keys."""
        value = self.size(figure)
        if value is None:
            names = NAMES.get(figure, (figure,))
            null = next((name for name in names if name in self.given), "")
            if null:
                raise self.error(f"{self.prefix}{null} is null, and nothing gives the {figure} otherwise")
            raise self.error(f"no {figure} found; looked for {', '.join(names)}{self.nearest(names)}")
        return value

    def nearest(self, names: Sequence[str]) -> str:
        close = [
            near for name in names for near in get_close_matches(name, [str(k) for k in self.given], 1, 0.8)
        ]
        return f"; nearest key in the file: {close[0]}" if close else ""

    def per_layer(self, figure: str, layers: int, least: int = 1) -> tuple[int | None, ...]:
        """One size for each layer, from one number for all or from a list of `layers` numbers."""
        name, value = self.find(NAMES.get(figure, (figure,)))
        if not isinstance(value, list):
            return (self.size(figure, least),) * layers
        self.record(figure, name)
        if len(value) < layers:
            raise self.error(f"{self.prefix}{name} lists {len(value)} values for {layers} layers")
        return tuple(
            None if v is None else self.checked(f"{name}[{i}]", v, least)
            for i, v in enumerate(value[:layers])
        )

    def flag(self, name: str, default: bool = False) -> bool:
        """A true or false; `default` where neither the file nor the class has one."""
        _, value = self.find((name,))
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"{self.prefix}{name} is {shown(value)}; it must be true or false")
        return value

    def number(self, *names: str) -> float | None:
        """A factor above 0 (an expansion, a ratio); None where no key has one."""
        name, value = self.find(names)
        return None if value is None else self.factor(name, value)

    def factor(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST:
            raise self.error(f"{self.prefix}{name} is {shown(value)}; it must be a number above 0")
        return float(value)

    def indices(self, name: str) -> list[int] | None:
        """A list of layer numbers, or None where there is none."""
        found = self.items(name)
        return None if found is None else [self.checked(f"{name}[{i}]", v, 0) for i, v in enumerate(found)]

    def items(self, name: str) -> list[Any] | None:
        """A list, or None where there is none."""
        value = self.value(name)
        if value is not None and not isinstance(value, list):
            raise self.error(f"{self.prefix}{name} is {shown(value)}; it must be a list")
        return value

    def section(self, name: str) -> Mapping[str, Any]:
        """A nested object ({} where there is none)."""
        value = self.given.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(f"{self.prefix}{name} is {shown(value)}; it must be an object")
        return value

    def has(self, name: str) -> bool:
        return self.find((name,))[1] is not None


def shown(value: object) -> str:
    """A value for a one-line message, cut at 40 characters."""
    if isinstance(value, int) and abs(value) > LARGEST**2:
        return "a number of very many digits"
    text = str(value).lower() if isinstance(value, bool) else "null" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
