"""The bricks of decode attention: the tile of a kernel, its work units, and what they read and execute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from roofcalc.core import BITS, Access, Kernel, Limits, Shape, Tensor, Tile, Work
from roofcalc.models.cache import SCALED, cached, visible
from roofcalc.models.parts import matrix_pipe, product, softmax_work, tensors
from roofcalc.models.tiles import MixedTiles, distinct
from roofcalc.numeric import Num, ceil_div, everywhere, maximum, minimum, where

KEY_BLOCKS = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Units:
    """How the query rows of a kernel become work units.

    `pack` query heads share a unit and so one read of their keys; `tile` is what its thread block
    holds; the keys of a sequence are dealt to `splits` units. `shared`: V is a part of K (MLA).
    """

    pack: Num
    tile: Tile
    splits: Num = 1
    shared: bool = False

    @property
    def block_q(self) -> int:
        return self.tile.block_q or 1

    @property
    def block_kv(self) -> int:
        return self.tile.block_kv or 1

    def row_tiles(self, shape: Shape) -> Num:
        """Query tiles of the heads of one unit: T rows for each of them, laid end to end."""
        return ceil_div(shape.T * self.pack, self.block_q)

    def count(self, shape: Shape) -> Num:
        """Work units: batch · heads / pack · query tiles · splits that have a key."""
        return shape.batch * (shape.heads // self.pack) * self.row_tiles(shape) * self.filled(visible(shape).S)

    def reads(self, shape: Shape) -> Num:
        """How often a cached key is read: once for each query tile of the heads that share it."""
        return shape.group // self.pack * self.row_tiles(shape)

    def chunk(self, keys: Num) -> Num:
        """Keys of one split: whole blocks as long as there is a block for each split."""
        blocks = ceil_div(keys, self.block_kv)
        whole = minimum(ceil_div(blocks, self.splits) * self.block_kv, keys)
        return where(self.splits <= blocks, whole, ceil_div(keys, self.splits))

    def filled(self, keys: Num) -> Num:
        """Splits that have a key: whole blocks can leave the last ones without (15 of 64 blocks: 13 of 5)."""
        return ceil_div(keys, self.chunk(keys))

    def loads(self, shape: Shape) -> tuple[Num, Num]:
        """Query rows and keys that the units of `pack` query heads load, over row tiles and splits.

        A tile loads the blocks that some row of it sees and, in each split with such a block, its rows.
        A split whose chunk is empty, or hidden from all of its rows, loads nothing (it writes zeros).
        """
        keys = visible(shape).S
        chunk = self.chunk(keys)
        width = minimum(self.block_kv, chunk)
        rows, position = shape.T * self.pack, keys - shape.T
        row_loads: Num = 0
        key_loads: Num = 0
        row = 0
        while not everywhere(row >= rows):
            first = position + row // self.pack
            last = position + minimum((row + self.block_q - 1) // self.pack, shape.T - 1)
            start = maximum(first - shape.behind, 0)
            end = minimum(last + 1 + shape.ahead, keys)
            height = minimum(rows - row, self.block_q)
            row_loads = row_loads + where(row < rows, height * (ceil_div(end, chunk) - start // chunk), 0)
            span = minimum(ceil_div(end, width) * width, keys) - start // width * width
            key_loads = key_loads + where(row < rows, span, 0)
            row += self.block_q
        return row_loads, key_loads

    def key_blocks(self, shape: Shape) -> Num:
        """Blocks of keys that the query tiles of one unit's heads run, over all splits.

        A tile runs the blocks between its first row's first key and its last row's last key; a split
        with any key runs at least one.
        """
        keys = visible(shape).S
        splits = ceil_div(keys, self.chunk(keys))
        rows, position = shape.T * self.pack, shape.S - shape.T
        total: Num = 0
        row = 0
        while not everywhere(row >= rows):
            first = position + row // self.pack
            last = position + minimum((row + self.block_q - 1) // self.pack, shape.T - 1)
            start = maximum(first - shape.behind, 0)
            end = minimum(last + 1 + shape.ahead, shape.S)
            blocks = ceil_div(end, self.block_kv) - start // self.block_kv
            total = total + where(row < rows, maximum(blocks, splits), 0)
            row += self.block_q
        return total

    def scores(self, shape: Shape) -> Num:
        """Scores that the matrix pipe executes, over batch and heads: whole tiles, padding included.

        fp32 runs on the vector pipe, row by row, so there only the keys come in whole blocks.
        """
        height = self.block_q
        if matrix_pipe(shape.dtype) == "vector":
            height = ceil_div(shape.T * self.pack, self.row_tiles(shape))
        return shape.batch * (shape.heads // self.pack) * height * self.block_kv * self.key_blocks(shape)


def one(size: Num) -> int:
    """The value of a head dim, which chooses the tile. Raises MixedTiles for an array of several."""
    values = tuple(distinct(size))
    if len(values) > 1:
        raise MixedTiles(f"decode kernels take a tile for each head dim ({values}); evaluate them one by one")
    return int(values[0])


def key_tile(shape: Shape, limits: Limits, *, block_q: int, most: int, shared: bool = False) -> Tile:
    """A tile of `block_q` query rows and at most `most` keys, halved until it fits shared memory.

    It stages one block of K and one of V (`shared`: of K alone, which holds V) beside its queries, as
    FlashAttention-2 does, with its 128 threads of 255 registers.
    """

    d = one(shape.d)

    def smem(block_kv: int) -> int:
        return int(ceil_div(block_q * d * BITS[shape.dtype], 8) + staged(shape, block_kv, shared))

    fitting = [size for size in KEY_BLOCKS if size <= most and smem(size) <= limits.smem_per_block]
    block_kv = max(fitting, default=KEY_BLOCKS[0])
    return Tile(threads=128, smem=smem(block_kv), registers=255, block_q=block_q, block_kv=block_kv)


def staged(shape: Shape, block_kv: Num, shared: bool) -> Num:
    """Bytes of one block of K and one of V: what a thread block can have on its way at once."""
    columns = one(shape.d) + (0 if shared else one(shape.dv))
    return block_kv * columns * BITS[shape.kv_dtype] // 8


def attention(
    name: str,
    shape: Shape,
    units: Units,
    *,
    cache: tuple[Tensor, ...] | None = None,
    extra: tuple[Access, ...] = (),
    auto: bool = False,
) -> Kernel:
    """One decode kernel: its units read their keys, the first from HBM and the others from L2.

    With one split it writes O, with more a partial O in fp32 and a log-sum-exp per row and split; a split
    without a key writes them too (zeros, as FlashAttention-2 does) and counts as no work unit.
    `cache` is what it reads (K and V of the visible keys unless given), `extra` further accesses; `auto`
    tells the expected time that a library would choose the splits.
    """
    cache = cached(visible(shape)) if cache is None else cache
    t = tensors(shape)
    keys, splits = visible(shape).S, units.splits
    chunk = units.chunk(keys)
    row_loads, key_loads = units.loads(shape)
    again = shape.group // units.pack * key_loads - keys
    q = replace(t.Q, elements=shape.batch * (shape.heads // units.pack) * shape.d)
    per_key = [replace(a, elements=a.elements // keys) for a in cache]
    ledger = (
        t.Q.read(),
        *(a.read() for a in cache),
        q.read(row_loads - shape.T * units.pack, "l2", "every further split with keys reads its rows again"),
        *(a.read(again, "l2", "keys that a group's further query tiles load") for a in per_key),
        *extra,
        *((t.O.write(),) if everywhere(splits == 1) else (a.write() for a in partials(shape, splits))),
    )
    return Kernel(
        name,
        (*products(shape, units.scores(shape)), *_unpack(shape, per_key, keys + again)),
        moved(ledger),
        grid=units.count(shape),
        tile=units.tile,
        own_sms=True,
        in_flight=staged(shape, minimum(units.block_kv, chunk), units.shared),
        family="split",
        sizes={"shape": shape, "splits": units.filled(keys), "auto": auto, "chunk": chunk},
    )


def moved(ledger: Iterable[Access]) -> tuple[Access, ...]:
    """The lines of a ledger that move anything."""
    return tuple(line for line in ledger if not everywhere(line.elements == 0))


def products(shape: Shape, scores: Num) -> tuple[Work, ...]:
    """Both products and the softmax of attention: useful for the pairs, executed for `scores`."""
    return (
        product(2 * shape.pairs * shape.d, "2·pairs·d (Q Kᵀ)", shape.dtype, 2 * scores * shape.d),
        product(2 * shape.pairs * shape.dv, "2·pairs·dv (P V)", shape.dtype, 2 * scores * shape.dv),
        *softmax_work(shape.pairs, scores, "pairs"),
    )


def _unpack(shape: Shape, cache: Iterable[Tensor], reads: Num) -> tuple[Work, ...]:
    """What turns narrow cached numbers into the dtype of the product, each time that they are read."""
    if BITS[shape.kv_dtype] >= BITS[shape.dtype]:
        return ()
    numbers = sum((a.elements for a in cache if a.dtype == shape.kv_dtype), 0)
    each = 2 if shape.kv_dtype in SCALED else 1
    steps = "2 (scale, add zero)" if shape.kv_dtype in SCALED else "1 (convert)"
    why = f"{steps} · cached numbers read: no useful FLOP, only executed"
    return (Work("vector", 0, why, executed=each * numbers * reads),)


def partials(shape: Shape, splits: Num) -> tuple[Tensor, Tensor]:
    """What every split leaves for `combine`: an unfinished O and a log-sum-exp for each of its rows."""
    rows = splits * shape.batch * shape.heads * shape.T
    return (
        Tensor("O_partial", rows * shape.dv, "fp32", "splits·batch·heads·T·dv"),
        Tensor("L_partial", rows, "fp32", "splits·batch·heads·T"),
    )


def combine(shape: Shape, splits: Num, auto: bool = False) -> tuple[Kernel, ...]:
    """The second kernel of Flash-Decoding: each row's partial outputs, weighted by their log-sum-exp.

    Its blocks of 128 threads take 4 rows at dv = 128 (FlashAttention-2, kBlockM: 512 numbers at a
    time, at least 4 and at most 16 rows). It adds no useful FLOP: splitting asks for it, not attention.
    There is none with one split.
    """
    if everywhere(splits == 1):
        return ()
    rows = shape.batch * shape.heads * shape.T
    weighed = splits * rows
    at_once = where(shape.dv % 128 == 0, 4, where(shape.dv % 64 == 0, 8, 16))
    why = "splits·rows·(2 dv (scale, add) + 3 (max, subtract, add)): executed only"
    kernel = Kernel(
        "combine",
        (
            Work("vector", 0, why, executed=weighed * (2 * shape.dv + 3)),
            Work("exp", 0, "splits·rows (exponential): executed only", executed=weighed),
        ),
        (*(a.read() for a in partials(shape, splits)), tensors(shape).O.write()),
        grid=ceil_div(rows, at_once),
        tile=Tile(threads=128),
        family="combine",
        sizes={"shape": shape, "splits": splits, "auto": auto},
    )
    return (kernel,)


def launches(shape: Shape, build: Callable[[Shape], tuple[Kernel, ...]]) -> tuple[Kernel, ...]:
    """The kernels of a batch: one launch of each name, whose units are those of all its sequences.

    No mechanism of the expected time knows unlike lengths, so such a launch is expected by its roofs. It
    lasts at least as long as any of its sequences `alone`, on the SMs that have a block of it.
    """
    if shape.lengths is None:
        return build(shape)
    if len(set(shape.lengths)) == 1:
        return build(replace(shape, lengths=None))
    found: dict[str, list[Kernel]] = {}
    for one in shape.sequences:
        for kernel in build(one):
            found.setdefault(kernel.name, []).append(kernel)
    return tuple(_merged(kernels) for kernels in found.values())


def _merged(kernels: list[Kernel]) -> Kernel:
    grids = [kernel.grid for kernel in kernels if kernel.grid is not None]
    flights = [kernel.in_flight for kernel in kernels if kernel.in_flight is not None]
    works: dict[object, Work] = {}
    for work in (work for kernel in kernels for work in kernel.work):
        kind = (work.pipe, work.dtype, work.why)
        total = works.get(kind, replace(work, ops=0, executed=0))
        works[kind] = replace(total, ops=total.ops + work.ops, executed=total.run + work.run)
    lines: dict[object, Access] = {}
    for line in (line for kernel in kernels for line in kernel.accesses):
        place = (line.tensor, line.tier, line.mode, line.dtype, line.why)
        before = lines[place].elements if place in lines else 0
        lines[place] = replace(line, elements=before + line.elements)
    return replace(
        kernels[0],
        work=tuple(replace(work, why=f"sum over the sequences: {work.why}") for work in works.values()),
        accesses=tuple(replace(a, why=f"sum over the sequences: {a.why}") for a in lines.values()),
        grid=sum(grids) if grids else None,
        in_flight=max(flights) if flights else None,
        family=None,
        sizes={"alone": tuple(kernels)},
    )
