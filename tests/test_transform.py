"""Fusing neighbours: what stays on chip, and that it never adds. The ways of launching, by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import launches, moved, plan_of

from roofcalc.core import Kernel, Plan, Report, Shape, Tensor, Work
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.launches import by_group, timing
from roofcalc.models import variants
from roofcalc.models.neighbours import neighbours
from roofcalc.transform import FusionError, chains, fuse, fuse_step, savings, warm_step

H100 = load("h100")


def hbm(plan: Plan) -> Any:
    return sum(k.launches * k.bytes_through("hbm") for k in plan.kernels)


def attention(name: str, **sizes: Any) -> Plan:
    options = {"elementwise": sizes.pop("elementwise")} if "elementwise" in sizes else {}
    return variants("attention")[name].plan(Shape.of(**sizes), H100.limits, options)


@pytest.mark.parametrize(
    "sizes", [{"T": 512}, {"T": 300, "S": 700, "kv_heads": 4, "dv": 64}, {"T": 64, "dtype": "fp16"}]
)
def test_naive_attention_fused_whole_moves_what_ideal_moves(sizes: dict[str, Any]) -> None:
    naive, ideal = attention("naive", **sizes), attention("ideal", **sizes)
    one = fuse(naive, ["scores", "softmax", "pv"], "attention")
    assert [(a.tensor, a.mode, a.elements) for a in one.kernels[0].accesses] == [
        (a.tensor, a.mode, a.elements) for a in ideal.kernels[0].accesses
    ]
    assert one.memory == 0
    assert sum(w.ops for w in one.kernels[0].work) == sum(w.ops for k in naive.kernels for w in k.work)


def test_each_fusion_of_the_eager_chain_saves_one_round_trip() -> None:
    # T = 1024, 32 heads, bf16: S is 32·1024² · 2 B = 67,108,864 B, written and read back between neighbours
    plans = chains(attention("eager", T=1024, elementwise="scale,softmax"))
    square = 32 * 1024 * 1024 * 2
    assert [hbm(a) - hbm(b) for a, b in pairwise(plans)] == [2 * square] * 3
    assert [launches(plan) for plan in plans] == [4, 3, 2, 1]
    # S and P are held at first, P alone once the softmax is fused, nothing in the end
    assert [plan.memory for plan in plans] == [2 * square, 2 * square, square, 0]


def test_rmsnorm_into_a_linear_saves_8192_bytes_each_way() -> None:
    # reading: d_model 4096, fp16: the normalised vector is 8 KB, written and read back
    plan = neighbours("rmsnorm-linear", rows=1, width=4096, dtype="fp16", limits=H100.limits)
    one = fuse(plan, ["rmsnorm", "linear"])
    assert [moved(plan, "X", mode=m) - moved(one, "X", mode=m) for m in ("write", "read")] == [8192, 8192]
    assert hbm(plan) - hbm(one) == 16384
    # 3 FLOP an element
    assert plan.kernels[0].work[0].ops == 3 * 4096


@pytest.mark.parametrize(("chain", "tensor"), [("silu-mul", "silu"), ("linear-residual", "Y")])
def test_the_other_chains_keep_what_lies_between_them_on_chip(chain: str, tensor: str) -> None:
    plan = neighbours(chain, rows=5, width=256, dtype="bf16", limits=H100.limits)
    one = fuse(plan, [k.name for k in plan.kernels])
    assert (moved(plan, tensor), moved(one, tensor), moved(one, tensor, mode="write")) == (5 * 256 * 2, 0, 0)
    assert hbm(plan) - hbm(one) == 2 * 5 * 256 * 2


def test_whether_a_fusion_pays() -> None:
    def said(chain: str, rows: int) -> str:
        plan = neighbours(chain, rows=rows, width=4096, dtype="bf16", limits=H100.limits)
        return savings([estimate(p, H100) for p in chains(plan)], H100.memory.hbm.bandwidth)[1].verdict

    # 16 KB of 33.6 MB is 0.05 % of the time; of SiLU and mul two of five passes are saved
    assert said("rmsnorm-linear", 1) == "for the launch, not for the bytes (0.049 % of the time)"
    assert said("silu-mul", 1).startswith("yes: 40 %")
    eager = [estimate(p, H100) for p in chains(attention("eager", T=8192))]
    # the last fusion takes attention to the tensor pipe: 2.56 ms of traffic go, 1.53 ms of time
    assert "40 % of the round trip hides behind compute" in savings(eager, H100.memory.hbm.bandwidth)[-1].verdict


def tensor(name: str) -> Tensor:
    return Tensor(name, 64 * (1 + ord(name) % 3), "bf16", "n")


KERNEL = st.builds(
    lambda reads, write: (tuple(reads), write),
    st.sets(st.sampled_from("abcdef"), min_size=1),
    st.sampled_from("abcdef"),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(KERNEL, min_size=2, max_size=6), st.data())
def test_fusing_never_adds_bytes_or_launches_and_loses_no_result(made: list[Any], data: st.DataObject) -> None:
    kernels = tuple(
        Kernel(f"k{i}", (Work("vector", 1, "one"),), (*(tensor(n).read() for n in reads), tensor(write).write()))
        for i, (reads, write) in enumerate(made)
    )
    plan = Plan("chain", Shape.of(T=1), kernels, "test")
    start = data.draw(st.integers(0, len(kernels) - 2))
    end = data.draw(st.integers(start + 2, len(kernels)))
    one = fuse(plan, [k.name for k in kernels[start:end]])
    assert hbm(one) <= hbm(plan)
    assert launches(one) == launches(plan) - (end - start - 1)
    # read from memory is what a member reads before any of them has made it
    outside = {n for i in range(start, end) for n in made[i][0] if n not in {w for _, w in made[start:i]}}
    assert {a.tensor for a in one.kernels[start].accesses if a.mode == "read"} == outside
    # written to memory is at least what a kernel after them reads before it is made anew
    inside = {w for _, w in made[start:end]}
    needed = {n for i in range(end, len(made)) for n in made[i][0] if n not in {w for _, w in made[end:i]}}
    assert inside & needed <= {a.tensor for a in one.kernels[start].accesses if a.mode == "write"}


def test_kernels_that_are_no_neighbours_or_not_as_many_are_refused() -> None:
    with pytest.raises(
        FusionError, match="no neighbours scores, pv to fuse in naive; its kernels are scores, softmax, pv"
    ):
        fuse(attention("naive", T=64), ["scores", "pv"])
    with pytest.raises(FusionError, match="embedding 1, in_norm 32"):
        fuse(plan_of("llama-3-8b", S=64), ["embedding", "in_norm"])


def test_what_the_next_layer_reads_is_still_written() -> None:
    # two layers of: a reads h, writes x; b reads x, writes h; c reads h, writes y. c alone would let h stay on chip
    h, x, y = (Tensor(name, 64, "bf16", "n") for name in "hxy")
    work = (Work("vector", 1, "one"),)
    a, b, c = (
        Kernel(name, work, (read.read(), write.write()), launches=2)
        for name, read, write in (("a", h, x), ("b", x, h), ("c", h, y))
    )
    one = fuse(Plan("layers", Shape.of(T=1), (a, b, c), "test"), ["b", "c"])
    assert [(line.tensor, line.mode) for line in one.kernels[1].accesses] == [
        ("x", "read"), ("h", "write"), ("y", "write"),
    ]  # fmt: skip


def test_a_step_fused_throughout() -> None:
    plan = plan_of("llama-3-8b", S=1024)
    fused = fuse_step(plan)
    # per layer: norm + QKV + RoPE + append, split, combine, O + add, norm + gate-up + SiLU·mul, down + add
    assert [k.name for k in fused.kernels if k.launches == 32] == [
        "in_norm+qkv+rope_q+rope_k+append", "split", "combine", "o_proj+residual", "mlp_norm+gate_up+silu_mul",
        "down+residual_mlp",
    ]  # fmt: skip
    assert launches(fused) == 6 * 32 + 2
    # what goes: a layer's x twice, q, k and K_new, V_new, o, gate, up, act is read by down: 4096, 4096 + 1024 ...
    saved = 2 * 4096 + 4096 + 1024 + 1024 + 1024 + 4096 + 2 * 14336 + 4096
    assert (hbm(plan) - hbm(fused) - 2 * 2 * 4096) // 32 == 2 * 2 * saved


def test_a_warm_cache_keeps_activations_and_no_weights() -> None:
    plan = plan_of("llama-3-8b", S=1024)
    warm = warm_step(plan, H100.limits.l2)
    # of 15.16 GB the weights, 32 · 4096 B a cached token, the new token's and a row of the table are left
    assert hbm(warm) == 15_009_849_344 + 1025 * 32 * 4096 + 8192
    assert warm_step(plan, 2**40).kernels[2].bytes_through("hbm") == 0


def tiny(number: int) -> Report:
    """`number` dependent kernels on 8 KB, as the measured chain has them."""
    x = Tensor("x", 4096, "bf16", "n")
    kernel = Kernel("add", (Work("vector", 4096, "n"),), (x.read(), x.write()), launches=number, group="elementwise")
    return estimate(Plan("chain", Shape.of(T=1), (kernel,), "test"), load("h200"))


def test_224_tiny_kernels_as_measured_on_an_h200() -> None:
    report = tiny(224)
    # measured: 1.58 ms eager at 7 us a PyTorch operator, 208 us as a graph, 3.5 us of host time to replay it
    slow = load("h200", ["launch.host=7us"])
    eager, graph = timing(report, slow.launch, "eager"), timing(report, slow.launch, "graph")
    assert eager.step == pytest.approx(1.58e-3, rel=0.02)
    assert graph.step == pytest.approx(208e-6, rel=0.1)
    assert (eager.host_bound, graph.host_bound) == (True, False)
    assert (eager.launches, graph.launches) == (224, 1)


def test_the_naive_view_of_224_launches() -> None:
    # reading: 224 · 5 us = 1.12 ms, a quarter of 4.5 ms; by overlap it hides behind the step
    report = estimate(plan_of("llama-3-8b", S=1), H100)
    parts = {part.name: part for part in by_group(report, H100.launch)}
    assert parts["elementwise"].host == pytest.approx(1.12e-3)
    assert parts["elementwise"].host / report.total.time == pytest.approx(0.25, abs=0.01)
    both, added = (timing(report, H100.launch, "eager", overlap) for overlap in ("max", "none"))
    assert both.step == both.device > both.host
    assert added.step == added.host + added.device


def test_a_persistent_kernel_is_launched_once_and_pays_barriers() -> None:
    # 771 kernels: 5 us of host, 771 · 1.1 us of barriers beside the roofline
    report = estimate(plan_of("llama-3-8b", S=1024, fusion="none"), H100)
    one = timing(report, H100.launch, "persistent")
    assert (one.launches, one.host) == (1, 5e-6)
    assert one.device - report.total.time == pytest.approx(771 * 1.1e-6)


def test_eager_pytorch_waits_for_the_host_and_a_graph_does_not() -> None:
    # H200, S = 1024: measured 10 to 15 ms eager, 5.6 ms as a graph; 771 · 5 us = 3.855 ms of host time
    h200 = load("h200")
    report = estimate(plan_of("llama-3-8b", "h200", S=1024, fusion="none"), h200)
    eager, graph = timing(report, h200.launch, "eager"), timing(report, h200.launch, "graph")
    assert eager.host == pytest.approx(3.855e-3)
    assert (eager.host_bound, graph.host_bound) == (True, False)
    assert report.total.time < graph.step < 5.6e-3 < 10.1e-3
    # 9 ms of PyTorch's operators, which the measured wall times need and more
    from_python = timing(report, h200.launch, "eager", issue=9e-3)
    assert (from_python.host, from_python.expected) == (eager.host, 9e-3)
