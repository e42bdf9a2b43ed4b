"""Attention that passes its scores through memory, against values worked out by hand.

"Reading" is the worked example of a Llama-3-8B layer (32 heads, d = 128, T = 8192, bf16) and of a whole
model; times are bytes over 2.039 TB/s (A100) or 3.35 TB/s (H100), FLOP over 312 or 989.4 TFLOP/s.
"""

from __future__ import annotations

from typing import Any

import pytest
from conftest import report
from hypothesis import given
from hypothesis import strategies as st

from roofcalc.core import RoofcalcError, Row

T2 = 8192 * 8192


def by_name(variant: str, **sizes: Any) -> dict[str, Row]:
    return {row.name: row for row in report(variant, **sizes).kernels}


def test_a_llama_layer_on_an_a100_is_three_memory_bound_kernels() -> None:
    got = report("naive", "a100", T=8192)
    # scores: (2·8192·128 + 8192²)·32 heads·2 B = 4,429,185,024 B; softmax: 2·8192²·32·2 B = 8,589,934,592 B
    times = {row.name: row.time for row in got.kernels}
    assert times["scores"] == pytest.approx(4_429_185_024 / 2.039e12)
    assert times == pytest.approx({"scores": 2.1722e-3, "softmax": 4.2128e-3, "pv": 2.1722e-3}, rel=1e-4)
    assert got.total.time == pytest.approx(8.5573e-3, rel=1e-5)
    assert {row.bound for row in got.kernels} == {"memory"}
    assert got.memory == 2 * T2 * 32 * 2


def test_one_kernel_that_moves_only_inputs_and_output_is_compute_bound() -> None:
    got = report("ideal", "a100", T=8192).kernels[0]
    # 4·8192²·128·32 = 1,099,511,627,776 FLOP; 4·8192·128·32·2 B = 268,435,456 B
    assert got.time == pytest.approx(1_099_511_627_776 / 312e12)
    assert got.time == pytest.approx(3.5241e-3, rel=1e-5)
    assert (got.bound, got.roof, got.bytes) == ("compute", "tensor", 268_435_456)
    products = sum(work.ops for work in got.work if work.pipe == "tensor")
    assert products / got.bytes == 4096  # T / b of the reading
    assert got.intensity == 4136  # (4·128 + 5)·8192² / (4·8192·128·2)


def test_two_passes_cost_every_score_twice_and_no_square_traffic() -> None:
    got = report("two-pass", "a100", T=8192).kernels[0]
    assert got.time == pytest.approx(6 * T2 * 128 * 32 / 312e12)
    assert got.time == pytest.approx(5.2861e-3, rel=1e-5)
    assert got.bytes == 5 * 8192 * 128 * 32 * 2  # Q, K twice, V, O


def test_the_same_layer_on_an_h100() -> None:
    got = report("naive", "h100", T=8192)
    assert got.total.time == pytest.approx(5.2084e-3, rel=1e-4)
    assert got.peaks["ridge"] == pytest.approx(295.3, rel=1e-3)
    # the sample in the interface description, to the digit
    first = got.kernels[0]
    assert (first.flops, first.bytes, first.units) == (549_755_813_888, 4_429_185_024, 131_072)
    assert first.intensity == pytest.approx(124.12, abs=0.005)
    assert first.waves == pytest.approx(496.5, abs=0.05)
    assert first.sm_use == pytest.approx(0.999, abs=5e-4)
    assert first.roofs["l2"] == pytest.approx(0.000471, rel=1e-3)
    assert first.roofs["tensor"] == pytest.approx(0.000556, rel=1e-3)
    assert (got.total.flops, got.total.bytes) == (1_110_249_046_016, 17_448_304_640)


def test_a_whole_model_moves_549_gb_of_scores() -> None:
    got = report("naive", "h100", T=8192, layers=32)
    square = sum(
        line.bytes * row.launches for row in got.kernels for line in row.ledger if line.tensor in "SP"
    )
    assert square == 549_755_813_888  # 4 passes · 134,217,728 B · 32 heads · 32 layers
    assert square / 3.35e12 == pytest.approx(0.16411, rel=1e-4)
    assert got.memory == 2 * T2 * 32 * 2  # of one layer: the next one reuses it


@pytest.mark.parametrize(
    ("steps", "k"), [("softmax", 1), ("scale,softmax", 2), ("scale,mask,softmax,dropout", 4)]
)
def test_numbers_moved_follow_the_rule_of_the_reading(steps: str, k: int) -> None:
    got = report("eager", T=1024, d=64, heads=1, elementwise=steps)
    moved = sum(line.elements for row in got.kernels for line in row.ledger if line.tensor not in ("M", "D"))
    assert moved == (2 + 2 * k) * 1024**2 + 4 * 1024 * 64


def test_the_square_is_94_percent_of_the_traffic_at_1024() -> None:
    got = report("naive", T=1024, d=64, heads=1)
    square = sum(line.bytes for row in got.kernels for line in row.ledger if line.tensor in "SP")
    assert square / got.total.bytes == pytest.approx(0.941176, abs=1e-6)


def test_mask_and_dropout_bytes() -> None:
    rows = by_name("eager", T=4096, heads=8, elementwise="mask,softmax,dropout")
    square = 4096 * 4096 * 8
    # S read and written in bf16, the 4096 x 4096 mask once for all heads
    assert rows["mask"].bytes == 4 * square + 2 * 4096 * 4096
    # P read and written in bf16, one byte a score for the mask of dropout
    assert rows["dropout"].bytes == 5 * square
    assert rows["dropout"].flops == 2 * square


def test_a_mask_larger_than_l2_is_read_for_every_head() -> None:
    def mask_bytes(T: int) -> int:
        ledger = by_name("eager", T=T, heads=8, elementwise="mask,softmax")["mask"].ledger
        return sum(line.bytes for line in ledger if line.tensor == "M")

    # an H100 has 50 MiB of L2 = 52,428,800 B: 5120² · 2 B just fits, 5121² · 2 B does not
    assert mask_bytes(5120) == 5120 * 5120 * 2
    assert mask_bytes(5121) == 8 * 5121 * 5121 * 2


def test_softmax_runs_on_the_vector_and_exp_pipes_and_never_at_tensor_speed() -> None:
    row = by_name("naive", T=8192)["softmax"]
    assert row.intensity == 1.25  # 5 FLOP for 2 numbers of 2 B
    assert row.roofs["tensor"] is None
    assert row.roofs["exp"] == pytest.approx(32 * T2 / 3.865e12, rel=1e-3)
    assert row.roofs["vector"] == pytest.approx(4 * 32 * T2 / 66.9e12)


def test_causal_counts_exact_pairs_but_computes_the_square() -> None:
    row = report("naive", T=1024, causal=True).kernels[0]
    assert row.flops == 2 * 128 * 32 * (1024 * 1025 // 2)
    assert row.executed_flops == 2 * 128 * 32 * 1024 * 1024
    assert any("full T x S square" in note for note in report("naive", T=1024, causal=True).notes)


def test_a_row_that_no_longer_fits_shared_memory_is_said() -> None:
    # 128,000 numbers of 2 B are 256,000 B; an H100 block may use 227 KiB = 232,448 B
    assert any("no longer fits" in note for note in report("naive", T=128_000, heads=1).notes)
    assert not any("no longer fits" in note for note in report("naive", T=116_224, heads=1).notes)


# smallest d at which Q Kᵀ leaves the HBM roof: d >= r / (1 - 2 r / T), worked for both ridges in the reading
@pytest.mark.parametrize(("gpu", "d"), [("a100", 159), ("h100", 319)])
def test_the_head_width_at_which_scores_become_compute_bound(gpu: str, d: int) -> None:
    bound = [report("naive", gpu, T=8192, d=width).kernels[0].bound for width in (d - 1, d)]
    assert bound == ["memory", "compute"]


# DRAM bytes (dram__bytes_read.sum + dram__bytes_write.sum) that Nsight Compute counted on an H200, bf16,
# torch 2.11: measured for this project
H200_COUNTERS = [
    ("scores", 4096, 32, 128, 1_115_641_600),
    ("softmax", 4096, 32, 128, 2_129_955_328),
    ("pv", 4096, 32, 128, 1_147_234_560),
    ("scores", 8192, 32, 128, 4_477_180_416),
    ("softmax", 8192, 32, 128, 8_572_667_136),
    ("pv", 8192, 32, 128, 4_469_985_792),
    ("scores", 4096, 64, 64, 2_188_960_256),
    ("softmax", 4096, 64, 64, 4_277_255_680),
    ("pv", 4096, 64, 64, 2_211_502_848),
]


@pytest.mark.parametrize(("kernel", "T", "heads", "d", "counted"), H200_COUNTERS)
def test_the_ledger_is_what_the_counters_of_an_h200_show(
    kernel: str, T: int, heads: int, d: int, counted: int
) -> None:
    row = by_name("naive", gpu="h200", T=T, heads=heads, d=d)[kernel]
    assert row.bytes == pytest.approx(counted, rel=0.05)


def test_gqa_reads_fewer_keys_for_the_same_arithmetic() -> None:
    full, grouped = report("ideal", T=4096), report("ideal", T=4096, kv_heads=8)
    assert grouped.total.flops == full.total.flops
    assert full.total.bytes - grouped.total.bytes == 2 * 24 * 4096 * 128 * 2  # K and V of 24 heads


def test_whole_intensity_of_the_reading() -> None:
    # (4 d + 5) / (4 b) = 64.6 for d = 128, T much larger than d
    assert report("naive", T=1_048_576, heads=1).total.intensity == pytest.approx(517 / 8, rel=1e-3)


def test_a_published_62_flop_per_byte_of_materialised_scores() -> None:
    # baseten guide: (4·4096²·128 + 3·4096²) / (8·4096² + 8·4096·128) = 62.42 with 3 FLOP a softmax element;
    # with the 5 counted here (4·128 + 5)·4096² / the same bytes = 62.67
    got = report("naive", T=4096, heads=1).total
    assert got.bytes == 8 * 4096**2 + 8 * 4096 * 128
    assert got.intensity == pytest.approx(62.67, abs=0.005)


@pytest.mark.parametrize(
    ("steps", "message"),
    [("scale,relu", "no step 'relu'"), ("scale,scale,softmax", "'scale' twice"), ("scale", "no softmax")],
)
def test_a_chain_that_is_none_is_refused(steps: str, message: str) -> None:
    with pytest.raises(RoofcalcError, match=message):
        report("eager", T=64, elementwise=steps)


SIZES = st.fixed_dictionaries(
    {
        "T": st.integers(1, 300),
        "S": st.integers(1, 300),
        "d": st.sampled_from([1, 32, 64, 128, 200]),
        "heads": st.sampled_from([2, 4, 8]),
        "kv_heads": st.sampled_from([1, 2]),
        "causal": st.booleans(),
        "window": st.none() | st.integers(1, 400),
    }
)
NAMES = st.sampled_from(["naive", "eager", "two-pass", "ideal"])


@given(NAMES, SIZES)
def test_every_count_is_linear_in_batch(name: str, sizes: dict[str, int]) -> None:
    once, thrice = report(name, **sizes), report(name, batch=3, **sizes)
    shared = sum(line.bytes for row in once.kernels for line in row.ledger if line.tensor == "M")
    assert thrice.total.flops == 3 * once.total.flops
    assert thrice.total.executed_flops == 3 * once.total.executed_flops
    assert thrice.total.bytes - shared == 3 * (once.total.bytes - shared)


@given(NAMES, SIZES)
def test_no_time_lies_below_a_roof_and_no_bytes_below_the_compulsory(
    name: str, sizes: dict[str, int]
) -> None:
    got = report(name, **sizes)
    for row in got.kernels:
        assert row.time >= max(time for time in row.roofs.values() if time is not None)
    assert got.total.bytes >= report("ideal", **sizes).total.bytes


@given(NAMES, SIZES)
def test_a_window_as_wide_as_the_keys_changes_nothing(name: str, sizes: dict[str, int]) -> None:
    wide = report(name, **{**sizes, "window": sizes["S"] + sizes["T"]})
    none = report(name, **{**sizes, "window": None})
    assert (wide.total.flops, wide.total.bytes) == (none.total.flops, none.total.bytes)
