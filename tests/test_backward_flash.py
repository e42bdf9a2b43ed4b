"""The fused backward kernels: their ledger, their tiles, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import report
from ledgers import kernel_names as names
from ledgers import moved as lines

from roofcalc.core import RoofcalcError
from roofcalc.hardware import load
from roofcalc.models.backward_tiles import (
    Staging,
    flash2_bwd_tile,
    flash2_smem,
    flash2_staging,
    flash3_bwd_tile,
    flash3_smem,
    flash3_staging,
    smem_lines,
)
from roofcalc.models.tiles import Block, MixedTiles, TileError


def test_the_lines_of_flash2() -> None:
    # 2 heads, T = 512, d = 64: an H100's tile is 128 x 128, so 4 blocks of keys read Q, dO, L and delta
    got = report("flash2", T=512, heads=2, d=64, direction="bwd")
    assert names(got) == ["bwd_dot", "bwd", "bwd_dq_convert"]
    dot, main, convert = got.kernels
    array, rows = 2 * 512 * 64, 2 * 512
    assert lines((dot,)) == {
        ("dO", "read"): array, ("O", "read"): array, ("delta", "write"): rows, ("dQ_accum", "write"): array,
    }  # fmt: skip
    reads = {"Q": array, "K": array, "V": array, "dO": array, "L": rows, "delta": rows, "dQ_accum": array}
    writes = {"dK": array, "dV": array, "dQ_accum": array}
    assert lines((main,)) == {(n, "read"): x for n, x in reads.items()} | {
        (n, "write"): x for n, x in writes.items()
    }
    assert lines((main,), "l2") == {
        ("Q", "read"): 3 * array, ("dO", "read"): 3 * array, ("dQ_accum", "write"): 3 * array,
        ("L", "read"): 3 * rows, ("delta", "read"): 3 * rows,
    }  # fmt: skip
    assert lines((convert,)) == {("dQ_accum", "read"): array, ("dQ", "write"): array}
    assert {line.dtype for row in got.kernels for line in row.ledger if line.tensor == "dQ_accum"} == {"fp32"}
    assert main.units == 2 * 4
    # P is nowhere but in shared memory
    assert not {"P", "S", "dP", "dS"} & {
        tensor for tensor, _ in lines(got.kernels) | lines(got.kernels, "l2")
    }


def test_grouped_heads_add_up_what_each_wrote() -> None:
    # 8 query heads on 2 KV heads, 256 keys of 64: dK of a head is 16,384 numbers
    two = report("flash2", T=256, heads=8, kv_heads=2, d=64, direction="bwd")
    assert names(two)[3:] == ["bwd_dk_sum", "bwd_dv_sum"]
    assert lines(two.kernels)["dK_partial", "write"] == lines(two.kernels)["dK_partial", "read"] == 8 * 16_384
    assert lines(two.kernels)["dK", "write"] == 2 * 16_384
    three = report("flash3", T=256, heads=8, kv_heads=2, d=64, direction="bwd")
    assert names(three)[3:] == ["bwd_dk_convert", "bwd_dv_convert"]
    # an fp32 sum of a KV head: cleared, then written back once by the first of four adds, three more in L2
    assert lines(three.kernels)["dK_accum", "write"] == 2 * (2 * 16_384)
    assert lines(three.kernels, "l2")["dK_accum", "write"] == 3 * (2 * 16_384)


def test_masked_tiles_are_skipped() -> None:
    # T = 512 in 128 x 128 tiles: 4 + 3 + 2 + 1 of 16 remain; block k of keys reads 4 - k blocks of queries
    got = report("flash2", T=512, heads=1, d=64, causal=True, direction="bwd").kernels[1]
    executed = sum(work.run for work in got.work if work.pipe == "tensor")
    assert executed == 10 * 10 * 128 * 128 * 64
    assert sum(work.ops for work in got.work if work.pipe == "tensor") == 10 * (512 * 513 // 2) * 64
    assert lines((got,))["Q", "read"] + lines((got,), "l2")["Q", "read"] == 10 * 128 * 64


def test_shared_memory_as_flash_attention_4_counts_it() -> None:
    # Colfax, FlashAttention-4 (2026-03-05): 128 x 128 tile, d = 128, one CTA: 3328 cycles at 128 B, 2560 of
    # MMA at 8192 FLOP. In arrays of 32 KiB: Q 2, K 2, V 1, dO 2; dS written and read for dQ, else in tensor
    # memory like P; an fp32 dQ written and read is 4: 13
    moved = smem_lines(Block(128, 128, 128, 128), 1, "bf16", Staging(p_reads=0, ds_reads=1, dq_staged=True))
    assert sum(line.bytes for line in moved) / 128 == 3328
    assert 10 * 128**3 / 8192 == 2560


def test_shared_memory_is_a_roof() -> None:
    # flash2 at d = 64 on an H100, a tile of 128 x 128: Q, K, dO twice and V once 7·16 KiB, P and dS 5·32 KiB
    got = report("flash2", T=1024, heads=4, d=64, direction="bwd").kernels[1]
    assert got.roofs["smem"] == pytest.approx(4 * 64 * (7 * 16_384 + 5 * 32_768) / 30.9e12)


@pytest.mark.parametrize(
    ("gpu", "d", "m", "n", "kib"),
    [
        # csrc/flash_attn/src/flash_bwd_launch_template.h; its thresholds and comments give the KiB
        ("h100", 64, 128, 128, 144), ("h100", 128, 64, 128, 144), ("h100", 256, 64, 64, 176),
        ("a100", 64, 128, 128, 144), ("a100", 128, 64, 128, 144), ("a100", 256, 64, 64, 144),
        ("l40s", 64, 64, 128, None), ("l40s", 128, 64, 64, None), ("l40s", 256, 64, 32, None),
    ],
)  # fmt: skip
def test_tiles_of_flash_attention_2(gpu: str, d: int, m: int, n: int, kib: int | None) -> None:
    limits = load(gpu).limits
    assert flash2_bwd_tile(d, d, False, False, limits) == (m, n)
    block = Block(m, n, d, d)
    needed = flash2_smem(block, flash2_staging(block, limits), limits)
    assert needed <= limits.smem_per_block
    if kib is not None:
        assert needed == kib * 1024 + 4


@pytest.mark.parametrize(
    ("d", "causal", "tile"),
    [
        (64, False, (128, 128)),
        (96, False, (64, 128)),
        (128, False, (80, 128)),
        (128, True, (64, 128)),
        (192, False, (64, 96)),
        (256, True, (64, 80)),
    ],
)
def test_tiles_of_flash_attention_3(d: int, causal: bool, tile: tuple[int, int]) -> None:
    # hopper/flash_bwd_launch_template.h; all fit the 227 KiB of a block
    assert flash3_bwd_tile(d, d, causal, False) == tile
    block = Block(*tile, d, d)
    assert flash3_smem(block, flash3_staging(block)) <= 227 * 1024


def test_given_block_sizes_are_those_of_the_pass_that_runs_alone() -> None:
    alone = report("flash2", T=512, d=64, block_q=64, block_kv=64, direction="bwd").kernels[1]
    assert alone.units == 32 * 8
    both = report("flash2", T=512, d=64, block_q=64, block_kv=64, direction="fwd+bwd")
    assert {row.name: row.units for row in both.kernels}["bwd"] == 32 * 4
    assert any("--pass bwd" in note for note in both.notes)


@pytest.mark.parametrize("variant", ["flash1", "flash2", "flash3"])
def test_input_that_the_fused_kernels_refuse(variant: str) -> None:
    with pytest.raises(RoofcalcError, match=r"--dtype fp8: the backward pass of .* takes fp16 or bf16"):
        report(variant, T=512, dtype="fp8", direction="bwd")
    with pytest.raises(TileError, match="shared memory"):
        report(variant, T=512, block_q=512, block_kv=512, direction="bwd")


def test_an_array_of_unlike_kernels_is_refused() -> None:
    with pytest.raises(MixedTiles, match="one by one"):
        report("flash2", T=512, heads=8, kv_heads=np.array([2, 8]), direction="bwd")
