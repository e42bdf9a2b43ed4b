"""What a decode report says beside its numbers: intensity, units, padding, the longest sequence."""

from __future__ import annotations

from collections.abc import Sequence

from roofcalc.core import Kernel, Limits, Shape
from roofcalc.models.cache import SCALED, element_bytes, visible
from roofcalc.models.decode_parts import Units
from roofcalc.numeric import Num, is_array

PARTIAL = ("O_partial", "L_partial")
"""What every split leaves for the kernel that combines them."""


def plain(*sizes: Num) -> bool:
    """Whether all sizes are single numbers: notes are for those."""
    return not any(is_array(size) for size in sizes)


def counted(number: Num, one: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{number} {one}" if str(number) == "1" else f"{number} {one}s"


def intensity(shape: Shape, group: Num, kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """The intensity of attention over a long cache, why no kernel changes it, and that of `kernels`."""
    if not plain(shape.T, group, shape.d):
        return ()
    each = element_bytes(shape)
    scaled = f" ({shape.kv_dtype} with its fp16 scale and zero)" if shape.kv_dtype in SCALED else ""
    return (
        f"intensity of the cache's reads alone: T × heads/kv_heads × 2 / bytes per element = {shape.T} × {group} "
        f"× 2 / {each:.4g}{scaled} = {shape.T * group * 2 / each:.4g} FLOP/B, whatever the batch and the number "
        "of keys",
        *beside(shape.T * group * 2 / each, kernels),
    )


def beside(alone: float, kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """What the other traffic makes of the intensity of the cache's reads `alone`, where it shows."""
    useful, moved = _flops(kernels), sum((kernel.bytes_through("hbm") for kernel in kernels), 0)
    if not plain(useful, moved) or useful / moved > 0.95 * alone:
        return ()
    return (f"with all else that moves (queries, output, scores, partial results) it is {useful / moved:.3g} FLOP/B",)


def _flops(kernels: Sequence[Kernel]) -> Num:
    return sum((work.ops for kernel in kernels for work in kernel.work), 0)


def unfinished(kernels: Sequence[Kernel], splits: Num) -> tuple[str, ...]:
    """That partial results are most of what moves, where they are."""
    lines = [line for kernel in kernels for line in kernel.accesses if line.tier == "hbm"]
    part = sum((line.bytes for line in lines if line.tensor in PARTIAL), 0)
    whole = sum((line.bytes for line in lines), 0)
    if not plain(part, whole, splits) or 2 * part <= whole:
        return ()
    return (
        f"partial results, written and read again, are {part / 1e6:.1f} of the {whole / 1e6:.1f} MB that move at "
        f"{splits} splits; fewer splits move less, and --splits auto takes the fastest number",
    )


def expects(library: str, splits: Num) -> tuple[str, ...]:
    """Whose split and combine kernels the expected time stands for."""
    if not plain(splits) or splits == 1:
        return ()
    return (
        f"expected is for the split and combine kernels of {library}; those of another library take another time "
        "for the same bytes",
    )


def machine(limits: Limits, kernel: Kernel) -> tuple[str, ...]:
    """Work units against SMs: the share that idles below a wave, the tail above."""
    units, tile = kernel.grid, kernel.tile
    if tile is None or units is None or not plain(units):
        return ()
    resident = max(1, limits.resident(tile))
    slots = limits.sms * resident
    waves = counted(f"{units / slots:.3g}", "wave")
    head = f"{kernel.name}: {counted(units, 'work unit')} on {limits.sms} SMs x {resident}, {waves}"
    if units < limits.sms:
        return (f"{head}: {100 * (1 - units / limits.sms):.1f} % of the SMs idle",)
    if units > slots and units % slots:
        return (f"{head}: the last wave fills {100 * (units % slots) / slots:.1f} % of the slots",)
    return (head,)


def padding(shape: Shape, units: Units) -> tuple[str, ...]:
    """How much of a query tile is padding: the tensor pipe executes the whole of it."""
    if shape.dtype == "fp32" or not plain(shape.T, units.pack):
        return ()
    rows = shape.T * units.pack
    used = rows if rows < units.block_q else rows % units.block_q
    if used == 0:
        return ()
    which = "" if rows < units.block_q else " of a group's last tile"
    return (
        f"{units.block_q - used} of {units.block_q} rows{which} are padding: the tensor pipe executes the "
        f"whole {units.block_q} x {units.block_kv} tile for {used} query row{'' if used == 1 else 's'}",
    )


def makespan(shape: Shape, units: Units) -> tuple[str, ...]:
    """In a batch of unlike lengths, the sequence that the launch waits for."""
    if shape.lengths is None or len(set(shape.lengths)) == 1:
        return ()
    keys = [visible(one).S for one in shape.sequences]
    most, mean = max(keys), sum(keys) / len(keys)
    return (
        f"{len(keys)} sequences in one launch: the longest reads {most} keys, {most / mean:.3g} times the mean, "
        f"and the launch lasts until its units of {units.chunk(most)} keys are done",
    )
