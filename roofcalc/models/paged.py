"""Decode attention over a paged cache: the keys of a sequence lie in pages that a block table finds."""

from __future__ import annotations

from roofcalc.core import BITS, Access, Kernel, Limits, Plan, Shape, Tensor
from roofcalc.models import variant
from roofcalc.models.cache import at_least_one, cached, checked, visible
from roofcalc.models.decode_notes import counted, expects, intensity, plain
from roofcalc.models.decode_parts import Units, attention, combine, launches, moved
from roofcalc.models.splitting import capped, notes, packed, partial_bytes, resolve
from roofcalc.numeric import Num, ceil_div, everywhere

PAGED_SOURCE = "arXiv:2309.06180 (PagedAttention), section 4.1"
PAGE = 16
"""Tokens of a page, the default of vLLM (section 7.2)."""
SECTOR = 32
"""Bytes that L2 fetches at least."""


def pages(shape: Shape, page_size: Num) -> Num:
    """Pages of one sequence that hold a key which some query sees."""
    return ceil_div(shape.S, page_size) - (shape.S - visible(shape).S) // page_size


def waste(shape: Shape, page_size: Num) -> tuple[Tensor, ...]:
    """Bytes that are fetched because a page of K or V does not end with a 32-byte sector."""
    count = shape.batch * pages(shape, page_size)
    why = "batch·pages·(bytes that fill up the last 32-byte sector of a page)"
    bits = {array.name: array.dtype for array in cached(shape)}
    width = {"K": shape.kv_heads * shape.d, "V": shape.kv_heads * shape.dv}
    widths = {name: width.get(name, 2 * shape.kv_heads) for name in bits}
    runs = {name: ceil_div(page_size * widths[name] * BITS[dtype], 8) for name, dtype in bits.items()}
    return tuple(
        Tensor(f"{name}_sectors", count * (-run % SECTOR), "int8", why) for name, run in runs.items()
    )


@variant("paged", source=PAGED_SOURCE, command="decode")
def paged(
    shape: Shape, limits: Limits, *, page_size: int | None = None, splits: int | str | None = None
) -> Plan:
    """split-kv over pages of --page-size tokens: the valid keys are read, and 4 bytes a page to find them.

    The layout assumed is vLLM's [page, token, KV head, d], K and V apart. The block table holds an int32 a
    page and sequence; the first unit of a sequence reads it from HBM, the other KV heads and query tiles
    from L2. Raises RoofcalcError for a page of no token.
    """
    checked(shape)
    size = PAGE if page_size is None else page_size
    at_least_one("--page-size", size)
    units = resolve(splits, shape, limits, packed(shape, limits))

    def build(single: Shape) -> tuple[Kernel, ...]:
        mine = capped(units, single)
        extra = _table(single, mine, size)
        automatic = splits is None
        kernel = attention("split", single, mine, extra=extra, auto=automatic)
        return kernel, *combine(single, mine.splits, automatic)

    kernels = launches(shape, build)
    said = (*_notes(shape, size), *intensity(shape, shape.group, kernels), *notes(shape, limits, units, kernels))
    said = (*said, *expects("Triton", units.splits))
    return Plan("paged", shape, kernels, PAGED_SOURCE, said, partial_bytes(kernels))


def _table(shape: Shape, units: Units, page_size: Num) -> tuple[Access, ...]:
    """What pages add to the ledger: the block table and the sectors that pages leave half used."""
    table = Tensor("block_table", shape.batch * pages(shape, page_size), "int32", "batch·pages")
    again = shape.kv_heads * units.reads(shape) - 1
    other = "batch·pages·(kv_heads · query tiles of a group - 1)"
    half_used = (array.read() for array in waste(shape, page_size))
    return moved((table.read(), table.read(again, "l2", other), *half_used))


def _notes(shape: Shape, page_size: Num) -> tuple[str, ...]:
    layout = (
        f"pages of {counted(page_size, 'token')}, layout [page, token, KV head, d] (vLLM), K and V apart",
        "a stock kernel for contiguous K and V cannot read pages: it needs a kernel that follows the block "
        "table, or a copy of the cache first (one more read and write of it)",
    )
    if not plain(shape.S, shape.T, shape.batch, page_size):
        return layout
    repeat = 1 if shape.lengths else shape.batch
    held = repeat * page_size * sum(pages(one, page_size) for one in shape.sequences)
    valid = repeat * sum(visible(one).S for one in shape.sequences)
    tokens = f"{counted(held, 'token')} {'is' if held == 1 else 'are'}"
    allocated = f"{tokens} allocated in whole pages, {valid} of them valid and read"
    lost = sum(array.elements for one in shape.sequences for array in waste(one, page_size))
    if everywhere(lost == 0):
        return (*layout, allocated)
    return (*layout, allocated, f"small pages waste {lost} B of half-used sectors")
