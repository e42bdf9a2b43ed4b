"""Figures on prefill attention that practitioners published, recomputed from first principles.

Each test names its thread or page. Where the published figure is wrong the test holds the right one, and
says what the error was.
"""

from __future__ import annotations

from typing import Any

import pytest
from conftest import report

from roofcalc.core import Report, Shape


def products(got: Report) -> Any:
    """Useful FLOP of the matrix products of all launches."""
    return sum(w.ops * k.launches for k in got.kernels for w in k.work if w.pipe == "tensor")


def run_products(got: Report) -> Any:
    return sum(w.run * k.launches for k in got.kernels for w in k.work if w.pipe == "tensor")


def test_exp_and_tensor_pipe_take_equal_time_in_fp8_at_d_128() -> None:
    # Dao-AILab/flash-attention#1160: 4·128 = 512 FLOP for each exp, 8192 / 16 = 512 fp8 FLOP a clock for each exp
    roofs = report("flash3", T=4096, dtype="fp8").kernels[0].roofs
    assert roofs["exp"] / roofs["tensor"] == pytest.approx(1.0, rel=1e-4)
    # bf16, d = 128: (4096 / 16) / (4·128) = 0.5
    roofs = report("flash3", T=4096).kernels[0].roofs
    assert roofs["exp"] / roofs["tensor"] == pytest.approx(0.5, rel=1e-4)


def test_the_division_is_once_a_row_and_not_once_a_score() -> None:
    # the same thread charged it to every score; 2048 rows: each 128 products with 1/l and two operations more
    work = report("flash3", T=2048, heads=1).kernels[0].work
    assert [w.run for w in work if "division" in w.why] == [2048 * 130]


def test_fa3_on_an_h20_computes_diagonal_tiles_whole() -> None:
    # Dao-AILab/flash-attention#1310: B 2, 16 heads, T = 2048, d = 128, causal; its time is 0.585 of the full one's
    sizes: dict[str, Any] = {"T": 2048, "batch": 2, "heads": 16}
    got = report("flash3", causal=True, **sizes)
    half = 4 * 2 * 16 * 2048 * 2048 * 128 // 2
    assert half == 34_359_738_368
    assert products(got) == 34_376_515_584  # T (T + 1) / 2 pairs
    assert run_products(got) / half == 1.0625  # (16·17/2) / (16·16/2), tiles of 128 x 128
    assert products(got) / 0.319e-3 == pytest.approx(107.7e12, rel=1e-3)


def test_fa2_on_an_a100_reaches_72_percent_full_and_50_causal() -> None:
    # facebookresearch/xformers#924: B 8, 16 heads, T = 2048, d = 128: 1217.5 and 879.0 us of 312 TFLOP/s
    sizes: dict[str, Any] = {"T": 2048, "batch": 8, "heads": 16, "dtype": "fp16", "gpu": "a100"}
    full, causal = (report("flash2", causal=c, **sizes) for c in (False, True))
    assert products(full) == 274_877_906_944
    assert full.kernels[0].roofs["tensor"] / 1217.5e-6 == pytest.approx(0.7237, rel=1e-3)
    # half the square; the exact count is 2049 / 2048 of it
    assert products(causal) / 879.0e-6 / 312e12 == pytest.approx(0.5013 * 2049 / 2048, rel=1e-3)


def test_a_b200_s_percentage_is_of_the_peak_that_the_report_prints() -> None:
    # Dao-AILab/flash-attention#2605 prints shares of 2500 and of 2250 TFLOP/s in one thread: B 4, 16 heads, T = 8192
    got = report("ideal", "b200", T=8192, batch=4, heads=16)
    assert products(got) == 2_199_023_255_552
    assert got.total.bytes == 536_870_912
    assert got.peaks["tensor"] == 2250e12
    assert products(got) / 1.71e-3 / got.peaks["tensor"] == pytest.approx(0.573, rel=5e-3)


def test_a_window_clamps_pairs_and_key_reads() -> None:
    # ROCm/aiter#5662: 2598 TFLOP/s reported with the full triangle, above any bf16 peak; T = 32,768, window 1024
    assert Shape.of(T=32_768, heads=1, causal=True).pairs == 536_887_296
    windowed = Shape.of(T=32_768, heads=1, causal=True, window=1024)
    assert windowed.pairs == 33_030_656
    assert 2598 / (536_887_296 / windowed.pairs) == pytest.approx(159.8, rel=1e-3)
    sizes: dict[str, Any] = {"T": 32_768, "heads": 32, "kv_heads": 16, "d": 256, "causal": True}
    ledgers = [report("flash3", window=w, **sizes).kernels[0].ledger for w in (None, 1024)]
    full, clamped = (sum(a.bytes for a in ledger if a.tensor in "KV") for ledger in ledgers)
    # 256 query blocks of 128 rows. Full: 80-key tiles up to the diagonal, half of 256·32,768 keys; window 1024:
    # 64-key tiles, 1023 + 128 keys and a tile's edge
    assert full / (32 * 2 * 256 * 2) == pytest.approx(256 * 257 / 2 * 128, rel=0.01)
    assert clamped / (32 * 2 * 256 * 2) == pytest.approx(256 * (1023 + 128), rel=0.06)


def test_the_ridge_of_a_tensor_kernel_is_the_tensor_pipe_s() -> None:
    # Dao-AILab/flash-attention#1913: a profiler drew FlashAttention-2 under an fp32 roof with its ridge at about 10
    assert report("flash2", "a100", T=4096).kernels[0].ridge == pytest.approx(153, rel=1e-3)
    peaks = report("flash2", "a100", T=4096).peaks
    assert peaks["vector"] / peaks["hbm"] == pytest.approx(9.564, rel=1e-3)


def test_the_forward_pass_of_gpt2_medium_is_275_gflop() -> None:
    # Dao-AILab/flash-attention#741: the paper prints 66.6 GFLOP forward and backward, 12.4 x low; 3 x 274.9 = 824.6
    got = report("flash1", "a100", T=1024, batch=64, heads=16, d=64)
    assert products(got) / 1e9 == pytest.approx(274.9, rel=1e-3)
    assert 3 * products(got) / 66.6e9 == pytest.approx(12.38, rel=1e-3)


def test_the_same_shape_is_memory_bound_naive_and_compute_bound_fused() -> None:
    # baseten.co, LLM inference guide: N = 4096, d = 128, fp16, 3 FLOP a score: (4N²d + 3N²) / (8N² + 8Nd) = 62.4
    n = 4096
    naive = report("naive", "a100", T=n, heads=1, dtype="fp16")
    assert naive.total.bytes == 8 * n * n + 8 * n * 128
    assert (products(naive) + 3 * n * n) / naive.total.bytes == pytest.approx(62.42, rel=1e-4)
    fused = report("ideal", "a100", T=n, heads=1, dtype="fp16")
    assert products(fused) / fused.total.bytes == 2048  # N / 2
    assert report("flash2", "a100", T=n, heads=1, dtype="fp16").kernels[0].bound == "compute"
    assert {k.bound for k in naive.kernels} == {"memory"}


@pytest.mark.parametrize("variant", ["flash2", "flash3", "ideal"])
def test_a_fused_kernel_stores_t_d_numbers_once(variant: str) -> None:
    # feifeibear/LLMRoofline#2: LLM-Viewer charges a T x T output, stored twice: 536,870,912 B
    ledger = report(variant, T=2048, dtype="fp16").kernels[0].ledger
    stored = sum(a.bytes for a in ledger if a.mode == "write" and a.tensor != "L")
    assert stored == 16_777_216
    assert 2 * 2048 * 2048 * 32 * 2 / stored == 32


@pytest.mark.parametrize("variant", ["flash2", "flash3", "ideal"])
def test_fused_bytes_are_linear_in_the_sequence(variant: str) -> None:
    one, many = (report(variant, T=t).total.bytes for t in (2048, 16_384))
    assert many == 8 * one


def test_a_window_is_not_half_a_window_of_keys() -> None:
    # NVIDIA/Megatron-LM#3280: T = 2048, window 512: 448.1 keys a query, not 1024 / 2 nor 512 / 2
    full, windowed = (Shape.of(T=2048, heads=1, causal=True, window=w).pairs for w in (None, 512))
    assert windowed / 2048 == pytest.approx(448.1, abs=0.05)
    assert full / windowed == pytest.approx(2.286, abs=5e-4)
    assert windowed / 2048 / 256 == pytest.approx(1.75, abs=5e-3)
    # chunks of 256: 128.5 keys a query, 7.97 x fewer than 1024.5
    assert full / 2048 / (Shape.of(T=256, heads=1, causal=True).pairs / 256) == pytest.approx(7.973, abs=5e-4)


@pytest.mark.parametrize("variant", ["naive", "ideal", "flash2", "flash3", "chunked"])
def test_a_causal_rectangle_counts_its_exact_pairs(variant: str) -> None:
    # facebookresearch/xformers#1402: T = 4, S = 10, d = 8, dv = 16: 7 + 8 + 9 + 10 = 34 pairs, 2·34·24 FLOP; the fixed
    # formula of the thread says 1536, the old one 1920
    assert products(report(variant, T=4, S=10, d=8, dv=16, heads=1, causal=True)) == 1632


def test_chunked_prefill_loses_only_a_small_triangle() -> None:
    # ROCm/triton#742: T = 128, S = 4096: 516,160 pairs; halving the rectangle gives 0.508 of them
    pairs = Shape.of(T=128, S=4096, heads=1, causal=True).pairs
    assert pairs == 516_160
    assert 128 * 4096 / 2 / pairs == pytest.approx(0.5079, rel=1e-4)
    # flash3's 128 x 128 tiles: the one query block runs all 32 columns
    got = report("flash3", T=128, S=4096, heads=1, causal=True)
    assert run_products(got) == 4 * 32 * 128 * 128 * 128


def test_floors_of_fa3_at_d_128() -> None:
    # meta-pytorch/tritonbench#1254: B 4, 48 heads, T = 8192, bf16, H100: 6.668 ms of tensor pipe, 3.334 ms of exp
    got = report("ideal", T=8192, batch=4, heads=48).kernels[0].roofs
    assert got["tensor"] == pytest.approx(6.668e-3, rel=1e-4)
    assert got["exp"] == pytest.approx(3.334e-3, rel=1e-4)
    flash = report("flash3", T=8192, batch=4, heads=48)
    assert products(flash) == 6_597_069_766_656
    # tiles of 176 keys do not divide 8192: 47 of them are 8272 keys, 1 % more
    for pipe in ("tensor", "exp"):
        assert flash.kernels[0].roofs[pipe] == pytest.approx(got[pipe] * 8272 / 8192, rel=1e-9)
    assert products(flash) / 638.572e12 == pytest.approx(10.33e-3, rel=1e-3)
    assert flash.total.time < 10.33e-3


def test_attention_flops_of_llama_2_7b_in_training() -> None:
    # AI-Hypercomputer/maxtext#1988: T = 8192, batch 4: 12·L·h·T²·B = 422.212 TFLOP, a third of it
    # forward; the causal half is 211.106
    sizes: dict[str, Any] = {"T": 8192, "batch": 4, "heads": 32, "layers": 32}
    assert 3 * products(report("naive", **sizes)) / 1e12 == pytest.approx(422.212, rel=1e-5)
    exact = 211.106 * 8193 / 8192
    assert 3 * products(report("flash3", causal=True, **sizes)) / 1e12 == pytest.approx(exact, rel=1e-5)


def test_causal_attention_of_a_70b_prefill() -> None:
    # a public note on MFU, Llama-3.3-70B: 80 layers, 64 heads, T = 2083: 5.69 TFLOP; its own count took the square
    got = report("flash3", T=2083, heads=64, kv_heads=8, layers=80, causal=True)
    assert products(got) == 80 * 4 * 64 * 128 * 2_170_486  # 2083·2084 / 2
    assert products(got) / 1e12 == pytest.approx(5.69, rel=1e-3)
