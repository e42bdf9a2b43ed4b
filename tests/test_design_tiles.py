"""Whether a design's tile fits an SM: each number by hand."""

from __future__ import annotations

import pytest
from designs import CHAIN, found, only


def test_shared_memory_and_registers_that_fit() -> None:
    memory = only(CHAIN, "shared memory", kernel="product")
    # 96 of 227 KiB = 42.3 %
    assert (memory.value, memory.forbids) == (98_304, False)
    assert memory.text == "96 KiB of shared memory a block, 42.3 % of the 227 KiB it may have"
    registers = only(CHAIN, "registers", kernel="product")
    # 256 x 128 = 32,768 of 65,536
    assert (registers.value, registers.forbids) == (32_768, False)
    assert "50 % of the 65,536" in registers.text


@pytest.mark.parametrize(
    ("tile", "gpu", "blocks", "limit"),
    [
        # 228 KiB / (96 + 1) = 2, 65,536 / 32,768 = 2
        ("threads: 256, registers: 128, smem: 96 KiB", "h100", 2, "registers and shared memory"),
        # A100: 164 KiB / (96 + 1) = 1
        ("threads: 256, registers: 128, smem: 96 KiB", "a100", 1, "shared memory"),
        # 2048 threads / 512 = 4; 65,536 / (512 x 16) = 8; 228 / (8 + 1) = 25
        ("threads: 512, registers: 16, smem: 8 KiB", "h100", 4, "threads"),
        # 2048 / 32 = 64 by threads, 32 block slots
        ("threads: 32", "h100", 32, "block slots"),
        # 65,536 / (128 x 168) = 3
        ("threads: 128, registers: 168, smem: 8 KiB", "h100", 3, "registers"),
    ],
)
def test_blocks_per_sm_and_what_limits_them(tile: str, gpu: str, blocks: int, limit: str) -> None:
    text = CHAIN.replace("threads: 256, registers: 128, smem: 96 KiB", tile)
    finding = only(text, "blocks per SM", gpu, "product")
    assert finding.value == blocks
    assert f"per SM, limited by {limit}" in finding.text.replace(" (there", ",")
    assert not finding.text.split(" (there")[0].removesuffix(limit).endswith("and ")


@pytest.mark.parametrize(
    ("tile", "gpu", "kind", "part"),
    [
        # 228 KiB is 1 KiB more than a block of an H100 gets; 164 KiB 1 more than one of an A100
        ("threads: 128, smem: 228 KiB", "h100", "shared memory", "1 KiB more than the 227 KiB"),
        ("threads: 128, smem: 164 KiB", "a100", "shared memory", "1 KiB more than the 163 KiB"),
        (
            "threads: 128, registers: 256",
            "h100",
            "registers",
            "256 registers a thread; CUDA gives a thread at",
        ),
        # 512 x 255 = 130,560 > 65,536
        ("threads: 512, registers: 255", "h100", "registers", "= 130,560 registers a block, more than the 65,536"),
        ("threads: 1025, registers: 16", "h100", "threads", "1,025 threads a block; CUDA gives a block at most 1,024"),
    ],
)
def test_a_tile_that_cannot_run_forbids_the_kernel(tile: str, gpu: str, kind: str, part: str) -> None:
    text = CHAIN.replace("threads: 256, registers: 128, smem: 96 KiB", tile)
    finding = only(text, kind, gpu, "product")
    assert finding.forbids
    assert part in finding.text


def test_the_largest_tile_that_runs_forbids_nothing() -> None:
    for tile, gpu in (("smem: 227 KiB", "h100"), ("smem: 163 KiB", "a100"), ("registers: 255", "h100")):
        text = CHAIN.replace("threads: 256, registers: 128, smem: 96 KiB", f"threads: 256, {tile}")
        assert [f for f in found(text, gpu) if f.forbids] == []
