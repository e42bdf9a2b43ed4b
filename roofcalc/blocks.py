"""The parts of a hardware file: quantities with their units, and the blocks that hold them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from roofcalc.quantities import Measure, whole

Count = Annotated[int, BeforeValidator(whole)]
Clock = Annotated[float, BeforeValidator(Measure("Hz", "MHz"))]
Flops = Annotated[float, BeforeValidator(Measure("FLOP/s", "TFLOP/s"))]
TensorRate = Annotated[float, BeforeValidator(Measure("FLOP/s", "TFLOP/s", also="op/s"))]
Ops = Annotated[float, BeforeValidator(Measure("op/s", "Top/s"))]
Bandwidth = Annotated[float, BeforeValidator(Measure("B/s", "TB/s"))]
Gigabytes = Annotated[int, BeforeValidator(Measure("B", "GB"))]
Mebibytes = Annotated[int, BeforeValidator(Measure("B", "MiB"))]
Kibibytes = Annotated[int, BeforeValidator(Measure("B", "KiB"))]
Latency = Annotated[float, BeforeValidator(Measure("s", "ns"))]
Cost = Annotated[float, BeforeValidator(Measure("s", "us"))]


class Block(BaseModel):
    """A part of a hardware file: no unknown key, nothing changed after it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Clocks(Block):
    """The clocks, in Hz, at which the data sheet's tensor peak and its fp32 peak hold."""

    tensor: Clock
    fp32: Clock


class Hbm(Block):
    """Device memory: bytes per second, bytes, and the seconds of one load that misses every cache."""

    bandwidth: Bandwidth
    capacity: Gigabytes
    latency: Latency


class L2(Block):
    """The cache that all SMs share: bytes per second read from it, and bytes."""

    bandwidth: Bandwidth
    capacity: Mebibytes


class Smem(Block):
    """Shared memory: bytes per second of the whole GPU, bytes that one SM and one block may use.

    `sram_per_sm` is the array that shared memory and the L1 cache divide between them.
    """

    bandwidth: Bandwidth
    per_sm: Kibibytes
    per_block: Kibibytes
    latency: Latency
    sram_per_sm: Annotated[int | None, BeforeValidator(Measure("B", "KiB"))] = None

    @model_validator(mode="after")
    def _nested(self) -> Smem:
        if self.per_block > self.per_sm:
            raise ValueError("per_block is above per_sm: a block cannot use more than its SM has")
        if self.sram_per_sm is not None and self.per_sm > self.sram_per_sm:
            raise ValueError("per_sm is above sram_per_sm: shared memory is a part of that array")
        return self


class Memory(Block):
    hbm: Hbm
    l2: L2
    smem: Smem


class PerSm(Block):
    """What one SM holds at most: 32-bit registers, threads, thread blocks."""

    registers: Count
    threads: Count
    blocks: Count


class Launch(Block):
    """Seconds: of the CPU to launch a kernel or a graph, of the GPU for a graph's node or a grid barrier."""

    host: Cost
    graph: Cost
    node: Cost
    barrier: Cost
