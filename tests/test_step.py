"""A whole decode step: what it reads, how many launches it has, and that every family of models has one.

Sizes of Llama-3-8B: 32 layers, hidden 4096, 32 heads on 8, d = 128, MLP 14336, vocabulary 128256, bf16.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from steps import launches, moved, plan_of, report_of, weights_read

from roofcalc.budget import budget, kv_held
from roofcalc.hf import Quantisation, load_model, preset_names
from roofcalc.models import VariantError
from roofcalc.models.step import GROUPS, StepError

LLAMA = "llama-3-8b"


def test_a_step_reads_all_weights_but_the_embedding_table() -> None:
    # 32·(2·4096² + 2·4096·1024 + 3·4096·14336 + 2·4096) + 128256·4096 + 4096 = 7,504,924,672 numbers of 2 B
    assert weights_read(plan_of(LLAMA, S=1)) == 2 * 7_504_924_672 == 15_009_849_344
    # over 3.35 TB/s: 4.4805 ms; the activations of the products add less than 0.1 %
    kernels = report_of(LLAMA, S=1).kernels
    assert sum(k.time for k in kernels if k.group in ("weights", "head")) == pytest.approx(4.4805e-3, rel=1e-3)
    # of the table one row of 4096 numbers for each token
    assert moved(plan_of(LLAMA, S=1, batch=3), "E") == 3 * 8192


def test_seven_elementwise_launches_a_layer_are_224() -> None:
    # reading: two RMSNorms, RoPE on Q and on K, two residual adds, one SiLU-and-multiply; 7 · 32 = 224
    plan = plan_of(LLAMA, S=8192)
    assert launches(plan, "elementwise") == 224
    names = [k.name for k in plan.kernels if k.group == "elementwise"]
    assert names == ["in_norm", "rope_q", "rope_k", "residual", "mlp_norm", "silu_mul", "residual_mlp"]


def test_eager_pytorch_has_24_launches_a_layer() -> None:
    # norm, QKV, 5 + 5 RoPE, 2 appends, split, combine, O, add, norm, gate-up, silu, mul, down, add: 24 · 32 = 768,
    # and embedding, final norm, head (the measured program adds two gathers and an argmax)
    plan = plan_of(LLAMA, S=1024, fusion="none")
    assert launches(plan) == 24 * 32 + 3
    assert launches(plan, "elementwise") == 16 * 32


def test_every_kernel_has_one_of_the_four_groups() -> None:
    plan = plan_of(LLAMA, S=8192)
    by_name = {k.name: k.group for k in plan.kernels}
    assert set(by_name.values()) == set(GROUPS)
    assert {n for n, g in by_name.items() if g == "attention"} == {"append", "split", "combine"}
    assert {n for n, g in by_name.items() if g == "head"} == {"embedding", "final_norm", "lm_head"}
    assert {n for n, g in by_name.items() if g == "weights"} == {"qkv", "o_proj", "gate_up", "down"}


def test_cache_read_and_append() -> None:
    plan = plan_of(LLAMA, S=8192, batch=2)
    # K and V: 2 · 8 heads · 128 · 2 B = 4096 B a token and layer, 32 layers, 8192 tokens, 2 sequences
    assert moved(plan, "K", "V") == 2 * 8192 * 32 * 4096
    assert moved(plan, "K", "V", mode="write") == 2 * 32 * 4096
    # an fp8 cache halves it
    assert moved(plan_of(LLAMA, S=8192, batch=2, kv_dtype="fp8"), "K", "V") == 2 * 8192 * 32 * 2048


def test_any_decode_variant_takes_its_place() -> None:
    by_variant = {name: plan_of(LLAMA, S=4096, variant=name) for name in ("naive", "flash", "flash-gqa", "split-kv")}
    assert [k.name for k in by_variant["naive"].kernels if k.group == "attention"] == [
        "append",
        "scores",
        "softmax",
        "pv",
    ]
    assert {weights_read(plan) for plan in by_variant.values()} == {15_009_849_344}
    with pytest.raises(VariantError, match="mla"):
        plan_of(LLAMA, S=4096, variant="mla")


def test_a_tied_table_is_read_by_the_head() -> None:
    # GPT-2 small: 124,439,808 parameters; the positions (1024·768) are a table of which one row is read
    plan = plan_of("gpt2", S=512)
    assert weights_read(plan) == 2 * (124_439_808 - 1024 * 768)
    assert moved(plan, "E", "E1") == 2 * 768 * 2
    assert not [k for k in plan.kernels if k.name.startswith("rope")]  # learned positions


@pytest.mark.parametrize(("batch", "touched"), [(1, 2.0), (8, 8 * (1 - 0.75**8))])
def test_a_mixture_reads_the_touched_experts_and_multiplies_with_the_active_ones(batch: int, touched: float) -> None:
    # Mixtral: 32 layers, 8 experts of 3·4096·14336 numbers, 2 a token; at batch 8 7.199 of 8 are touched
    plan = plan_of("mixtral-8x7b", S=64, batch=batch)
    assert moved(plan, "W_experts_gate_up", "W_experts_down") == pytest.approx(
        touched * 32 * 3 * 4096 * 14336 * 2, rel=1e-9
    )
    flops = sum(
        k.launches * w.ops for k in plan.kernels if k.name in ("experts_gate_up", "experts_down") for w in k.work
    )
    assert flops == batch * 2 * 32 * 2 * 3 * 4096 * 14336


def test_latent_attention_absorbs_its_projection_and_reads_it_once() -> None:
    plan = plan_of("deepseek-v3", S=4096)
    # kv_b_proj: 512 x 128·(128 + 128) in fp8, an fp32 scale for each 128 x 128: 256·4 · 4 B
    each = 512 * 32768 + 256 * 4 * 4
    read = moved(plan, "W_q_absorb", "W_q_absorb_scale", "W_v_absorb", "W_v_absorb_scale")
    assert read == pytest.approx(61 * each, rel=1e-6)
    # the cache: 512 + 64 numbers of bf16 a token and layer
    assert moved(plan, "latent") == 61 * 4096 * 576 * 2
    assert plan.variant == "mla"
    # at prefill it is one matrix product of every token
    prefill = plan_of("deepseek-v3", prefill=128, variant="flash3")
    kv_b = [k for k in prefill.kernels if k.name == "kv_b_proj"]
    assert sum(k.launches * k.work[0].ops for k in kv_b) == 61 * 2 * 128 * 512 * 32768


def test_a_window_bounds_what_is_read() -> None:
    # Mistral 7B v0.1: window 4096 in all 32 layers; 4096 B of K and V a key
    assert moved(plan_of("mistral-7b", S=32768), "K", "V") == 32 * 4096 * 4096
    # Gemma 2: 21 layers with a window of 4096, 21 without; 8 heads of 256: 8192 B a key and layer
    assert moved(plan_of("gemma-2-9b", S=8192), "K", "V") == 21 * (4096 + 8192) * 8192


def test_a_hybrid_reads_and_writes_its_states() -> None:
    # Jamba: 28 Mamba layers of 8192 channels with 16 fp32 numbers each, 4 attention layers of 8 heads of 128
    plan = plan_of("jamba", S=1000, batch=2)
    assert moved(plan, "state") == moved(plan, "state", mode="write") == 2 * 28 * 8192 * 16 * 4
    assert moved(plan, "K", "V") == 2 * 1000 * 4 * 4096
    # a prefill keeps the state on chip and writes it once
    prefill = plan_of("jamba", prefill=64, variant="flash3")
    assert (moved(prefill, "state"), moved(prefill, "state", mode="write")) == (0, 28 * 8192 * 16 * 4)


def test_group_scales_are_read_with_the_weights() -> None:
    # 4 bits, an fp16 scale and a 4-bit zero for 128 weights: 4 + 20/128 bits; QKV of a layer is 4096 x 6144
    q = Quantisation(method="awq", bits=4, overhead=20 / 128)
    plan = plan_of(replace(load_model(LLAMA), quantisation=q), S=64)
    assert moved(plan, "W_qkv", "W_qkv_scale") == 32 * 4096 * 6144 * (4 + 20 / 128) / 8
    # the head keeps bf16
    assert moved(plan, "W_lm_head") == 128256 * 4096 * 2


DENSE = [
    n
    for n in preset_names()
    if n not in ("zamba2-7b", "bert-large", "deepseek-v3", "mixtral-8x7b", "gpt-oss-120b", "jamba")
]


@pytest.mark.parametrize("name", DENSE)
def test_every_dense_preset_reads_each_of_its_weights_once(name: str) -> None:
    model = load_model(name)
    unread = [w for w in model.weights if w.part == "vision" or (w.role == "table" and not w.shared)]
    stored = sum(w.elements for _, w in model.named_weights()) - sum(w.elements for w in unread)
    assert weights_read(plan_of(name, S=128)) == 2 * stored


@pytest.mark.parametrize("fusion", ["none", "standard"])
@pytest.mark.parametrize("name", [n for n in preset_names() if n != "bert-large"])
def test_every_preset_has_a_step_and_a_prefill(name: str, fusion: str) -> None:
    step = report_of(name, S=2048, fusion=fusion)
    prefill = report_of(name, prefill=256, variant="flash3", fusion=fusion)
    assert 0 < step.total.time < prefill.total.time
    assert {k.group for k in step.kernels} <= set(GROUPS)


def test_a_shared_block_is_read_at_every_use() -> None:
    # Zamba2: 13 layers use 2 attention blocks in turn; q, k and v are 7168 x 7168 each
    assert moved(plan_of("zamba2-7b", S=128), "W_qkv") == 13 * 3 * 7168 * 7168 * 2


def test_a_prefill_makes_logits_for_the_last_token_only() -> None:
    plan = plan_of(LLAMA, prefill=1024, batch=2, variant="flash3")
    (head,) = [k for k in plan.kernels if k.name == "lm_head"]
    assert head.work[0].ops == 2 * 2 * 4096 * 128256
    # causal attention: 4 · 128 FLOP for each of T (T + 1) / 2 pairs, 2 sequences, 32 heads, 32 layers
    (attention,) = [k for k in plan.kernels if k.name == "attention"]
    pairs = 2 * 32 * 1024 * 1025 // 2
    assert attention.launches * sum(w.ops for w in attention.work if w.pipe == "tensor") == 32 * 4 * 128 * pairs


def test_an_encoder_has_a_prefill_and_no_step() -> None:
    with pytest.raises(StepError, match="--prefill"):
        plan_of("bert-large", S=128)
    plan = plan_of("bert-large", prefill=512, variant="flash3")
    assert not [k for k in plan.kernels if k.name.startswith("append")]
    assert plan.shape.causal is False


def test_more_new_tokens_than_keys_is_an_error() -> None:
    with pytest.raises(StepError, match="--S 8 is less than the 9"):
        plan_of(LLAMA, S=8, prefill=9)


def test_memory_of_a_step_and_what_fits() -> None:
    # H100: 80 GB; weights 16,060,522,496 B; 131,072 B of cache a token: 8192 tokens are 1,073,741,824 B
    model = load_model(LLAMA)
    held = budget(model, batch=1, S=8192, kv_dtype="bf16", intermediates=500_000, capacity=80 * 10**9)
    assert (held.weights, held.kv, held.state) == (16_060_522_496, 1_073_741_824, 0)
    assert held.largest_batch == 59  # 63,939,477,504 / 1,074,241,824 = 59.5
    assert held.largest_context == (80 * 10**9 - 16_060_522_496 - 500_000) // 131_072
    assert held.fits
    assert not budget(model, batch=60, S=8192, kv_dtype="bf16", intermediates=30_000_000, capacity=80 * 10**9).fits


def test_caches_that_stop_growing_have_no_longest_context() -> None:
    # Mistral's window: 4096 tokens of 131,072 B at most
    assert kv_held(load_model("mistral-7b"), 10**6, "bf16") == 4096 * 131_072
    held = budget(load_model("mamba-2.8b"), batch=1, S=10**6, kv_dtype="fp16", intermediates=0, capacity=80 * 10**9)
    assert (held.kv, held.largest_context) == (0, None)


def test_the_measured_step_lies_above_the_roofline_and_near_the_expected_time() -> None:
    # Llama-3-8B on an H200, torch 2.11: batch 1, S = 1024, one CUDA graph 5.60 ms, eager 10.1 to 15.3 ms
    report = report_of(LLAMA, "h200", S=1024, fusion="none")
    assert report.total.time < 5.60e-3
    assert report.total.expected == pytest.approx(5.60e-3, rel=0.08)
