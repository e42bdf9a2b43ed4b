"""Hardware figures: each against the arithmetic of SMs, operations per clock and clocks."""

from __future__ import annotations

import pytest

from roofcalc.hardware import figures, load, names

BUILT_IN = ("a100", "a100-40gb", "a100-pcie", "b200", "h100", "h100-nvl", "h100-pcie", "h200", "l40s")
STATUSES = ("(read)", "(derived)", "(measured)", "(recalled)")


def test_the_built_in_gpus() -> None:
    assert names() == BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_figure_names_its_source_and_how_it_was_got(name: str) -> None:
    found = figures(load(name))
    assert len(found) >= 26
    assert [f.path for f in found if not f.source.endswith(STATUSES)] == []


# FLOP per clock and SM of dense bf16 products: A100 2,048 (Ampere white paper), Hopper 4,096 (1,024 a
# tensor core: FlashAttention-3 and the FLOP/clk of the data sheet's 989.4 at 1830 MHz), Blackwell 8,192
# (Colfax, FlashAttention-4 blog), Ada 1,024 (142 x 1024 x 2.52e9 = 366). tf32 is half of it, fp8 and
# int8 twice. A sparse figure would be off by a factor of 2.
FLOP_PER_CLOCK = {"ampere": 2048, "ada": 1024, "hopper": 4096, "blackwell": 8192}
OF_BF16 = {"bf16": 1.0, "fp16": 1.0, "tf32": 0.5, "fp8": 2.0, "int8": 2.0}
# The L40S's data sheet prints 362.05 where 366.4 is derived, and 733 with sparsity, twice 366.5.
NOT_DERIVABLE = {("l40s", "bf16"), ("l40s", "fp16")}


@pytest.mark.parametrize("name", BUILT_IN)
def test_tensor_peaks_are_dense_and_follow_from_sms_and_clock(name: str) -> None:
    gpu = load(name)
    per_clock = FLOP_PER_CLOCK[gpu.architecture]
    for dtype, peak in gpu.tensor.items():
        derived = gpu.sms * per_clock * OF_BF16[dtype] * gpu.clocks.tensor
        tolerance = 0.015 if (name, dtype) in NOT_DERIVABLE else 0.005
        assert peak == pytest.approx(derived, rel=tolerance), dtype


# 128 fp32 lanes an SM (64 on the A100's), a multiply-add is two FLOP. The B200's 80 would need 2111 MHz,
# above the largest clock that the device reports: not derivable.
@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "b200"])
def test_fp32_peaks_follow_from_sms_and_boost_clock(name: str) -> None:
    gpu = load(name)
    lanes = 64 if gpu.architecture == "ampere" else 128
    assert gpu.vector["fp32"] == pytest.approx(gpu.sms * lanes * 2 * gpu.clocks.fp32, rel=0.006)


@pytest.mark.parametrize("name", BUILT_IN)
def test_exp_and_shared_memory_follow_from_sms_and_tensor_clock(name: str) -> None:
    gpu = load(name)
    # 16 exp (FlashAttention-3, section 3.1) and 128 B per clock and SM.
    assert gpu.exp == pytest.approx(gpu.sms * 16 * gpu.clocks.tensor, rel=0.001)
    assert gpu.memory.smem.bandwidth == pytest.approx(gpu.sms * 128 * gpu.clocks.tensor, rel=0.003)


# 1,024 FLOP per clock and tensor core: 132 x 4096 x 1.83e9 = 989.4e12, 132 x 2048 x 1.83e9 = 494.7e12,
# 108 x 2048 x 1.41e9 = 311.9e12; fp32 132 x 256 x 1.98e9 = 66.9e12. Scaling book and cudnn-frontend#650,
# OLMo-core#614 (a dense 312 halved again), torchtitan#668 (the tf32 peak: 989 is its sparse figure),
# pytorch-lightning#21743 (dense and sparse mixed: the H200 is the H100 SXM, the NVL has 835.5).
@pytest.mark.parametrize(
    ("name", "pipe", "dtype", "tera"),
    [
        ("a100", "tensor", "bf16", 311.9),
        ("h100", "tensor", "bf16", 989.4),
        ("h100", "tensor", "tf32", 494.7),
        ("h100", "tensor", "fp8", 1978.9),
        ("h100", "tensor", "fp32", 66.9),
        ("h100", "vector", "bf16", 66.9),
        ("h100-nvl", "tensor", "bf16", 835.5),
        ("h100-pcie", "tensor", "bf16", 756.5),
        ("h100", "exp", "fp32", 3.865),
        ("a100", "exp", "fp32", 2.436),
    ],
)
def test_rates_of_public_cases(name: str, pipe: str, dtype: str, tera: float) -> None:
    assert load(name).rate(pipe, dtype) == pytest.approx(tera * 1e12, rel=0.0005)  # type: ignore[arg-type]


def test_the_h200_computes_like_the_h100_sxm() -> None:
    h100, h200 = load("h100"), load("h200")
    for field in ("sms", "clocks", "tensor", "vector", "exp", "per_sm"):
        assert getattr(h100, field) == getattr(h200, field)


# Quest#4: a bus of 5120 bits, two transfers a clock: at 1593 MHz 2039.04 GB/s, at 1215 MHz 1555.2.
def test_a100_bandwidths_follow_from_bus_and_memory_clock() -> None:
    assert load("a100").memory.hbm.bandwidth == pytest.approx(2039.04e9, rel=1e-4)
    assert load("a100-40gb").memory.hbm.bandwidth == pytest.approx(1555.2e9, rel=2e-4)
    assert load("a100-pcie").memory.hbm.bandwidth == 1935e9


# By hand: 312 / 2.039 = 153.02; 989.4 / 3.35 = 295.34.
@pytest.mark.parametrize(("name", "ridge"), [("a100", 153.02), ("h100", 295.34)])
def test_ridge_points(name: str, ridge: float) -> None:
    gpu = load(name)
    assert gpu.rate("tensor", "bf16") / gpu.memory.hbm.bandwidth == pytest.approx(ridge, abs=0.005)


def test_on_chip_memory() -> None:
    a100, h100 = load("a100"), load("h100")
    assert a100.sram == 20736 * 1024  # 108 x 192 KiB, FlashAttention's "20 MB of SRAM"
    limits = h100.limits
    assert (limits.sms, limits.smem_per_sm, limits.smem_per_block) == (132, 233472, 232448)
    assert (limits.l2, limits.registers, limits.threads, limits.blocks) == (52428800, 65536, 2048, 32)
    # 5,120 B per clock: x 1.41 GHz = 7.22 TB/s, x 1.83 GHz = 9.37 TB/s, printed as 9.4.
    assert a100.memory.l2.bandwidth == pytest.approx(5120 * 1.41e9, rel=0.001)
    assert h100.memory.l2.bandwidth == pytest.approx(5120 * 1.83e9, rel=0.005)
    # 128 B x 132 x 1.83 GHz = 30.9 TB/s of shared memory over 3.35 TB/s of HBM.
    assert h100.memory.smem.bandwidth / h100.memory.hbm.bandwidth == pytest.approx(9.2, abs=0.05)
    # 571 cycles over 29, both measured on an A100: the walk through HBM takes about 20 times as long.
    assert a100.memory.hbm.latency / a100.memory.smem.latency == pytest.approx(571 / 29, rel=0.01)
