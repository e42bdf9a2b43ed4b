"""What a design's YAML file may say, field by field; editors get the same as a JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr

from roofcalc.core import Pipe, Tier
from roofcalc.quantities import shown

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
Stored = Literal["fp32", "tf32", "int32", "fp16", "bf16", "fp8", "int8", "int4"]


def _formula(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"found {shown(value)}; a number or a formula is wanted")
    return value if isinstance(value, str) else repr(value)


def _name(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value != value.strip() or not value.isprintable()):
        raise ValueError(f"found {shown(value)}; a name of printable characters is wanted")
    return value


def _list(value: object) -> object:
    return [value] if isinstance(value, str | int | float | dict) else value


def _tensor(value: object) -> object:
    if not isinstance(value, list | dict):
        raise ValueError(f"found {shown(value)}; a list of sizes is wanted, such as [T, D]")
    return {"shape": value} if isinstance(value, list) else value


def _access(value: object) -> object:
    return {"tensor": value} if isinstance(value, str) else value


def _work(value: object) -> object:
    return {"ops": value} if isinstance(value, str | int | float) else value


Formula = Annotated[str, BeforeValidator(_formula, json_schema_input_type=int | float | str)]
"""A number, or arithmetic over the params: ``ceil(T / 128)``."""

Bytes = Formula
"""A formula that counts bytes, or a size with its unit: ``96 KiB``."""

Name = Annotated[StrictStr, BeforeValidator(_name)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorEntry(_Entry):
    """An array in memory: its sizes and what its numbers are. The short form is the list of sizes."""

    shape: Annotated[list[Formula], Field(min_length=1)]
    dtype: Stored | None = None
    why: StrictStr | None = None


class AccessEntry(_Entry):
    """What a kernel moves of a tensor: all of it, `times` over, or `elements` of it. Short form: its name."""

    tensor: StrictStr
    times: Formula | None = None
    elements: Formula | None = None
    tier: Tier = "hbm"
    dtype: Stored | None = None
    why: StrictStr | None = None


class WorkEntry(_Entry):
    """Operations that the algorithm needs, and those `executed` with padding. The short form is the first."""

    ops: Formula
    executed: Formula | None = None
    dtype: Dtype | None = None
    why: StrictStr | None = None


class TileEntry(_Entry):
    """One thread block: shared memory in bytes, registers of a thread, threads, its part of the result."""

    threads: Formula
    smem: Bytes = "0"
    registers: Formula | None = None
    stages: Formula = "1"
    block_q: Formula | None = None
    block_kv: Formula | None = None


Shaped = Annotated[TensorEntry, BeforeValidator(_tensor, json_schema_input_type=list[Formula] | TensorEntry)]
Moved = Annotated[AccessEntry, BeforeValidator(_access, json_schema_input_type=str | AccessEntry)]
Moves = Annotated[list[Moved], BeforeValidator(_list, json_schema_input_type=Moved | list[Moved])]
Done = Annotated[WorkEntry, BeforeValidator(_work, json_schema_input_type=Formula | WorkEntry)]
Works = Annotated[list[Done], BeforeValidator(_list, json_schema_input_type=Done | list[Done])]


class KernelEntry(_Entry):
    """One kernel: what it reads, writes and calculates, how many blocks it has and what one block holds."""

    name: Name
    reads: Moves = []
    writes: Moves = []
    work: dict[Pipe, Works] = {}
    launches: Formula = "1"
    grid: Formula | None = None
    tile: TileEntry | None = None
    own_sms: StrictBool = False
    in_flight: Bytes | None = None


class DesignFile(_Entry):
    """A kernel design. `work` is what the whole must calculate, however many kernels it takes."""

    name: Name
    params: dict[StrictStr, Formula] = {}
    dtype: Dtype = "bf16"
    tensors: Annotated[dict[Name, Shaped], Field(min_length=1)]
    kernels: Annotated[list[KernelEntry], Field(min_length=1)]
    work: dict[Pipe, Works] = {}
    memory: Bytes | None = None
    source: StrictStr = ""
    notes: list[StrictStr] = []


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a design file, as an editor wants it."""
    body = DesignFile.model_json_schema(mode="validation")
    return {"$schema": DIALECT, **body, "title": "roofcalc kernel design"}
