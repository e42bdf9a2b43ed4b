"""YAML whose every value knows where it stands, so that an error can say ``file:line:column``.

Stricter than PyYAML: a key given twice, an alias and a merge are errors, and whatever YAML 1.1
reads otherwise than it looks (``1:30``, ``0x10``, ``010``) stays text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from roofcalc.core import RoofcalcError
from roofcalc.quantities import NUMBER, nearest, shown

Place = tuple[str | int, ...]
"""The keys and list indices that lead to a value."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Model = TypeVar("_Model", bound=BaseModel)


class FileError(RoofcalcError):
    """A file that cannot be read, or that does not say what it should."""


@dataclass(frozen=True)
class Document:
    """The content of a YAML file (dicts, lists, text, numbers) and where each value and key stands.

    `values` and `keys` lead from a place to ``file:line:column``, or to the option that set it.
    """

    origin: str
    data: Any
    values: dict[Place, str]
    keys: dict[Place, str]

    def error(self, place: Place, message: str, *, key: bool = False) -> FileError:
        """The one-line error about the value at `place` (or about its key), or about what should hold it."""
        place = self._written(place)
        known = place
        while known not in self.values:
            known = known[:-1]
        label = (self.keys if key and known in self.keys else self.values)[known]
        dotted = path_of(place)
        told = not dotted or f"{dotted}=" in label
        return FileError(f"{label}: {message}" if told else f"{label}: {dotted}: {message}")

    def _written(self, place: Place) -> Place:
        """`place` without the indices for which the file has the one entry and no list."""
        data: Any = self.data
        written: list[str | int] = []
        for step in place:
            if isinstance(step, int) and data is not None and not isinstance(data, list):
                continue
            written.append(step)
            inside: Any = data
            data = inside[step] if tuple(written) in self.values else None
        return tuple(written)

    def having(self, place: Place, value: object, label: str) -> Document:
        """The same document with `value` at `place`, set by `label`; the mappings on the way are made."""
        data = _having(self.data, place, value)
        here = {place: label}
        return replace(self, data=data, values=self.values | here, keys=self.keys | here)


def yaml_files(folder: Path) -> list[Path]:
    """The YAML files in a folder by name; none where there is no such folder."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if path.suffix in (".yaml", ".yml")]


def read(path: Path, origin: str | None = None) -> Document:
    """The document in the file at `path`, called `origin` (the path) in errors. Raises FileError."""
    name = str(path) if origin is None else origin
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise FileError(f"{name}: not UTF-8 text ({found})") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return parse(text, name)


def parse(text: str, origin: str) -> Document:
    """The document that `text` holds; `origin` names it in errors. Raises FileError."""
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            raise FileError(f"{origin}: the file is empty")
        document = Document(origin, None, {}, {})
        data = _value(node, (), document, set())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = error.problem or error.context
        if mark and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])[: mark.column + 1]:
            problem = "indent with spaces, YAML allows no tabs"
        raise FileError(f"{origin}{where}: not valid YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise FileError(f"{origin}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise FileError(f"{origin}: nested too deeply") from None
    return replace(document, data=data)


def validated(model: type[_Model], document: Document) -> _Model:
    """`document` as a pydantic `model`; its first error becomes a FileError with place, field and wish."""
    if not isinstance(document.data, dict):
        raise document.error((), _no_mapping(document.data, _keys(model, ())))
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        # a misspelt key is also a missing one: the spelling is what helps
        first = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    place, kind, found = first["loc"], first["type"], first["input"]
    if kind == "extra_forbidden":
        known = nearest(str(place[-1]), _keys(model, place[:-1]))
        raise document.error(place, f"unknown key{known}", key=True)
    if kind == "missing":
        raise document.error(place, "missing; the key is required")
    if kind == "literal_error" and place[-1] == "[key]":
        known = nearest(str(place[-2]), _keys(model, place[:-2]))
        raise document.error(place[:-1], f"unknown key{known}", key=True)
    if kind == "literal_error":
        raise document.error(place, f"found {shown(found)}{nearest(str(found), _keys(model, place))}")
    if kind == "too_short" and found == []:
        raise document.error(place, "the list is empty; at least one entry is wanted")
    if kind in ("model_type", "dict_type", "too_short"):
        raise document.error(place, _no_mapping(found, _keys(model, place)))
    if kind in ("list_type", "tuple_type"):
        raise document.error(place, f"found {shown(found)}; a list is wanted")
    if kind == "string_type":
        raise document.error(place, f"found {shown(found)}; text is wanted")
    raise document.error(place, str(first.get("ctx", {}).get("error", first["msg"])))


def path_of(place: Place) -> str:
    """``kernels[0].tile.smem`` for the place ("kernels", 0, "tile", "smem")."""
    return "".join(_step(step) for step in place).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step if step.isprintable() else repr(step)}"


def _no_mapping(found: object, keys: tuple[str, ...]) -> str:
    wanted = "a mapping is wanted" + (f", with keys from {', '.join(keys)}" if keys else "")
    return f"{'the mapping is empty' if found == {} else f'found {shown(found)}'}; {wanted}"


def _keys(model: Any, place: Place) -> tuple[str, ...]:
    """What the value at `place` may hold: a model's fields, a dict's Literal keys, a Literal's choices."""
    for step in place:
        fields = getattr(model, "model_fields", None)
        model = _plain(fields[step].annotation if fields is not None else get_args(model)[-1])
    fields = getattr(model, "model_fields", None)
    if fields is not None:
        return tuple(fields)
    choices = model if get_origin(model) is Literal else (get_args(model) or (None,))[0]
    return get_args(choices) if get_origin(choices) is Literal else ()


def _plain(annotation: Any) -> Any:
    """The type itself, where it is annotated or may be left out."""
    optional = [kind for kind in get_args(annotation) if kind is not NoneType]
    if get_origin(annotation) is Annotated or (get_origin(annotation) is UnionType and len(optional) == 1):
        return _plain(optional[0])
    return annotation


def _having(data: Any, place: Place, value: object) -> Any:
    if not place:
        return value
    inner = data if isinstance(data, dict) else {}
    return {**inner, place[0]: _having(inner.get(place[0]), place[1:], value)}


def _value(node: Any, place: Place, document: Document, seen: set[int]) -> Any:
    """What `node` means; `document` takes down where it and all below it stand."""
    label = document.values[place] = _label(document, node)
    if id(node) in seen:
        label = document.keys.get(place, label)  # the node itself stands where its anchor does
        raise FileError(f"{label}: {path_of(place)}: an alias (*name) is not supported; write the value out")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return scalar(node.value, quoted=bool(node.style))
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, i), document, seen) for i, item in enumerate(node.value)]
    mapping: dict[str, Any] = {}
    for key, item in node.value:
        label = _label(document, key)
        if not isinstance(key, yaml.ScalarNode):
            raise FileError(f"{label}: a key must be plain text")
        inner = (*place, key.value)
        if key.value in mapping:
            raise FileError(f"{label}: {path_of(inner)}: the key is given twice")
        document.keys[inner] = label
        mapping[key.value] = _value(item, inner, document, seen)
    return mapping


def scalar(text: str, *, quoted: bool = False) -> str | int | float | bool | None:
    """A YAML scalar: a decimal number, a boolean or nothing where it looks like one, else its text."""
    if quoted:
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in ("true", "false", "yes", "no", "on", "off"):
        return text.lower() in ("true", "yes", "on")
    if not NUMBER.fullmatch(text) or "_" in text:
        return text
    if text.lstrip("+-").isdigit():
        octal = text.lstrip("+-").startswith("0") and text.lstrip("+-") != "0"
        return text if octal or len(text) > 4000 else int(text)
    return float(text)


def _label(document: Document, node: Any) -> str:
    return f"{document.origin}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
