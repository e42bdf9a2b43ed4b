"""The values that every part of roofcalc passes on: a shape, a ledger of kernels, a report.

All of them are frozen. Counts are exact integers (or NumPy arrays of them); sizes are in elements,
traffic in bytes, work in operations (one multiply-add is two), times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from roofcalc.numeric import Num, ceil_div, everywhere
from roofcalc.shape import DTYPES, KV_DTYPES, Pass, RoofcalcError, Shape, ShapeError

__all__ = [
    "BITS",
    "DTYPES",
    "KV_DTYPES",
    "Access",
    "Kernel",
    "Limits",
    "Pass",
    "Plan",
    "Report",
    "RoofcalcError",
    "Row",
    "Shape",
    "ShapeError",
    "Tensor",
    "Tile",
    "Work",
]

Pipe = Literal["tensor", "vector", "exp"]
Tier = Literal["hbm", "l2", "smem"]
Mode = Literal["read", "write"]

BITS = {"fp32": 32, "tf32": 32, "int32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4}


@dataclass(frozen=True)
class Tensor:
    """An array in memory: `elements` numbers of `dtype`, their count written out in `why`."""

    name: str
    elements: Num
    dtype: str
    why: str

    def read(self, times: Num = 1, tier: Tier = "hbm", why: str = "") -> Access:
        """The ledger line of reading this tensor `times` over."""
        return Access(self.name, self.elements * times, self.dtype, tier, "read", why or self.why)

    def write(self, times: Num = 1, tier: Tier = "hbm", why: str = "") -> Access:
        """The ledger line of writing this tensor `times` over."""
        return Access(self.name, self.elements * times, self.dtype, tier, "write", why or self.why)


@dataclass(frozen=True)
class Access:
    """One ledger line: what moves, through which memory, read or written, and the formula as text."""

    tensor: str
    elements: Num
    dtype: str
    tier: Tier
    mode: Mode
    why: str

    @property
    def bytes(self) -> Num:
        return ceil_div(self.elements * BITS[self.dtype], 8)


@dataclass(frozen=True)
class Work:
    """Operations on one execution pipe.

    `ops` are those that the algorithm needs for the pairs that the mask leaves; `executed` (the same
    unless given) are those that the pipe runs, with padding, masked parts of tiles and bookkeeping.
    `dtype` chooses the rate of the tensor pipe.
    """

    pipe: Pipe
    ops: Num
    why: str
    dtype: str = "fp32"
    executed: Num | None = None

    @property
    def run(self) -> Num:
        """The operations that the pipe runs."""
        return self.ops if self.executed is None else self.executed


@dataclass(frozen=True)
class Tile:
    """What one thread block holds: shared memory in bytes, registers per thread, threads.

    `block_q` x `block_kv` is its part of the score matrix, `stages` the depth of its load pipeline.
    """

    threads: int
    smem: Num = 0
    registers: int = 0
    block_q: int | None = None
    block_kv: int | None = None
    stages: int = 1


@dataclass(frozen=True)
class Kernel:
    """One launch: its work and its accesses, free of any hardware.

    `launches` says how many identical launches there are; the report multiplies. `grid` is the number
    of thread blocks of one launch. With `own_sms` the roofs of bandwidth and matrix rate count only the
    SMs that have a block (decode attention): `in_flight` bytes per block are then on their way at once.
    `family` names the mechanism that its expected time follows, `sizes` what that needs to know; `group`
    is the part of a decode step that it belongs to.
    """

    name: str
    work: tuple[Work, ...]
    accesses: tuple[Access, ...]
    launches: int = 1
    grid: Num | None = None
    tile: Tile | None = None
    own_sms: bool = False
    in_flight: Num | None = None
    family: str | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None

    def bytes_through(self, tier: Tier) -> Num:
        """Bytes of the ledger lines of one memory, for one launch."""
        return sum((a.bytes for a in self.accesses if a.tier == tier), 0)


@dataclass(frozen=True)
class Limits:
    """All that a model may know of a GPU: it chooses tiles and splits by these. Bytes and counts."""

    sms: int
    smem_per_sm: int
    smem_per_block: int
    l2: int
    registers: int
    threads: int
    blocks: int

    def resident(self, tile: Tile) -> int:
        """Thread blocks of `tile` that one SM holds at once (0 when not even one fits).

        A block costs its shared memory and the 1 KiB that CUDA reserves for each block (the
        difference between the limit per SM and per block), its registers (allocated per warp in
        units of 256) and its threads.
        """
        if everywhere(tile.smem > self.smem_per_block):
            return 0
        reserved = self.smem_per_sm - self.smem_per_block
        warps = ceil_div(tile.threads, 32)
        by_registers = (
            self.registers // (warps * ceil_div(tile.registers * 32, 256) * 256)
            if tile.registers
            else self.blocks
        )
        by_smem = self.smem_per_sm // (tile.smem + reserved) if everywhere(tile.smem > 0) else self.blocks
        return int(min(self.blocks, self.threads // (warps * 32), by_registers, by_smem))


@dataclass(frozen=True)
class Plan:
    """A variant's kernels for one shape. `memory` is the extra device memory held at once, in bytes."""

    variant: str
    shape: Shape
    kernels: tuple[Kernel, ...]
    source: str
    notes: tuple[str, ...] = ()
    memory: Num = 0


class Term(NamedTuple):
    """One part of an expected time: its name, its seconds (below 0 where it hides others), the law behind it."""

    name: str
    seconds: Num
    why: str


@dataclass(frozen=True)
class Row:
    """One kernel of a report, or its total; field by field what the JSON output names."""

    name: str
    flops: Num
    executed_flops: Num
    bytes: Num
    intensity: Num | None
    time: Num
    launches: Num
    expected: Num | None = None
    ridge: Num | None = None
    bound: Any = None
    roof: Any = None
    share: Num | None = None
    roofs: Mapping[str, Num | None] = field(default_factory=dict)
    units: Num | None = None
    waves: Num | None = None
    sm_use: Num | None = None
    ledger: tuple[Access, ...] = ()
    work: tuple[Work, ...] = ()
    terms: tuple[Term, ...] = ()
    group: str | None = None


@dataclass(frozen=True)
class Report:
    """A plan on one GPU: what every renderer sees. `memory` in bytes; `peaks` head the table.

    `totals` are further figures of the whole by their JSON names: a step's host and device seconds.
    """

    gpu: str
    hardware: str
    variant: str
    source: str
    shape: Shape
    kernels: tuple[Row, ...]
    total: Row
    memory: Num
    peaks: Mapping[str, float]
    notes: tuple[str, ...] = ()
    totals: Mapping[str, Num | None] = field(default_factory=dict)

    def rows(self) -> tuple[Row, ...]:
        return self.kernels
