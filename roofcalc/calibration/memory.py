"""Kernels that pass over a matrix: elementwise steps, softmax, batched products with a short K loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcalc.calibration.machine import Machine, bytes_time, longer, overlapped, streamed
from roofcalc.core import BITS, Kernel, Term
from roofcalc.numeric import Num, ceil_div, log2, maximum, minimum, where

if TYPE_CHECKING:
    from roofcalc.constants import Bmm, Elementwise, Generic, Softmax


def stream(kernel: Kernel, c: Elementwise, gpu: Machine) -> tuple[Term, ...]:
    """Contiguous operands of one type: 16-byte loads, so bandwidth alone (a copy on an H200: 89 % of HBM).

    From HBM the pipeline of loads has to fill and to drain, on top of the floor.
    """
    cold = where(kernel.bytes_through("hbm") > 0, c.ramp, 0.0)
    return (
        Term("floor", c.floor, "start, one round trip to L2 and end of a small kernel in a graph"),
        Term("ramp", cold, "loads from HBM: the pipeline fills and drains"),
        Term("memory", bytes_time(kernel, gpu, c.hbm, c.l2), f"bytes at {c.hbm:.0%} of HBM or {c.l2:.0%} of L2"),
    )


def indexed(kernel: Kernel, c: Elementwise, gpu: Machine, clocks: float) -> tuple[Term, ...]:
    """Broadcast, strided or mixed-type operands: PyTorch computes an index for each element and loads one by one.

    The limit is elements, whatever their bytes, `clocks` of an SM for each: 370 G/s on an H200, 1.4 per
    clock and SM. A strided or broadcast operand of a single row is contiguous after all.
    """
    on = where(kernel.sizes.get("rows", 2) > 1, 1.0, 0.0)
    elements = on * kernel.sizes["elements"]
    floor, ramp, bytes_ = stream(kernel, c, gpu)
    work = Term("elements", elements * clocks / gpu.clocks, f"elements · {clocks:.2f} clocks of an SM each")
    wait = Term("latency", on * c.latency, "index arithmetic, then loads one after the other")
    return (floor, ramp, wait, *longer(bytes_, work))


def random(kernel: Kernel, c: Elementwise, gpu: Machine) -> tuple[Term, ...]:
    """Dropout: Philox makes a random number for each element on the vector pipe."""
    floor, ramp, bytes_ = stream(kernel, c, gpu)
    seconds = kernel.sizes["elements"] * c.random / gpu.clocks
    work = Term("random numbers", seconds, f"elements · {c.random:.2f} clocks of an SM each")
    return (floor, ramp, *longer(bytes_, work))


def masked_fill(kernel: Kernel, c: Elementwise, gpu: Machine) -> tuple[Term, ...]:
    """PyTorch's `masked_fill`, out of place: a clone, then a fill in place that indexes a broadcast mask."""
    elements = kernel.sizes["elements"]
    scores = sum((a.bytes for a in kernel.accesses if a.tensor in ("S", "dS")), 0)
    return (
        *stream(kernel, c, gpu)[:2],
        Term("clone", scores / (c.hbm * gpu.hbm), f"the scores read and written at {c.hbm:.0%} of HBM"),
        Term("start", c.floor + c.ramp, "a second kernel"),
        Term("fill", elements * c.indexed / gpu.clocks, f"elements · {c.indexed:.2f} clocks of an SM each"),
    )


def reduction(kernel: Kernel, c: Elementwise, gpu: Machine) -> tuple[Term, ...]:
    """A row reduction (RMSNorm, mean): a block reads its row, adds over its threads, and reads it again."""
    tree = Term("reduction", c.reduction, "a block's tree of partial sums between two passes over its row")
    return (*stream(kernel, c, gpu), tree)


def mean(kernel: Kernel, c: Elementwise, gpu: Machine) -> tuple[Term, ...]:
    """PyTorch's reduction over rows: the more rows, the fewer threads for each, so the longer a thread's chain.

    A block of 512 threads goes to one row where there is one and to 16 where there are many
    (aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig); about half of the chain hides behind the bytes.
    """
    floor, ramp, bytes_ = stream(kernel, c, gpu)
    doublings = 1 + log2(minimum(kernel.sizes["rows"], MEAN_ROWS))
    chain = Term("chain", c.doubling * doublings, f"{c.doubling * 1e6:.2f} us per doubling of the rows")
    return (floor, ramp, *overlapped(bytes_, chain, HALF_HIDDEN))


MEAN_ROWS, HALF_HIDDEN = 512, 1.5


WARP_COLUMNS, PADDED_COLUMNS, REGISTER_COLUMNS, SOFTMAX_THREADS = 1024, 2048, 9200, 1024
"""Where PyTorch changes its softmax kernel (aten/src/ATen/native/cuda/SoftMax.cu), in columns; block size."""


def softmax(kernel: Kernel, c: Softmax, e: Elementwise, gpu: Machine) -> tuple[Term, ...]:
    """PyTorch's forward softmax: one of four kernels by the length of a row.

    Up to 1024 columns a warp holds a row; up to 2048 it does with the row padded to 2048. Up to about
    9200 a block of 1024 threads holds it, R = ceil(columns / 1024) values a thread, loaded two bytes at a
    time: bound by latency, so 20 % of HBM at any size. Longer rows are staged in shared memory. All of it counts
    elements: fp32 rows take as long as 16-bit ones, unless their bytes bind.
    """
    rows, columns = kernel.sizes["rows"], kernel.sizes["columns"]
    every = bytes_time(kernel, gpu, 1, 1)
    width = sum((BITS[access.dtype] for access in kernel.accesses), 0) / (2 * BITS["bf16"])
    moved = every / width
    values = ceil_div(columns, SOFTMAX_THREADS)
    chain = rows / gpu.sms * c.value * maximum(values - c.saved, 0)
    by_length = where(
        columns <= WARP_COLUMNS,
        moved / c.warp,
        where(columns <= PADDED_COLUMNS, moved / c.padded, where(columns <= REGISTER_COLUMNS, chain, moved / c.shared)),
    )
    by_length = maximum(by_length, every / e.hbm)
    slow = c.masked if kernel.sizes.get("masked") else 0.0
    return (
        Term("floor", c.floor, "launch and first row"),
        Term("rows", by_length, "PyTorch's kernel for this row length"),
        Term("masked", slow * by_length, "scores of -inf take the slow path of the exponential"),
    )


def softmax_backward(kernel: Kernel, c: Softmax, e: Elementwise, gpu: Machine) -> tuple[Term, ...]:
    """`_softmax_backward_data`: grad · P as a kernel of its own, then the reduction; each moves three passes.

    A masked fill before the softmax is undone by another one: the ledger's additive mask has no such kernel.
    """
    moved = kernel.bytes_through("hbm") / gpu.hbm
    elements = kernel.sizes["rows"] * kernel.sizes["columns"]
    start = e.floor + e.ramp
    fill = 2 * start + moved * 2 / 3 / e.hbm + elements * e.indexed / gpu.clocks
    warp = where(kernel.sizes["columns"] <= WARP_COLUMNS, c.backward, e.hbm)
    return (
        Term("floor", 2 * start, "two kernels"),
        Term("product", moved / e.hbm, f"grad · P: three passes at {e.hbm:.0%} of HBM"),
        Term("reduction", moved / warp, "row sums and difference: three passes again"),
        Term("mask", fill if kernel.sizes.get("masked") else 0.0, "the fill undone: a clone, and a fill by elements"),
    )


def bmm(kernel: Kernel, c: Bmm, gpu: Machine) -> tuple[Term, ...]:
    """A batched product with T x S scores on one side and a head dim on the other: memory binds.

    A product over d = 64 or 128 has a K loop of one or two steps, so the stores of its 128 x 128 tile
    hide behind nothing: writing runs slower than reading.
    """
    read = sum((a.bytes for a in kernel.accesses if a.mode == "read"), 0)
    write = sum((a.bytes for a in kernel.accesses if a.mode == "write"), 0)
    flops = sum((work.run for work in kernel.work), 0)
    blocks = kernel.sizes["blocks"]
    memory = streamed(read, blocks, c.stream, c.read * gpu.hbm) + write / (c.write * gpu.hbm)
    return (
        Term("floor", c.floor, "start, first loads and last stores"),
        *longer(
            Term("memory", memory, f"operands at {c.read:.0%} of HBM, result at {c.write:.0%}"),
            Term("products", flops / (c.rate * gpu.tensor), f"FLOP at {c.rate:.0%} of the boost-clock rate"),
        ),
    )


def generic(kernel: Kernel, c: Generic, gpu: Machine, roofs: dict[str, Num | None]) -> tuple[Term, ...]:
    """A good hand-written kernel: its largest roof at the rate that hardware sustains, and a floor."""
    n = kernel.launches
    memory = maximum(_share(roofs, "hbm", c.hbm), _share(roofs, "l2", c.hbm))
    tensor, vector, exp = (_share(roofs, name, c.rate) for name in ("tensor", "vector", "exp"))
    pipes = maximum(tensor, maximum(vector, exp))
    return (
        Term("floor", c.floor, "start, first loads and last stores"),
        *longer(
            Term("memory", memory / n, f"bytes at {c.hbm:.0%} of the bandwidth"),
            Term("pipes", pipes / n, f"the busiest pipe at {c.rate:.0%} of its rate"),
        ),
    )


def _share(roofs: dict[str, Num | None], name: str, share: float) -> Num:
    seconds = roofs.get(name)
    return 0.0 if seconds is None else seconds / share
