"""Tiles of fused attention: how many a mask leaves, which the libraries ship, whether one fits a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from roofcalc.core import BITS, Limits, RoofcalcError, Shape, Tile
from roofcalc.numeric import Num, ceil_div, floor_sum, is_array, maximum, minimum

KIB = 1024
SMALL_SMEM = 100 * KIB
"""Compute capability 8.6 and 8.9 offer a block 99 KiB of shared memory; the libraries tell them apart."""


class TileError(RoofcalcError):
    """A tile that cannot run: too large for the GPU, or none is shipped for the head dim."""


class MixedTiles(TileError):
    """An array of sizes that no single tile serves; its elements have to be evaluated one by one."""


@dataclass(frozen=True)
class Tiling:
    """What m x n tiles make of one head's T x S scores; tiles that the mask empties are skipped.

    `blocks` query blocks of m rows, `tiles` that are executed, `seeing` query blocks with at least one
    tile. `keys` counts the keys that the query blocks load, `rows` the rows that pass by when the keys
    are the outer loop, a block without a tile counted once because its output is still written; the
    padding of the last block and of the last tile is in neither. `begin` is the first key of the first tile:
    no block of keys before it is loaded.
    """

    m: int
    n: int
    blocks: Num
    tiles: Num
    seeing: Num
    keys: Num
    rows: Num
    begin: Num

    @property
    def blind(self) -> Num:
        """Rows of the query blocks without a tile: they come first, and nothing is read for them."""
        return (self.blocks - self.seeing) * self.m

    @property
    def pairs(self) -> Num:
        """Query-key pairs that the tiles execute, padding and masked parts included."""
        return self.tiles * self.m * self.n


def tiling(shape: Shape, m: int, n: int) -> Tiling:
    """The exact tile counts of one head, in closed form; T, S and the window may be arrays.

    Query block k holds rows k m ... min((k + 1) m, T) - 1 and runs ceil(hi / n) - floor(lo / n) tiles: hi is
    one past the last key that its last row sees, lo the first key that its first row sees, both clamped to
    0 ... S, aligned at the bottom right. So do FlashAttention-2 (flash_fwd_kernel.h, n_block_min and
    n_block_max) and FlashAttention-3 (hopper/block.h).
    """
    T, S = shape.T, shape.S
    blocks, columns = ceil_div(T, m), ceil_div(S, n)
    end, begin = S - T + m + shape.ahead, S - T - shape.behind
    blind = minimum(maximum(-end // m + 1, 0), blocks)
    whole = minimum(maximum(ceil_div(S - end, m), blind), blocks)
    inner = floor_sum(whole - blind, n, m, maximum(blind * m + end, 0) + n - 1)
    late = minimum(maximum(ceil_div(-begin, m), 0), blocks)
    skipped = floor_sum(blocks - late, n, m, maximum(late * m + begin, 0))
    tiles = inner + (blocks - whole) * columns - skipped

    # the last column may hold fewer than n keys: it belongs to the blocks that see past its left edge
    edge = (columns - 1) * n
    short = minimum(maximum((edge - end) // m + 1, 0), blocks)
    keys = tiles * n - (columns * n - S) * (blocks - short)

    last = columns - maximum((blocks - 1) * m + begin, 0) // n
    rows = tiles * m - (blocks * m - T) * last + blind * m
    unseen = maximum(begin, 0) // n * n
    return Tiling(m, n, blocks, tiles, blocks - blind, keys, rows, unseen)


@dataclass(frozen=True)
class Block:
    """A tile of a library: m x n scores at the head dims that it computes with (d and dv rounded up)."""

    m: int
    n: int
    d: int
    dv: int


FLASH1_HEADS = (16, 32, 64, 128)
FLASH2_HEADS = (32, 64, 96, 128, 192, 256)
FLASH3_HEADS = (64, 96, 128, 192, 256)

FLASH3_TILES = {64: (192, 192), 96: (192, 144), 128: (128, 176), 192: (128, 112), 256: (128, 80)}
FLASH3_CAUSAL = {**FLASH3_TILES, 64: (192, 128), 128: (128, 128)}
FLASH3_LOCAL = {64: (192, 128), 96: (192, 128), 128: (128, 128), 192: (128, 96), 256: (128, 64)}
FLASH3_FP8 = {64: (192, 160), 96: (192, 128), 128: (128, 224), 192: (128, 160), 256: (128, 128)}


def flash1_tile(head: int, _dv: int, _causal: bool, _local: bool) -> tuple[int, int]:
    """FlashAttention-1's release takes 16 queries at a time: 256 keys a block for d <= 64, else 128.

    fmha_fwd_hdim64.cu and fmha_fwd_hdim128.cu at Dao-AILab/flash-attention v0.2.8.
    """
    return 16, 256 if head <= 64 else 128


def flash2_tile(head: int, dv: int, causal: bool, local: bool, limits: Limits) -> tuple[int, int]:
    """flash_fwd_launch_template.h, without dropout, at Dao-AILab/flash-attention 0251105.

    Compute capability 8.6 and 8.9 take narrower tiles at d = 96 and 128; at d = 256 an 8-warp tile is taken
    where it fits and two of the smaller one do not. A window runs the kernel without the causal switch.
    """
    head = max(head, dv)
    small = limits.smem_per_block <= SMALL_SMEM
    if head <= 64:
        return 128, 128
    if small and head in (96, 128):
        return (64, 64) if causal and not local else (128, 64 if head == 96 else 32)
    if head <= 192:
        return 128, 64
    fits = limits.smem_per_block >= 2 * head * (128 + 2 * 64)
    two_of_the_smaller = limits.smem_per_sm >= 2 * 2 * head * (64 + 2 * 64)
    return (128, 64) if fits and not two_of_the_smaller else (64, 64)


def flash3_tile(head: int, dv: int, causal: bool, local: bool, bits: int) -> tuple[int, int]:
    """hopper/tile_size.h, tile_size_fwd_sm90, without pages, at Dao-AILab/flash-attention 0251105."""
    if bits == 8:
        return (128, 64) if local and head == 256 else FLASH3_FP8[head]
    if local:
        return FLASH3_LOCAL[head]
    if head == 192 and dv <= 128:
        return 128, 128
    return (FLASH3_CAUSAL if causal else FLASH3_TILES)[head]


def distinct(value: Num) -> Iterable[Num]:
    """The values that a number or an array takes."""
    return sorted(set(value.ravel().tolist())) if is_array(value) else (value,)


def choose(
    name: str,
    shape: Shape,
    heads: tuple[int, ...],
    ship: Callable[[int, int, bool, bool], tuple[int, int]],
    block_q: int | None,
    block_kv: int | None,
    largest: float = 256,
) -> Block:
    """The tile that `ship` names for the head dim and the mask, or the sizes that are given.

    Head dims round up to the next of `heads`, above them to a multiple of 64. Raises TileError where no tile
    is shipped (above `largest`) and none is given, MixedTiles where an array needs more than one.
    """
    for option, size in (("--block-q", block_q), ("--block-kv", block_kv)):
        if size is not None and size < 1:
            raise TileError(f"{option} is {size}; it must be at least 1")
    local = False if shape.window is None else shape.window < shape.S
    found: set[Block] = set()
    for d, dv, windowed in product(distinct(shape.d), distinct(shape.dv), distinct(local)):
        head, head_v = _round_up(d, heads), _round_up(dv, heads)
        if block_q is None or block_kv is None:
            if max(head, head_v) > largest:
                raise TileError(
                    f"{name} ships no tile for d = {max(d, dv)}, at most {largest}; give both --block-q and --block-kv"
                )
            m, n = ship(head, head_v, shape.causal, windowed)
            found.add(Block(block_q or m, block_kv or n, head, head_v))
        else:
            found.add(Block(block_q, block_kv, head, head_v))
    if len(found) > 1:
        sizes = ", ".join(sorted(f"{b.m} x {b.n} at d = {b.d}" for b in found))
        raise MixedTiles(f"{name} takes several tiles for these sizes ({sizes}); evaluate them one by one")
    return found.pop()


def _round_up(d: int, heads: tuple[int, ...]) -> int:
    return next((head for head in heads if d <= head), ceil_div(d, 64) * 64)


def smem(block: Block, shape: Shape, *, stages: int, output: bool = False) -> int:
    """Bytes of shared memory: a block of Q, `stages` blocks of K and of V, and one of O where `output`."""
    q = block.m * (block.d + (block.dv if output else 0)) * BITS[shape.dtype]
    kv = block.n * (block.d + block.dv) * BITS[shape.kv_dtype]
    return int(ceil_div(q + stages * kv, 8))


def check_fit(name: str, block: Block, tile: Tile, limits: Limits) -> None:
    """Raise TileError where a tile needs more shared memory than a block may use."""
    if tile.smem > limits.smem_per_block:
        raise TileError(
            f"{name}: the tile {block.m} x {block.n} at d = {block.d} needs {tile.smem / KIB:.4g} KiB of the "
            f"{limits.smem_per_block / KIB:.4g} KiB of shared memory that a block may use; "
            f"choose a smaller --block-q or --block-kv"
        )
