"""The backward pass, against counts made by hand and against what was measured.

"Figure 2" is arXiv:2205.14135, Figure 2 (left): one attention layer of GPT-2 medium, T = 1024, 16 heads of
64, batch 64, forward and backward with mask and dropout, on an A100 40 GB in fp16. U = 1024·1024·64·2 B =
134,217,728 B is one T x d array of all its heads, one T x T array is 16 U.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import report
from hypothesis import given
from hypothesis import strategies as st
from ledgers import kernel_names as names
from ledgers import moved as lines

from roofcalc.compare_passes import matrix_flops, trade
from roofcalc.core import Report

FIGURE_2 = {"gpu": "a100-40gb", "T": 1024, "batch": 64, "heads": 16, "d": 64, "dtype": "fp16"}
CHAIN = {"elementwise": "mask,softmax,dropout"}
U = 134_217_728
ROW = 4 * 1024 * 1024  # one fp32 number for every row of Figure 2's heads
VARIANTS = ("naive", "eager", "flash1", "flash2", "flash3")


def figure_2(variant: str, direction: str = "fwd+bwd") -> Report:
    return report(variant, direction=direction, **FIGURE_2, **(CHAIN if variant == "eager" else {}))


# the kernels of naive and eager


def test_seven_passes_over_the_square() -> None:
    got = report("naive", T=1024, heads=1, d=64, direction="bwd")
    assert names(got) == ["bwd_dv", "bwd_dp", "bwd_ds", "bwd_dq", "bwd_dk"]
    # the reading: read P (dV); write dP; read P, read dP, write dS; read dS (dQ); read dS (dK)
    square, row = 1024 * 1024, 1024 * 64
    assert lines(got.kernels) == {
        ("P", "read"): 2 * square,
        ("dP", "write"): square,
        ("dP", "read"): square,
        ("dS", "write"): square,
        ("dS", "read"): 2 * square,
        ("dO", "read"): 2 * row,
        **{(name, "read"): row for name in "QKV"},
        **{(name, "write"): row for name in ("dQ", "dK", "dV")},
    }


def test_eager_undoes_dropout_before_the_softmax_and_the_scale_after_it() -> None:
    got = report("eager", T=512, elementwise="scale,mask,softmax,dropout", direction="bwd")
    assert names(got) == ["bwd_dv", "bwd_dp", "bwd_dropout", "bwd_ds", "bwd_scale", "bwd_dq", "bwd_dk"]
    assert any("bwd_mask" in note for note in got.notes)
    # 32 heads of 512 x 512 bf16 are 16,777,216 B: dropout reads and writes them and reads a mask half as big
    moved = {row.name: row.bytes for row in got.kernels}
    assert moved["bwd_dropout"] == 16_777_216 * 5 // 2
    assert moved["bwd_scale"] == 16_777_216 * 2


def test_softmax_backward_is_four_operations_a_pair_on_the_vector_pipe() -> None:
    row = report("naive", T=1000, heads=2, causal=True, direction="bwd").kernels[2]
    # P∘dP, its row sum, the difference, times P; 1000·1001/2 pairs a head, the full square executed
    assert row.flops == 4 * 2 * 500_500
    assert row.executed_flops == 4 * 2 * 1_000_000
    assert [work.pipe for work in row.work] == ["vector"]


@pytest.mark.parametrize("name", ["bwd_dv", "bwd_dp", "bwd_dq", "bwd_dk"])
def test_a_product_of_a_grouped_layer_follows_query_heads_in_flops_and_kv_heads_in_bytes(name: str) -> None:
    sizes: dict[str, Any] = {"T": 512, "d": 64, "direction": "bwd"}
    mha, gqa = (
        {row.name: row for row in report("naive", **sizes, **k).kernels}[name] for k in ({}, {"kv_heads": 8})
    )
    assert gqa.flops == mha.flops == 2 * 32 * 512 * 512 * 64
    # of 32 heads, 24 have no K, V, dK or dV of their own; every product reads or writes exactly one of these
    assert mha.bytes - gqa.bytes == 24 * 512 * 64 * 2


def test_the_weights_of_every_layer_are_kept() -> None:
    # the reading: 32 heads, T = 8192, 2 B: 4 GiB a layer
    assert report("naive", T=8192, direction="bwd").memory == 4_294_967_296
    assert report("naive", T=8192, layers=32, direction="fwd+bwd").memory == 32 * 4_294_967_296
    # dropout: the whole P for bwd_ds, the dropped P for bwd_dv, a byte a score of mask
    dropped = report("eager", T=8192, elementwise="scale,softmax,dropout", layers=2, direction="bwd")
    assert dropped.memory == 2 * (4_294_967_296 * 2 + 2_147_483_648)
    # fused: L in fp32 of every layer; of one layer delta and an fp32 dQ
    fused = report("flash2", T=8192, layers=32, direction="bwd")
    assert fused.memory == 32 * (32 * 8192 * 4) + 32 * 8192 * 4 + 32 * 8192 * 128 * 4


# Figure 2


def test_the_standard_implementation_moves_the_bytes_that_were_measured() -> None:
    got = figure_2("eager")
    # forward S written, mask 2, softmax 2, dropout 2.5, P read: 8.5 passes; backward 7 and dropout 2.5
    assert got.total.bytes == 18 * 16 * U + 12 * U + 1024 * 1024 * 2
    assert got.total.bytes == pytest.approx(40.3e9, rel=0.002)  # printed
    assert figure_2("eager", "fwd").total.bytes == 8.5 * 16 * U + 4 * U + 1024 * 1024 * 2


def test_flash1_moves_what_its_algorithms_say() -> None:
    # 1024 keys in 4 blocks of 256. Algorithm 1: K, V; 4 (Q, O written), 3 (O read) = 13 U; l and m written
    # 4 times and read 3 times. Algorithm 4: K, V, dK, dV; 4 (Q, O, dO read, dQ written), 3 (dQ read) = 23 U;
    # l and m read 4 times.
    assert figure_2("flash1", "fwd").total.bytes == 13 * U + 14 * ROW
    assert figure_2("flash1", "bwd").total.bytes == 23 * U + 8 * ROW
    both = figure_2("flash1")
    assert 4.4e9 <= both.total.bytes <= 5.3e9  # printed 4.4 (a counter, which does not see what L2 serves)
    assert any("L2" in note for note in both.notes)


def test_the_flops_follow_from_the_shape_and_not_from_the_print() -> None:
    # Dao-AILab/flash-attention#741: 12·1024²·64·16·64 = 824.6 and 14 ... = 962.1 GFLOP; printed 66.6 and 75.2
    standard, flash = matrix_flops(figure_2("eager")), matrix_flops(figure_2("flash1"))
    assert standard == 824_633_720_832
    assert flash == 962_072_674_304
    assert flash / standard == pytest.approx(14 / 12)
    assert standard / 66.6e9 == pytest.approx(12.38, abs=0.005)


def test_the_measured_times_lie_above_the_roofline() -> None:
    # 41.7 and 7.3 ms; the bytes alone take 40.267/1.555 = 25.9 ms
    assert figure_2("eager").total.time == pytest.approx(40_267_415_552 / 1.555e12)
    assert figure_2("eager").total.time < 41.7e-3
    assert 4.4e9 / 1.555e12 < figure_2("flash1").total.time < 7.3e-3


def test_more_work_and_less_time_in_one_sentence() -> None:
    # 14/12 - 1 = 17 %; 40.267/4.924 = 8.2; flash1: 1.8036 GB/1.555 TB/s = 1.160 ms and 687.2 GFLOP/312 T =
    # 2.203 ms; eager: 40.267 GB/1.555 TB/s
    assert trade(figure_2("eager"), figure_2("flash1")) == (
        "flash1 does 17 % more matrix work than eager (962 GFLOP against 825 GFLOP), moves 8.2 times fewer "
        "bytes (4.92 GB against 40.3 GB) and its roofline is 7.7 times faster (3.36 ms against 25.9 ms)"
    )


def test_the_sentence_of_a_forward_pass() -> None:
    sentence = trade(report("naive", "a100", T=8192), report("ideal", "a100", T=8192))
    assert "ideal does the same matrix work as naive (1.10 TFLOP against 1.10 TFLOP)" in sentence


# conventions of counting


@pytest.mark.parametrize(
    ("variant", "ratio"), [("naive", 2.0), ("flash1", 2.5), ("flash2", 2.5), ("flash3", 2.5)]
)
def test_backward_over_forward(variant: str, ratio: float) -> None:
    # Dao-AILab/flash-attention#1525: five products against two; four with P kept
    sizes: dict[str, Any] = {"T": 8192, "heads": 1, "d": 128, "dtype": "fp16"}
    forward, backward = (matrix_flops(report(variant, direction=p, **sizes)) for p in ("fwd", "bwd"))
    assert forward == 4 * 8192 * 8192 * 128
    assert backward == ratio * forward


@pytest.mark.parametrize(
    ("variant", "causal", "multiplier"), [("naive", False, 12), ("naive", True, 6), ("flash2", True, 7)]
)
def test_three_multipliers_are_all_right(variant: str, causal: bool, multiplier: int) -> None:
    # pytorch/torchtitan#280 (MFU with 6, 7 or 12 heads·d·T a token); causal pairs are T (T + 1) / 2
    got = report(variant, T=2048, heads=4, d=64, causal=causal, direction="fwd+bwd")
    nominal = multiplier * 2048 * 2048 * 64 * 4
    assert matrix_flops(got) == nominal * (1 + causal / 2048)


def test_one_exponential_a_score() -> None:
    main = report("flash2", T=4096, heads=3, direction="bwd").kernels[1]
    assert sum(work.ops for work in main.work if work.pipe == "exp") == 3 * 4096 * 4096


# what was measured


@pytest.mark.parametrize(
    ("variant", "gpu", "sizes", "kernel", "seconds"),
    [
        # arXiv:2307.08691, Figure 6 (b), A100 80 GB, backward, d = 128: 187 TFLOP/s at T = 4096
        ("flash2", "a100", {"T": 4096, "batch": 4, "heads": 16, "dtype": "fp16"}, None, 7.34968e-3),
        # arXiv:2407.08608, Figure 6 (b), H100, d = 128, T = 512: FlashAttention-3, then cuDNN at T = 1024
        ("flash3", "h100", {"T": 512, "batch": 32, "heads": 16, "dtype": "fp16"}, None, 0.543667e-3),
        ("flash3", "h100", {"T": 1024, "batch": 16, "heads": 16, "dtype": "fp16"}, None, 0.84215e-3),
        # an H200, torch 2.11, cuDNN 9.19, 2026-11-29: FlashAttention-2, cuDNN, PyTorch's kernels
        ("flash2", "h200", {"T": 1024, "batch": 16, "heads": 8, "d": 256}, None, 1.53502e-3),
        ("flash3", "h200", {"T": 8192, "kv_heads": 8, "causal": True}, None, 2.71971e-3),
        ("naive", "h200", {"T": 8192}, "bwd_dp", 1.41358e-3),
        ("naive", "h200", {"T": 8192}, "bwd_ds", 5.9252e-3),
        ("naive", "h200", {"T": 8192}, "bwd_dq", 1.11712e-3),
        # Dao-AILab/flash-attention#2280: FlashAttention-4 on a B200, for which flash3 stands in; causal below
        ("flash3", "b200", {"T": 8192, "batch": 4, "heads": 16}, None, 4.043e-3),
        ("flash3", "b200", {"T": 8192, "batch": 4, "heads": 16, "causal": True}, None, 2.274e-3),
    ],
)
def test_measured_times_lie_above_the_roofline(
    variant: str, gpu: str, sizes: dict[str, Any], kernel: str | None, seconds: float
) -> None:
    got = report(variant, gpu, direction="bwd", **sizes)
    time = got.total.time if kernel is None else {row.name: row.time for row in got.kernels}[kernel]
    assert 0.3 * seconds < time < seconds


def test_the_rates_printed_for_a_b200_are_those_of_the_count() -> None:
    # Dao-AILab/flash-attention#2280: 1359.8 TFLOP/s in 4.043 ms
    got = report("flash3", "b200", T=8192, batch=4, heads=16, direction="bwd")
    assert matrix_flops(got) / 4.043e-3 / 1e12 == pytest.approx(1359.8, abs=0.2)


# laws

SIZES = st.fixed_dictionaries(
    {
        "T": st.integers(1, 700),
        "S": st.integers(1, 700),
        "d": st.sampled_from([32, 64, 128]),
        "batch": st.integers(1, 3),
        "kv_heads": st.sampled_from([1, 2, 4]),
        "causal": st.booleans(),
        "window": st.sampled_from([None, 1, 100]),
    }
)


@given(variant=st.sampled_from(VARIANTS), sizes=SIZES)
def test_linear_in_batch_and_heads_and_above_every_floor(variant: str, sizes: dict[str, Any]) -> None:
    group = 2
    one = report(variant, heads=group * sizes["kv_heads"], direction="bwd", **sizes)
    twice = {**sizes, "batch": 2 * sizes["batch"]}
    wide = {**sizes, "kv_heads": 2 * sizes["kv_heads"]}
    for more in (twice, wide):
        two = report(variant, heads=group * more["kv_heads"], direction="bwd", **more)
        assert (two.total.bytes, two.total.flops) == (2 * one.total.bytes, 2 * one.total.flops)
        assert two.total.time == pytest.approx(2 * one.total.time)
    # every gradient needs Q, K, V and dO once and is written once: 2 B each
    rows, keys = (
        group * sizes["batch"] * sizes["kv_heads"] * sizes["T"],
        sizes["batch"] * sizes["kv_heads"] * sizes["S"],
    )
    assert one.total.bytes >= 2 * sizes["d"] * (3 * rows + 4 * keys)
    for row in one.kernels:
        assert all(row.time >= time for time in row.roofs.values() if time is not None)
        assert row.executed_flops >= row.flops
        assert all(line.elements >= 0 for line in row.ledger)


@pytest.mark.parametrize("variant", VARIANTS)
def test_as_many_kv_heads_as_heads_is_multi_head_attention(variant: str) -> None:
    assert report(variant, T=300, heads=8, kv_heads=8, direction="bwd") == report(
        variant, T=300, heads=8, direction="bwd"
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_array_of_lengths_is_as_good_as_one_by_one(variant: str) -> None:
    lengths = [1, 127, 1000, 4096]
    together = report(variant, T=np.array(lengths), causal=True, direction="fwd+bwd").total
    for i, T in enumerate(lengths):
        alone = report(variant, T=T, causal=True, direction="fwd+bwd").total
        assert (together.bytes[i], together.flops[i]) == (alone.bytes, alone.flops)
        assert together.time[i] == pytest.approx(alone.time)
