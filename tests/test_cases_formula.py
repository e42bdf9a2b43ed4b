"""Figures that practitioners printed, with the value that first principles give. The address is in each comment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import report

from roofcalc.compare_passes import matrix_flops
from roofcalc.core import Plan, Row, Shape
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.models.elementwise import residual_add, rmsnorm
from roofcalc.models.linear import linear


def product(m: int, n: int, k: int, dtype: str = "bf16", gpu: str = "h100") -> Row:
    """The report's row of one linear layer."""
    hardware = load(gpu)
    kernel = linear("linear", m=m, n=n, k=k, dtype=dtype, limits=hardware.limits)
    return estimate(Plan("linear", Shape.of(T=1, dtype=dtype), (kernel,), "test"), hardware).kernels[0]


def test_a_multiply_add_is_two_flop() -> None:
    # facebookresearch/fvcore#69: 1024³ = 1,073,741,824 multiply-adds were called FLOPs; there are twice as many
    assert product(1024, 1024, 1024).flops == 2_147_483_648


def test_a_large_product_has_thousands_of_flop_per_byte() -> None:
    # factryze.ai, Tensor Core Throughput: 8192³ in bf16 is 2731 FLOP/B (256 was claimed)
    assert product(8192, 8192, 8192).intensity == pytest.approx(2731, abs=0.5)


def test_both_products_of_attention_count() -> None:
    # pytorch/torchtitan#4366: forward and backward are 12 T d a head and token; 6 counts one product of two
    got = report("naive", T=512, d=64, heads=1, direction="fwd+bwd")
    assert matrix_flops(got) == 12 * 512 * 64 * 512


def test_causal_attention_counted_in_full_lies_above_the_peak() -> None:
    # Dao-AILab/flash-attention#573: 65B (80 layers, hidden 8192), T = 65536 on A800s: 12·80·8192·65536 = 515.4 GFLOP
    # of attention a token, forward and backward; causal is half, and 322 "TFLOP/s" become 230
    sizes = {"T": 65536, "heads": 64, "d": 128, "layers": 80, "direction": "fwd+bwd"}
    full, causal = (matrix_flops(report("naive", **sizes, causal=mask)) / 65536 for mask in (False, True))
    assert full == pytest.approx(515.4e9, rel=1e-4)
    weights = 6 * 65e9
    assert 322 * (weights + causal) / (weights + full) == pytest.approx(230.4, abs=0.1)


def test_a_latent_cache_has_no_second_half_for_values() -> None:
    # post on arXiv:2507.19427: DeepSeek-V3, S = 32768: 61·32768·576·2 B = 2,302,672,896 B and
    # 61·2·128·32768·(576 + 512) = 556,735,135,744 FLOP (5.89e11 was printed, with 576 for both)
    got = report("mla", command="decode", T=1, S=32768, heads=128, layers=61, splits=1)
    lines = [line for row in got.kernels for line in row.ledger if (line.tensor, line.tier) == ("latent", "hbm")]
    assert 61 * sum(line.bytes for line in lines) == 2_302_672_896
    assert matrix_flops(got) == 556_735_135_744


def test_rmsnorm_and_a_fused_residual() -> None:
    # linkedin/Liger-Kernel#1462, H100: 8192 x 4096 bf16 in and out are 134,217,728 B, 40.06 us; one row is 4.891 ns
    hardware = load("h100")

    def one(rows: int, columns: int = 4096) -> Row:
        plan = Plan("rmsnorm", Shape.of(T=1), rmsnorm(rows, columns, "bf16"), "test")
        return estimate(plan, hardware).kernels[0]

    weight = 4096 * 2  # the case leaves the weight vector out
    assert one(8192).bytes - weight == 134_217_728
    assert (one(8192).bytes - weight) / 3.35e12 == pytest.approx(40.06e-6, rel=1e-3)
    assert (one(1).bytes - weight) / 3.35e12 == pytest.approx(4.891e-9, rel=1e-3)
    # x and r in, x and r out, 2048 x 8192: 134,217,728 B; the add alone writes one of them
    added = residual_add(2048, 8192, "bf16")
    assert added.bytes_through("hbm") == 134_217_728 * 3 // 4


def test_a_loop_over_32_mib_measures_l2_and_not_memory() -> None:
    # mli/transformers-benchmarks#4: 4,194,304 fp32 numbers in and out are 32 MiB: on an RTX 4090 (72 MiB of L2) the
    # loop ran at 3.8 times the memory's bandwidth. An L40S has 96 MiB: warm, no byte comes from memory
    hardware = load("l40s")
    moved = residual_add(1, 4_194_304, "fp32")
    loop = replace(moved, accesses=(moved.accesses[0], moved.accesses[-1]))
    assert loop.bytes_through("hbm") == 32 * 2**20
    plan = Plan("copy", Shape.of(T=1, dtype="fp32"), (loop,), "test")
    warm, cold = estimate(plan, hardware, "warm").kernels[0], estimate(plan, hardware).kernels[0]
    assert (cold.bytes, warm.bytes, warm.roof) == (32 * 2**20, 0, "l2")
    assert warm.time < cold.time
