"""Finds models: presets that ship with roofcalc, and config.json files of the user's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from roofcalc.hf.build import build
from roofcalc.hf.model import Model, ModelError

LARGEST = 16 * 2**20
"""Bytes above which a file is no config.json (a weight file named by mistake)."""


def preset_names() -> tuple[str, ...]:
    """The names of all presets, sorted."""
    return tuple(sorted(entry.name.removesuffix(".json") for entry in _entries()))


def _entries() -> Iterator[Traversable]:
    yield from (entry for entry in (files("roofcalc") / "presets").iterdir() if entry.name.endswith(".json"))


@cache
def _preset(name: str) -> dict[str, Any]:
    return dict(json.loads((files("roofcalc") / "presets" / f"{name}.json").read_text(encoding="utf-8")))


def preset_source(name: str) -> dict[str, Any]:
    """A preset's provenance: `source`, and which keys are `recalled` rather than read."""
    return dict(_preset(name)["roofcalc"])


def load_model(name_or_path: str, said: str = "--model ") -> Model:
    """A preset by its name, or the model of a config.json (or of a folder that holds one).

    `said` stands before the name in errors about it: the option that gave it.

    Raises ModelError, in one line that names the file and the key, for what cannot be read.
    """
    if name_or_path in preset_names():
        return build(
            {k: v for k, v in _preset(name_or_path).items() if k != "roofcalc"}, name_or_path, name_or_path
        )
    if not name_or_path or len(name_or_path) > 1024 or "\0" in name_or_path:
        raise ModelError(f"{said}{name_or_path[:40]!r} is no name and no path")
    path = Path(name_or_path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{name_or_path}: a folder without config.json")
        path = path / "config.json"
    if not path.is_file():
        raise ModelError(_unknown(name_or_path, said))
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    return build(_read(path), name, str(path))


def _unknown(name: str, said: str) -> str:
    if "/" in name or name.endswith(".json"):
        return f"{name}: no such file"
    near = get_close_matches(name, preset_names(), 1)
    hint = f"; did you mean {near[0]}" if near else ""
    return f"{said}{name!r} is neither a file nor a preset; presets are {', '.join(preset_names())}{hint}"


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST:
            raise ModelError(f"{path}: {path.stat().st_size} bytes is too large for a config.json")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path}: not text (byte {error.start} is not UTF-8); a config.json is JSON"
        ) from None
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from None
    if not text.strip():
        raise ModelError(f"{path}: empty; a config.json holds one object")
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise ModelError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except _Duplicate as error:
        raise ModelError(f"{path}: the key {error} is there twice") from None
    except RecursionError:
        raise ModelError(f"{path}: nested too deeply for a config.json") from None
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from None


class _Duplicate(Exception):
    """A key that one object holds twice: which of the two counts would be a guess."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen and seen[key] != value:
            raise _Duplicate(repr(key))
        seen[key] = value
    return seen
