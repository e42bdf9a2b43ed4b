"""GPUs as YAML files: found by name, alias or path, checked field by field, frozen.

A file's stem is the GPU's name. The built-in ones lie in ``hardware/``; the folders in the
environment variable ROOFCALC_HARDWARE are searched before them. All figures are in SI base units.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, StrictStr

from roofcalc.blocks import Block, Clocks, Count, Flops, Launch, Memory, Ops, PerSm, TensorRate
from roofcalc.constants import Calibration, borrowed
from roofcalc.core import Limits, Pipe, RoofcalcError
from roofcalc.quantities import nearest
from roofcalc.yamlfile import FileError, read, scalar, validated, yaml_files

SET = "--set"
VARIABLE = "ROOFCALC_HARDWARE"
MEASURED = {"hopper": "h200", "blackwell": "h200", "ampere": "h200", "ada": "h200"}
"""The built-in GPU with measurements that is nearest to an architecture."""


class HardwareError(RoofcalcError):
    """A GPU that is not there, or that cannot do what is asked of it."""


class HardwareFile(Block):
    """What a hardware file says: the GPU at its data sheet's clocks, dense peaks only.

    `sources` leads from a field's dotted path, or a prefix of it, to where the figures come from.
    """

    name: Annotated[StrictStr, Field(min_length=1)]
    aliases: tuple[StrictStr, ...] = ()
    architecture: Literal["ampere", "ada", "hopper", "blackwell"]
    sms: Count
    clocks: Clocks
    tensor: Annotated[dict[Literal["bf16", "fp16", "tf32", "fp8", "int8"], TensorRate], Field(min_length=1)]
    vector: Annotated[dict[Literal["fp32"], Flops], Field(min_length=1)]
    exp: Ops
    memory: Memory
    per_sm: PerSm
    launch: Launch
    calibration: Calibration | None = None
    sources: dict[StrictStr, StrictStr] = Field(default_factory=dict)


class Hardware(HardwareFile):
    """A GPU: what its file says, and the file's stem as its `key`."""

    key: str
    tensor: dict[str, float]  # type: ignore[assignment]  # looked up by any dtype; the file's keys are checked
    vector: dict[str, float]  # type: ignore[assignment]

    @property
    def limits(self) -> Limits:
        """What a model may know of this GPU."""
        smem, l2 = self.memory.smem, self.memory.l2
        return Limits(self.sms, smem.per_sm, smem.per_block, l2.capacity, **dict(self.per_sm))

    @property
    def sram(self) -> int | None:
        """Bytes of shared memory and L1 cache over all SMs; None where the file does not say."""
        per_sm = self.memory.smem.sram_per_sm
        return None if per_sm is None else self.sms * per_sm

    def rate(self, pipe: Pipe, dtype: str = "fp32") -> float:
        """Operations per second of a pipe. Raises HardwareError for a dtype that its tensor pipe lacks.

        fp32 products run on the CUDA cores, so at the vector pipe's rate; `dtype` chooses nothing else.
        """
        if pipe == "exp":
            return self.exp
        if pipe == "vector" or dtype == "fp32":
            return self.vector["fp32"]
        if dtype not in self.tensor:
            has = ", ".join(self.tensor)
            raise HardwareError(f"{self.key} has no {dtype} on its tensor cores; it has {has}")
        return self.tensor[dtype]

    @cached_property
    def calibrated(self) -> tuple[Calibration | None, str]:
        """The constants of expected times and a note on whose they are, empty where they are this GPU's own.

        A GPU without its own takes those of the nearest measured one, times in clocks scaled by the clock.
        """
        if self.calibration is not None:
            return self.calibration, ""
        lender = load(MEASURED[self.architecture])
        clock, pipe = self.clocks.fp32 / lender.clocks.fp32, self._per_clock / lender._per_clock
        if lender.calibration is None:
            return None, ""
        origin = f"fitted on the {lender.key}, not checked on the {self.key}"
        note = f"calibration: borrowed from {lender.architecture} ({origin})"
        return borrowed(lender.calibration, clock, pipe), note

    @property
    def _per_clock(self) -> float:
        """Tensor operations per clock and SM, for the dtype that the file names first."""
        return next(iter(self.tensor.values())) / self.clocks.tensor / self.sms


class Figure(NamedTuple):
    """One number of a GPU: its dotted path, its value in `unit` (empty for a count), its origin."""

    path: str
    value: float
    unit: str
    source: str


def load(name: str, overrides: Sequence[str] = ()) -> Hardware:
    """The GPU called `name` (a file's stem or one of its aliases, in any case) or written in the file `name`.

    `overrides` are ``FIELD=VALUE`` of ``--set``, put into the file's content before it is checked.
    Raises HardwareError for an unknown name and FileError, with ``file:line:column``, for a broken file.
    """
    path = _find(name)
    document = read(path)
    given = dict(_override(text) for text in overrides)
    for field, (value, label) in given.items():
        document = document.having(tuple(field.split(".")), value, label)
    said = validated(HardwareFile, document)
    if unknown := [field for field in said.sources if field not in _sourced()]:
        message = f"no such field{nearest(unknown[0], _sourced())}"
        raise document.error(("sources", unknown[0]), message, key=True)
    sources = {**said.sources, **dict.fromkeys(given, f"{SET} (given)")}
    return Hardware.model_construct(**{**dict(said), "key": path.stem, "sources": sources})


def names() -> tuple[str, ...]:
    """The names of all GPUs: the built-in ones and those in the folders of ROOFCALC_HARDWARE."""
    return tuple(sorted(path.stem for path in _library().values()))


def figures(hardware: Hardware) -> list[Figure]:
    """Every number that the GPU's file gives, in the file format's order."""
    rows = ((path, _at(hardware, path), unit) for path, unit in _fields().items())
    return [Figure(*row, _source(row[0], hardware.sources)) for row in rows if row[1] is not None]


def _at(hardware: Hardware, path: str) -> Any:
    value: Any = hardware
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else getattr(value, step)
    return value


def _source(path: str, sources: Mapping[str, str]) -> str:
    """The source of a field: its own, else that of the block that holds it."""
    while path and path not in sources:
        path = path.rpartition(".")[0]
    return sources.get(path, "")


@cache
def _fields() -> dict[str, str]:
    """The dotted path of every number of a file, with its unit (empty for a count)."""
    return dict(_leaves(HardwareFile, ""))


@cache
def _sourced() -> tuple[str, ...]:
    """What `sources` may name: every number, and every block that holds some."""
    paths = [path.split(".") for path in _fields()]
    return tuple(dict.fromkeys(".".join(path[:n]) for path in paths for n in range(1, len(path) + 1)))


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        path = f"{prefix}{name}"
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{path}.")
        elif get_origin(kind) is dict and get_origin(get_args(kind)[0]) is Literal:
            for dtype in get_args(get_args(kind)[0]):  # int8 makes no FLOP
                yield f"{path}.{dtype}", "op/s" if dtype == "int8" else "FLOP/s"
        elif (unit := _unit(field.metadata)) is not None:
            yield path, unit


def _unit(metadata: Sequence[object]) -> str | None:
    """The unit that a field's annotation wants: empty for a count, None for text."""
    parsers = [entry.func for entry in metadata if isinstance(entry, BeforeValidator)]
    return getattr(parsers[0], "unit", "") if parsers else None


def _override(text: str) -> tuple[str, tuple[object, str]]:
    """The field, the value and the label in errors of one ``FIELD=VALUE``."""
    field, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise HardwareError(f"{SET} {text}: FIELD=VALUE is wanted, such as memory.hbm.bandwidth=4.8TB/s")
    if field not in _fields():
        raise HardwareError(f"{SET} {text}: no such field{nearest(field, _fields())}")
    return field, (scalar(value), f"{SET} {field}={value}")


def _find(name: str) -> Path:
    if name.lower().endswith((".yaml", ".yml")) or os.sep in name or "/" in name:
        return Path(name)
    library = _library()
    wanted = _folded(name)
    if wanted in library:
        return library[wanted]
    aliases = {_folded(alias): path for path in library.values() for alias in _aliases(path)}
    if wanted in aliases:
        return aliases[wanted]
    near = get_close_matches(wanted, [*library, *aliases], n=3, cutoff=0.5)
    hint = f", did you mean {' or '.join(near)}" if near else ""
    absent = "".join(f"; {VARIABLE} names {path}, which is no folder" for path in _own() if not path.is_dir())
    raise HardwareError(f"unknown GPU {name!r}{hint}; `roofcalc gpus` lists all, files end in .yaml{absent}")


def _library() -> dict[str, Path]:
    """Every hardware file by its folded stem; a user's file hides a built-in one of the same name."""
    packed = Path(str(files("roofcalc"))) / "_hardware"
    built_in = packed if packed.is_dir() else Path(__file__).parent.parent / "hardware"
    found = [path for folder in (built_in, *reversed(_own())) for path in yaml_files(folder)]
    return {_folded(path.stem): path for path in found}


def _own() -> list[Path]:
    return [Path(folder) for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]


def _aliases(path: Path) -> list[str]:
    """The aliases in a file; none where it is broken, since another GPU is being looked for."""
    try:
        aliases = read(path).data.get("aliases")
    except (FileError, AttributeError):
        return []
    return [alias for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []


def _folded(name: str) -> str:
    return name.strip().casefold().replace("_", "-")
