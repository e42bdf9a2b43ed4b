"""Figures on decode steps, launches and matrix products that practitioners published, from first principles.

Each test names its thread or page. Where the published figure is wrong the test holds the right one, and
says what the error was.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from steps import moved, plan_of, report_of, weights_read

from roofcalc.budget import kv_held
from roofcalc.core import Kernel, Plan, Report, Shape, Tensor, Tile, Work
from roofcalc.estimate import estimate, fill
from roofcalc.hardware import load
from roofcalc.hf import Quantisation, load_model
from roofcalc.launches import timing
from roofcalc.models.linear import linear

H100 = load("h100")


def product(gpu: str, m: int, n: int, k: int, dtype: str, **more: Any) -> Report:
    kernel = linear("linear", m=m, n=n, k=k, dtype=dtype, limits=load(gpu).limits, **more)
    return estimate(Plan("linear", Shape.of(T=1, dtype=dtype), (kernel,), "test"), load(gpu))


def idle(number: int, seconds: float) -> Report:
    """`number` kernels that take `seconds` together on an H100 (3.35 TB/s)."""
    x = Tensor("x", round(seconds * 3.35e12 / number), "int8", "n")
    kernel = Kernel("kernel", (Work("vector", 1, "one"),), (x.read(),), launches=number)
    return estimate(Plan("chain", Shape.of(T=1), (kernel,), "test"), H100)


def host(cost: str) -> Any:
    return load("h100", [f"launch.host={cost}"]).launch


def test_llama_2_7b_reads_13_2_gb_and_with_int4_groups_of_32_it_reads_4_13() -> None:
    # gpt-fast README: (6,738,415,616 - 32000·4096) · 2 B = 13.21 GB, 6.481 ms at the A100's 2.039 TB/s
    plan = plan_of("llama-2-7b", "a100", S=1)
    assert weights_read(plan) == 13_214_687_232
    products = [k.time for k in report_of("llama-2-7b", "a100", S=1).kernels if k.group in ("weights", "head")]
    assert sum(products) == pytest.approx(6.481e-3, rel=1e-3)
    # int4-g32: 0.5 + 4/32 B a weight; 0.5 B alone would be 23 % low
    q = Quantisation(method="int4", bits=4, overhead=32 / 32, only_layers=False)
    narrow = plan_of(replace(load_model("llama-2-7b"), quantisation=q), "a100", S=1)
    assert weights_read(narrow) == pytest.approx(4.13e9, rel=1e-3)


def test_llama_3_8b_at_batch_128_is_bound_by_memory() -> None:
    # sgl-project/sglang#1008: 136 tokens of 131,072 B for each of 128 sequences; (15.0098 + 2.282) / 3.35 = 5.162 ms
    plan, report = plan_of("llama-3-8b", S=136, batch=128), report_of("llama-3-8b", S=136, batch=128)
    assert moved(plan, "K", "V") == 128 * 136 * 131_072
    assert weights_read(plan) + moved(plan, "K", "V") == pytest.approx(5.162e-3 * 3.35e12, rel=1e-3)
    assert 5.162e-3 < report.total.time < 11.84e-3  # measured with graphs
    # products alone: 2 · 7.505e9 · 128 FLOP over 989.4 TFLOP/s = 1.942 ms
    assert sum(k.roofs["tensor"] for k in report.kernels if k.group in ("weights", "head") and k.roofs["tensor"]) == (
        pytest.approx(1.942e-3, rel=1e-3)
    )
    assert {k.bound for k in report.kernels} == {"memory"}


def test_counting_the_embedding_table_would_put_a_measured_step_at_94_percent_of_the_bandwidth() -> None:
    # cloudai.pt, CUDA graphs: Llama-3.1-8B on an H100 in 5.1 ms; 15.01 GB is 87.9 % of 3.35 TB/s, 16.06 GB 94 %
    plan = plan_of("llama-3-8b", S=1)
    assert weights_read(plan) / 3.35e12 / 5.1e-3 == pytest.approx(0.8785, abs=5e-4)
    assert (weights_read(plan) + 128256 * 4096 * 2) / 3.35e12 / 5.1e-3 == pytest.approx(0.94, abs=5e-3)


def test_a_70b_caches_320_kib_a_token_and_reads_34_75_gb_on_each_of_four_gpus() -> None:
    # cursor.com/blog/llama-inference: 2·80·8·128·2 = 327,680 B (hidden is 8192, not the 4096 printed there)
    assert kv_held(load_model("llama-3-70b"), 1, "bf16") == 327_680
    # MFU in inference (public note): 34.75 GB and 10.37 ms for a quarter of Llama-3.3-70B
    read = weights_read(plan_of("llama-3-70b", S=1))
    assert read / 4 == pytest.approx(34.75e9, rel=1e-3)
    assert read / 4 / 3.35e12 == pytest.approx(10.37e-3, rel=1e-3)
    # batch 32 at a mean context of 561: 1.471 GB of cache more on each GPU
    assert moved(plan_of("llama-3-70b", S=561, batch=32), "K", "V") / 4 == pytest.approx(1.471e9, rel=1e-3)


def test_a_mixture_is_neither_its_total_nor_free(tmp_path: Path) -> None:
    # AlexsJones/llmfit#474: Qwen3-30B-A3B, 30.5e9 weights of which a token uses 3.3e9; one report
    # asks for all to be counted, another for the active ones: 50 or 460 tokens a second at 512 GB/s and 2.7 bits
    config = {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "vocab_size": 151936,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    model = load_model(str(path))
    table = 151936 * 2048
    one, many = (weights_read(plan_of(model, S=1, batch=batch)) / 2 + table for batch in (1, 4096))
    assert one == pytest.approx(3.3e9, rel=0.02)
    assert many == pytest.approx(30.5e9, rel=0.01)
    assert 512e9 / (one * 2.7 / 8) == pytest.approx(459.7, rel=0.02)
    assert 512e9 / (many * 2.7 / 8) == pytest.approx(49.74, rel=0.01)


def test_a_tied_head_is_read(tmp_path: Path) -> None:
    # Hazy Research, No Bubbles: Llama-3.2-1B, 1,235,814,400 weights with the tied table once, 0.7378 ms on an H100
    config = {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    plan = plan_of(load_model(str(path)), S=1)
    assert weights_read(plan) == 1_235_814_400 * 2
    assert weights_read(plan) / 3.35e12 == pytest.approx(0.7378e-3, rel=1e-3)


def test_a_graph_does_not_make_launches_free() -> None:
    # the same page: 100 kernels with a gap of 1.3 us each are 0.13 ms on the device
    cost = load("h100", ["launch.node=1.3us"]).launch
    one = timing(idle(100, 1e-6), cost, "graph")
    assert one.device == pytest.approx(0.13e-3)


def test_an_eager_step_is_the_larger_of_host_and_device() -> None:
    # gpt-fast: Llama-2-7B on an A100, 39.22 ms eager, 6.48 ms of bytes: a sum would need 32.7 ms of host time
    report = report_of("llama-2-7b", "a100", S=256, fusion="none")
    assert report.total.launches == 771
    cost = load("a100", ["launch.host=50.87us"]).launch  # 39.22 ms / 771
    one = timing(report, cost, "eager")
    assert one.step == one.host == pytest.approx(39.22e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("number", "each", "step", "claimed"), [(280, "20us", 4.63e-3, 5.6e-3), (430, "5us", 3.652e-3, 2.15e-3)]
)
def test_claimed_launch_overheads_against_the_whole_step(number: int, each: str, step: float, claimed: float) -> None:
    # paiml/realizar#36: 280 launches of 20 us are 5.6 ms, no part of the 4.63 ms that the whole step took
    # paiml/trueno#238: 430 of 5 us are 2.15 ms, 58.9 % of 3.652 ms and not the 83.2 % claimed
    one = timing(idle(number, step), host(each), "eager")
    assert one.host == pytest.approx(claimed)
    assert one.step == pytest.approx(max(step, claimed), rel=1e-3)
    if claimed < step:
        assert one.host / one.step == pytest.approx(0.5887, abs=1e-3)


def test_summed_api_time_is_not_latency() -> None:
    # JustVugg/colibri#431: 54 ms of API calls beside a step of 195.7 ms; taking them away changed nothing
    one = timing(idle(1490, 195.7e-3), host("36.24us"), "eager")  # 54 ms / 1490
    assert one.host == pytest.approx(54e-3, rel=1e-3)
    assert one.step == pytest.approx(195.7e-3, rel=1e-3)


def test_launches_that_wait_for_every_kernel_add_up() -> None:
    # turboderp-org/exllamav3#380: 914 launches, 11.69 ms of kernels, 14.76 ms of wall: 3.36 us a launch
    one = timing(idle(914, 11.69e-3), host("3.359us"), "eager", "none")
    assert one.step == pytest.approx(14.76e-3, rel=1e-3)


def test_a_quarter_byte_a_weight_and_tensor_parallel_slices() -> None:
    # hahnyuan/LLM-Viewer#14: k_proj of a 405B on 8 GPUs at 4 bits is 1.049 MB, 313 ns at 3.35 TB/s
    kernel = linear("k", m=1, n=1024 // 8, k=16384, dtype="fp16", weights="int4", limits=H100.limits)
    (w,) = [a for a in kernel.accesses if a.tensor == "W"]
    assert w.bytes == 1_048_576
    assert w.bytes / 3.35e12 == pytest.approx(313e-9, rel=1e-3)


def test_a_product_of_64_rows_on_a_b200() -> None:
    # JAX scaling book, GPUs, quiz 4: 68,681,728 B, 8.585 us at 8 TB/s, intensity 62.53 (not 64)
    row = product("b200", 64, 8192, 4096, "fp16").kernels[0]
    assert row.bytes == 68_681_728
    assert row.bytes / 8e12 == pytest.approx(8.585e-6, rel=1e-3)
    assert row.intensity == pytest.approx(62.53, abs=0.01)
    # M = 512: 15.27 us at 2250 TFLOP/s against 9.961 us of bytes at 8 TB/s; AI = 281 only at M = 314
    row = product("b200", 512, 8192, 4096, "fp16").kernels[0]
    assert row.roofs["tensor"] == pytest.approx(15.27e-6, rel=1e-3)
    assert row.bytes / 8e12 == pytest.approx(9.961e-6, rel=1e-3)
    assert product("b200", 313, 8192, 4096, "fp16").kernels[0].intensity < 281
    assert product("b200", 314, 8192, 4096, "fp16").kernels[0].intensity > 281


def test_sgemm_of_4092() -> None:
    # siboehm's worklog: 2·4092³ FLOP on the CUDA cores; X, W and Y once are 3·4092²·4 B (the log reads C too)
    row = product("h100", 4092, 4092, 4092, "fp32").kernels[0]
    assert row.flops == 137_036_693_376
    assert row.bytes == 267_911_424 * 3 // 4
    assert (row.roofs["tensor"], row.roof) == (None, "vector")


def test_int4_weights_promise_four_times_and_give_two() -> None:
    # inclusionAI/humming#2: 8192 x 8192 at M = 1: fp16 58.4 us measured, int4 27.0 us, whose roof is 10.02 us
    wide, narrow = (product("h100", 1, 8192, 8192, "fp16", weights=w).kernels[0] for w in ("fp16", "int4"))
    assert wide.flops == narrow.flops == 134_217_728
    assert narrow.time == pytest.approx(10.02e-6, rel=2e-3)
    assert wide.time / narrow.time == pytest.approx(4.0, abs=0.01)
    # a floor of one launch brings the ratio towards the 2.165 that was measured
    assert narrow.expected is not None
    assert wide.expected is not None
    assert 2.165 < wide.expected / narrow.expected < 3.8


def test_few_columns_do_one_flop_for_each_byte_and_column() -> None:
    # ggml-org/llama.cpp#15131: 4096 x 14336 in bf16, 117,440,512 B whatever n; TFLOP/s = n · bandwidth
    for n in (1, 6):
        row = product("h100", n, 4096, 14336, "bf16").kernels[0]
        (w,) = [a for a in row.ledger if a.tensor == "W"]
        assert w.bytes == 117_440_512
        assert row.intensity == pytest.approx(n, rel=5e-3)


def test_the_roofs_of_a_persistent_product() -> None:
    # facebookexperimental/triton#1038: M 65536, N = K = 1024: 138.9 us of matrix work, 80.76 us of bytes
    row = product("h100", 65536, 1024, 1024, "bf16").kernels[0]
    assert row.flops == 137_438_953_472
    assert row.roofs["tensor"] == pytest.approx(138.9e-6, rel=1e-3)
    assert row.roofs["hbm"] == pytest.approx(80.76e-6, rel=1e-3)


def test_a_persistent_grid_for_other_sms_leaves_a_third_idle() -> None:
    # thu-ml/SageAttention#379: 170 blocks on the 84 SMs of an RTX 5080: 2.02 waves, three rounds, 67.5 % in use
    limits = replace(H100.limits, sms=84)
    kernel = Kernel("attention", (), (), grid=170, tile=Tile(threads=256, smem=limits.smem_per_block))
    _, waves, use = fill(kernel, limits)
    assert waves == pytest.approx(2.024, abs=1e-3)
    assert use == pytest.approx(0.6746, abs=1e-4)
