"""Tiles of the fused backward kernels, what they hold in shared memory and what they move through it."""

from __future__ import annotations

from dataclasses import dataclass

from roofcalc.core import Access, Limits, Tensor
from roofcalc.models.tiles import KIB, SMALL_SMEM, Block
from roofcalc.numeric import Num

FLASH1_WARPS = 8
"""Warps of FlashAttention-1's backward kernel: each has its own fp32 part of a dQ tile in shared memory."""


@dataclass(frozen=True)
class Staging:
    """How often a tile's operands are read from shared memory, where they are not taken from registers.

    `v_reads` for dP = dO Vᵀ; `p_reads` of P for dV; `ds_reads` of dS for dQ and for dK. With `dq_staged`
    the fp32 tile of dQ passes through, written by the threads and read by a bulk copy that adds it up.
    """

    v_reads: int = 1
    p_reads: int = 1
    ds_reads: int = 2
    dq_staged: bool = False


def smem_lines(block: Block, tiles: Num, dtype: str, staging: Staging) -> tuple[Access, ...]:
    """The ledger lines of shared memory for `tiles` tiles of m x n scores.

    The rule: every operand of the five products is read once a tile, unless it sits in registers; P and dS
    are written once, where they are read at all. The loads that fill Q, K, V and dO are not counted, nor
    that several warps read the same operand, so this is the least. For FlashAttention-4's 128 x 128 tile
    at d = 128 it gives 13 arrays of 32 KiB, that is 3328 cycles at 128 B each, as its authors count.
    """
    m, n, d, dv = block.m, block.n, block.d, block.dv
    q, k = Tensor("Q", tiles * m * d, dtype, "tiles·m·d"), Tensor("K", tiles * n * d, dtype, "tiles·n·d")
    v, do = (
        Tensor("V", tiles * n * dv, dtype, "tiles·n·dv"),
        Tensor("dO", tiles * m * dv, dtype, "tiles·m·dv"),
    )
    p, ds = (Tensor(name, tiles * m * n, dtype, "tiles·m·n") for name in ("P", "dS"))
    dq = Tensor("dQ_accum", tiles * m * d, "fp32", "tiles·m·d")
    staged = int(staging.dq_staged)
    return (
        q.read(2, "smem", "2 (Q Kᵀ, dK) · tiles·m·d"),
        k.read(2, "smem", "2 (Q Kᵀ, dQ) · tiles·n·d"),
        v.read(staging.v_reads, "smem"),
        do.read(2, "smem", "2 (dP, dV) · tiles·m·dv"),
        p.write(min(1, staging.p_reads), "smem"),
        p.read(staging.p_reads, "smem"),
        ds.write(min(1, staging.ds_reads), "smem"),
        ds.read(staging.ds_reads, "smem", f"{staging.ds_reads} (of dQ and dK) · tiles·m·n"),
        dq.write(staged, "smem"),
        dq.read(staged, "smem"),
    )


def flash1_staging(limits: Limits) -> Staging:
    """dQ takes dS from registers; V stays in registers where shared memory is small."""
    return Staging(v_reads=int(limits.smem_per_block > SMALL_SMEM), p_reads=1, ds_reads=1)


def flash1_smem(block: Block, staging: Staging) -> int:
    """Bytes: Q and dO twice over, K, V unless in registers, each warp's part of dQ, P, dS and row sums.

    fmha_dgrad_fp16_kernel_loop.sm80.cu, smem_size_dq_dk_dv, at Dao-AILab/flash-attention 2712aa4.
    """
    operands = 2 * block.m * (block.d + block.dv) + block.n * (block.d + staging.v_reads * block.dv)
    scores = 2 * block.m * block.n
    return 2 * (operands + scores) + 4 * FLASH1_WARPS * block.m * block.d + 8 * block.m


def flash2_bwd_tile(head: int, dv: int, _causal: bool, _local: bool, limits: Limits) -> tuple[int, int]:
    """flash_bwd_launch_template.h at Dao-AILab/flash-attention 073afd5; 8 warps at every head dim.

    A block may use 144 KiB or more on compute capability 8.0 and 9.0, not on 8.6 and 8.9.
    """
    head, small = max(head, dv), _small(limits)
    if head <= 32:
        return 128, 128
    if head <= 64:
        return (64 if small else 128), 128
    if head <= 128:
        return 64, (64 if small and head > 96 else 128)
    return 64, (32 if small and head > 192 else 64)


def _small(limits: Limits) -> bool:
    return limits.smem_per_block < 144 * KIB


def flash2_staging(block: Block, limits: Limits) -> Staging:
    """V stays in registers at d = 32 and 96, and at every head dim where shared memory is small."""
    held = _small(limits) or max(block.d, block.dv) in (32, 96)
    return Staging(v_reads=0 if held else 1)


def flash2_smem(block: Block, staging: Staging, limits: Limits) -> int:
    """Bytes: two tiles of Q (or one), dO, K, V, P, dS: kernel_traits.h, kSmemSize1colblock."""
    head, scores = max(block.d, block.dv), 2 * block.m * block.n
    single = (head > 192 and limits.smem_per_block < 176 * KIB) or (head > 128 and _small(limits))
    rows = block.m * (block.d * (1 if single else 2) + block.dv)
    k, v = block.n * block.d, block.n * block.dv
    columns = k + v + scores if staging.v_reads else max(k + v, k + scores)
    return 2 * (rows + columns) + 4


FLASH3_BWD = {64: (128, 128), 96: (64, 128), 128: (80, 128), 192: (64, 96), 256: (64, 80)}


def flash3_bwd_tile(head: int, dv: int, causal: bool, local: bool) -> tuple[int, int]:
    """hopper/flash_bwd_launch_template.h, Arch >= 90, no softcap, at Dao-AILab/flash-attention 000786d."""
    head = max(head, dv)
    return (64, 128) if head == 128 and (causal or local) else FLASH3_BWD[head]


def flash3_staging(block: Block) -> Staging:
    """Up to d = 128 dV and dK take P and dS from registers; below d = 256 dQ leaves through shared memory.

    mainloop_bwd_sm90_tma_gmma_ws.hpp, Mma_dKV_is_RS, Mma_dP_is_RS (d = 96) and dQacc_use_TMA.
    """
    head = max(block.d, block.dv)
    scores = (0, 1) if head <= 128 else (1, 2)
    return Staging(int(head != 96), *scores, dq_staged=head < 256)


def flash3_threads(block: Block) -> int:
    """A warpgroup that loads and two that compute, three at d = dv = 192."""
    return 512 if block.dv == 192 else 384


def flash3_smem(block: Block, staging: Staging) -> int:
    """Bytes: two tiles of Q, of dO and dS two up to d = 128, else one, K, V, and P and dQ if staged."""
    deep = 2 if max(block.d, block.dv) <= 128 else 1
    operands = block.m * (2 * block.d + deep * block.dv) + block.n * (block.d + block.dv)
    scores = block.m * block.n * (deep + staging.p_reads)
    statistics = 4 * 4 * -(-block.m // 64) * 64
    return 2 * (operands + scores) + (4 * block.m * block.d if staging.dq_staged else 0) + statistics
