"""The commands beside `attention`: decode, kernel, verify, models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran, refused

Run = Callable[..., Ran]
EXAMPLES = Path(__file__).parent.parent / "examples"
DECODE = ("decode", "--S", "8192", "--heads", "32", "--kv-heads", "8")


def document(got: Ran) -> Any:
    assert (got.code, got.err) == (0, "")
    return json.loads(got.out)


def test_decode_shows_the_default_variants_the_planner_and_the_cache(run: Run) -> None:
    out = run(*DECODE, "--batch", "8").out
    for words in ("naive", "flash", "split-kv", "combine", "4 FLOP/B", "127 of 128 rows are padding", "KV cache"):
        assert words in out
    # 8192 tokens · 2 · 8 KV heads · 128 · 2 B = 33,554,432 B a sequence, 8 of them
    assert "33.6 MB a sequence, 268 MB the batch" in out


def test_batch_one_leaves_three_quarters_of_the_sms_idle(run: Run) -> None:
    # 32 units on 132 SMs: 100 / 132 = 75.8 %
    assert "75.8 % of the SMs idle" in run("decode", "--S", "8192", "--heads", "32", "--variant", "flash").out


def test_splits_may_be_a_number_or_auto(run: Run) -> None:
    def units(splits: str) -> int:
        found = document(run(*DECODE, "--variant", "split-kv", "--splits", splits, "--format", "json"))
        return int(found["reports"][0]["kernels"][0]["units"])

    assert units("16") == 8 * 16  # 8 KV heads, 16 chunks of 512 keys
    best = document(run(*DECODE, "--variant", "split-kv", "--format", "json"))["splits"][0]["best"]
    assert units("auto") == 8 * best


def test_sequences_of_unlike_lengths_are_a_list_in_the_json(run: Run) -> None:
    found = document(run("decode", "--S", "1k,8k,32k", "--variant", "split-kv", "--format", "json"))
    shape = found["reports"][0]["shape"]
    assert (shape["S"], shape["batch"]) == ([1024, 8192, 32768], 3)


def test_check_says_no_when_the_cache_does_not_fit(run: Run) -> None:
    asked = (*DECODE, "--batch", "8", "--weights", "79.9GB")
    assert run(*asked).code == 0
    assert run(*asked, "--check").code == 1
    assert run(*DECODE, "--check").code == 0


def test_the_cache_of_a_model_is_that_of_all_its_layers(run: Run) -> None:
    # Gemma 2 9B: 42 layers of 8192 B a token, half of them with a window of 4096: 21 · 8192 · (131072 + 4096)
    # = 23.25 GB a sequence; 16 of them are 372 GB
    asked = ("decode", "--S", "128k", "--model", "gemma-2-9b", "--batch", "16", "--variant", "split-kv")
    got = run(*asked, "--layer", "1", "--layers", "1", "--check")
    assert got.code == 1
    said = " ".join(got.out.split())
    assert "KV cache of the whole of gemma-2-9b (all 42 layers): 344 kB a token (172 kB once the windows" in said
    assert "23.3 GB a sequence, 372 GB the batch" in said
    # 80 GB less 18.5 GB of weights hold 2 such sequences
    assert "; 2 sequences of 131,072 tokens would." in said
    assert "beyond the context of gemma-2-9b, 8,192 tokens" in said
    kept = document(run(*asked, "--format", "json"))["kv_cache"]
    assert (kept["per_token"], kept["per_sequence"]) == (344_064, 21 * 8192 * (131_072 + 4096))


def test_expanded_latents_are_cached_expanded(run: Run) -> None:
    asked = ("decode", "--S", "8k", "--variant", "mla", "--heads", "128", "--expanded", "--format", "json")
    kept = document(run(*asked))["kv_cache"]
    assert (kept["per_token"], kept["batch"]) == (81_920, 671_088_640)  # 128 · (192 + 128) · 2 B


def test_a_list_of_lengths_is_echoed(run: Run) -> None:
    out = run("decode", "--S", "1k,8k,32k", "--kv-heads", "8", "--variant", "flash-gqa").out
    assert " S=1024,8192,32768 " in out
    assert "134 MB the longest sequence" in out  # 32768 · 4096 B
    assert " S=8,8 " in run("decode", "--S", "8,8", "--T", "8").out


def test_the_words_of_a_window_and_of_one_head(run: Run) -> None:
    out = run("decode", "--S", "8k", "--heads", "32", "--kv-heads", "1", "--window", "1k", "--variant", "paged").out
    assert " 1 KV head " in out
    assert "Splits of the keys (paged): best" in out
    assert "SMs busy" in out
    # 1024 tokens of 512 B: 80e9 / 524288 sequences
    assert "152,587 sequences of 8,192 tokens would" in out


def test_a_latent_model_decodes_against_its_latent(run: Run) -> None:
    found = document(run("decode", "--S", "4k", "--model", "deepseek-v3", "--format", "json"))
    (report,) = found["reports"]
    assert report["variant"] == "mla"
    assert {line["tensor"] for line in report["kernels"][0]["ledger"]} >= {"latent", "Q"}
    assert found["kv_cache"]["per_token"] == 70_272  # 61 layers · (512 + 64) · 2 B


def test_a_model_sets_the_shape_and_an_option_wins(run: Run) -> None:
    def shape(*more: str) -> dict[str, Any]:
        asked = ("attention", "--T", "1k", "--variant", "ideal", "--model", "llama-3-8b", "--format", "json")
        return dict(document(run(*asked, *more))["reports"][0]["shape"])

    assert (shape()["heads"], shape()["kv_heads"], shape()["layers"]) == (32, 8, 32)
    assert (shape("--kv-heads", "32")["kv_heads"], shape("--layers", "1")["layers"]) == (32, 1)


def test_unlike_layers_are_named_and_can_be_chosen(run: Run) -> None:
    asked = ("attention", "--T", "8k", "--variant", "ideal", "--causal", "--model", "gemma-3-27b")
    assert "52 of 62 layers" in run(*asked).out.replace("\n", " ").replace("  ", " ")
    assert "window" not in run(*asked, "--layer", "5").out.splitlines()[0]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_runs(run: Run, example: Path) -> None:
    got = run("kernel", str(example))
    assert got.code == 0
    assert "Findings on H100 SXM5 80 GB" in got.out


def test_an_a100_refuses_the_tile_that_an_h100_takes(run: Run) -> None:
    design = str(EXAMPLES / "refused-tile.yaml")
    assert run("kernel", design, "--gpu", "a100", "--check").code == 1
    assert run("kernel", design, "--gpu", "h100", "--check").code == 0


def test_what_forbids_a_kernel_is_said_first(run: Run, tmp_path: Path) -> None:
    out = run("kernel", str(EXAMPLES / "refused-tile.yaml"), "--gpu", "a100").out
    first = out.split("Findings on A100 SXM4 80 GB\n")[1].splitlines()[0]
    # (128 + 2 x 128) x 256 x 2 B = 192 KiB against 163 KiB
    assert first.startswith("  ✗ cannot run on A100 SXM4 80 GB: attention: 192 KiB of shared memory a block, 29 KiB")
    mine = tmp_path / "mine.yaml"
    fits = (EXAMPLES / "refused-tile.yaml").read_text()
    mine.write_text(fits.replace("writes: [O]", "writes: [{tensor: O, tier: l2}]"))
    first = run("kernel", str(mine)).out.split("Findings on H100 SXM5 80 GB\n")[1].splitlines()[0]
    assert first.startswith("  ✗ cannot be as written on H100 SXM5 80 GB: O: 0 B of its 67.1 MB are written to memory")


def test_a_model_page_says_each_thing_once(run: Run) -> None:
    out = " ".join(run("models", "deepseek-v3").out.split())
    # config.json: 61 layers, kv_lora_rank 512, qk_rope_head_dim 64, max_position_embeddings 163840
    assert "context 163,840 · fp8 weights, bf16 rest" in out
    assert "128 heads of 192/128, latent 512 + 64" in out
    assert "KV heads of" not in out
    falcon = " ".join(run("models", "falcon-7b").out.split())
    assert "71 heads, 1 KV head of 64" in falcon
    assert falcon.count("tie_word_embeddings") == 1
    assert "taken from the class of falcon: tied (tie_word_embeddings), context (max_position_embeddings)" in falcon


def test_on_chip_memory_is_shown_in_binary_units(run: Run) -> None:
    lines = {line.split()[0]: line for line in run("gpus", "a100").out.splitlines() if line.startswith("memory.")}
    # 164 and 163 KiB a SM and block, 40 MiB of L2 (CUDA programming guide, compute capability 8.0)
    for figure, value in (("smem.per_sm", "164 KiB"), ("smem.per_block", "163 KiB"), ("l2.capacity", "40 MiB")):
        assert f" {value} " in lines[f"memory.{figure}"]
    assert " 80 GB " in lines["memory.hbm.capacity"]
    assert "41.94 MB" in run("gpus", "a100", "--format", "markdown").out


def test_a_variant_page_is_free_of_its_errors(run: Run) -> None:
    named = document(run("variants", "--format", "json"))["variants"]
    assert len(named) > 10
    for name in {variant["name"] for variant in named}:
        out = run("variants", name).out
        assert "Raises" not in out
        assert "Error" not in out
    assert "`expected` is for the library." in run("variants", "flash2").out


def test_words_that_are_wrong_are_listed_once(run: Run) -> None:
    error = run("models", "--kv-dtype", "foo").err
    assert error == "roofcalc: --kv-dtype: 'foo' is not known; choose from fp32, tf32, fp16, bf16, fp8, int8, int4\n"
    assert "did you mean fp8 (choose from fp32, " in run("models", "--kv-dtype", "fp9").err


def test_a_built_in_variant_becomes_a_design_that_gives_its_bytes(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "my.yaml"
    mine.write_text(run("kernel", "--new", "attention-flash2").out)
    own = document(run("kernel", str(mine), "--format", "json"))["reports"][0]
    built_in = document(run("attention", "--T", "8192", "--variant", "flash2", "--format", "json"))["reports"][0]
    for key in ("flops", "executed_flops", "bytes", "time"):
        assert own["total"][key] == built_in["total"][key]


def test_a_param_changes_a_design(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "my.yaml"
    mine.write_text(run("kernel", "--new", "attention-naive").out)
    found = document(run("kernel", str(mine), "-p", "T=1k", "-p", "S=1k", "--format", "json"))["reports"][0]
    assert found["kernels"][0]["flops"] == 2 * 128 * 32 * 1024 * 1024


def test_the_schema_is_json(run: Run) -> None:
    assert "kernels" in document(run("kernel", "--schema"))["properties"]


def test_verify_counts_what_the_ledger_says(run: Run) -> None:
    found = document(run("verify", "flash2", "--T", "256", "--d", "32", "--causal", "--format", "json"))
    assert (found["schema"], found["variant"]) == (1, "flash2")
    assert found["tensors"]
    assert all(line["counted"] == line["ledger"] for line in found["tensors"])
    assert found["error"] < 1e-12


@pytest.mark.parametrize("variant", ["naive", "flash2"])
def test_verify_runs_the_backward_pass_against_the_slope_of_the_loss(run: Run, variant: str) -> None:
    asked = ("verify", variant, "--T", "150", "--d", "16", "--heads", "4", "--kv-heads", "2", "--causal")
    got = run(*asked, "--pass", "bwd")
    assert got.code == 0
    assert "count equals ledger" in got.out
    assert "dQ" in got.out
    assert run("verify", "flash1", "--T", "64", "--pass", "bwd").code == 2


def test_verify_says_what_it_runs_without_sizes(run: Run) -> None:
    said = " ".join(run("verify", "--help").out.split())
    assert "one head, d 64, 1024 queries and keys (for split-kv one query)" in said
    assert " heads 1 · T=1024 · S=1024 · d=64 " in run("verify", "flash2").out
    assert " heads 1 · T=1 · S=1024 · d=64 " in run("verify", "split-kv").out


def test_a_context_is_named_only_where_it_is_exceeded(run: Run) -> None:
    # Llama 3 8B: max_position_embeddings 8192
    asked = ("decode", "--model", "llama-3-8b", "--variant", "flash-gqa", "--S")
    assert "beyond the context" not in run(*asked, "8192").out
    assert "beyond the context of llama-3-8b, 8,192 tokens" in " ".join(run(*asked, "100,8193").out.split())


def test_verify_shows_the_online_softmax(run: Run) -> None:
    out = run("verify", "--show", "online-softmax").out
    assert "exp(m1 - m2)" in out
    assert "in one pass" in out


def test_models_lists_presets_and_reads_a_file(run: Run, tmp_path: Path) -> None:
    assert "llama-3-8b" in run("models").out
    found = document(run("models", "llama-3-8b", "--format", "json"))["model"]
    assert (found["parameters"], found["kv_bytes_per_token"]) == (8_030_261_248, 131_072)
    mine = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128}
    mine.write_text(json.dumps({"model_type": "llama", "vocab_size": 100, **sizes}))
    # 2 layers · 2 · 4 heads · 16 · 2 B
    assert document(run("models", str(mine), "--format", "json"))["model"]["kv_bytes_per_token"] == 512
    assert "KV cache" in run("models", str(mine)).out


BAD = [
    (("decode",), "--S"),
    (("decode", "--S", "0"), "--S"),
    (("decode", "--S", "8k", "--variant", "split-kv", "--splits", "9000"), "splits"),
    (("decode", "--S", "8k", "--splits", "many"), "--splits"),
    (("decode", "--S", "8k", "--splits", "foo"), "auto"),
    (("decode", "--S", "999999999999999999999"), "is too large"),
    (("decode", "--S", "8G", "--batch", "9007199254740993"), "is too large"),
    (("decode", "--S", "512", "--model", "bert-large"), "bert-large is an encoder"),
    (("decode", "--S", "8k", "--variant", "mla", "--kv-heads", "8"), "--kv-heads does not go with mla"),
    (("decode", "--S", "8k", "--variant", "paged", "--page-size", "0"), "--page-size"),
    (("decode", "--S", "8", "--T", "9"), "--T"),
    (("decode", "--S", "8k", "--variant", "mla", "--kv-lora-rank", "0"), "--kv-lora-rank"),
    (("decode", "--S", "8k", "--variant", "mla", "--d", "128"), "--d"),
    (("decode", "--S", "8k", "--page-size", "16"), "--page-size is used by none"),
    (("decode", "--S", "8k", "--weights", "16"), "--weights"),
    (("attention", "--T", "8", "--variant", "split-kv"), "roofcalc decode"),
    (("attention", "--T", "8", "--model", "llama-9"), "llama"),
    (("attention", "--T", "8", "--layer", "3"), "--model"),
    (("attention", "--T", "8", "--model", "llama-3-8b", "--layer", "32"), "0 to 31"),
    (("kernel",), "design"),
    (("kernel", "x.yaml", "--new", "attention-naive"), "kernel needs exactly one of"),
    (("models", "nope"), "roofcalc: 'nope' is neither a file nor a preset"),
    (("kernel", "nothing.yaml"), "nothing.yaml"),
    (("kernel", str(EXAMPLES / "refused-tile.yaml"), "-p", "T"), "NAME=VALUE"),
    (("kernel", str(EXAMPLES / "refused-tile.yaml"), "-p", "X=3"), "X"),
    (("kernel", "--new", "attention-flash9"), "did you mean"),
    (("verify",), "needs a variant"),
    (("verify", "flash9"), "flash"),
    (("models", "nothing.json"), "nothing.json"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: tuple[str, ...], said: str) -> None:
    refused(run(*arguments), said)
