"""`roofcalc step` and `roofcalc fuse` as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran

Run = Callable[..., Ran]


@pytest.fixture
def document(run: Run) -> Callable[..., Any]:
    def _document(*arguments: str) -> Any:
        got = run(*arguments, "--format", "json")
        assert (got.code, got.err) == (0, "")
        return json.loads(got.out)

    return _document


LLAMA = ("step", "--model", "llama-3-8b", "--S", "8192")


def test_the_table_says_what_binds_and_what_fits(run: Run) -> None:
    got = run(*LLAMA, "--batch", "1", "--gpu", "h100")
    assert (got.code, got.err) == (0, "")
    for text in (
        "qkv", "silu_mul", "lm_head", "sampling is left out", "eager (chosen)", "CUDA graph", "persistent kernel",
        "the host waits for the GPU", "launches bind below", "224 × 5.00 µs = 1.12 ms", "16.1 GB of weights",
        "1.07 GB of KV cache", "largest batch at this context 59", "--overlap none",
    ):  # fmt: skip
        assert text in " ".join(got.out.split())


def test_json_has_groups_and_the_totals_of_the_launch(document: Callable[..., Any]) -> None:
    found = document(*LLAMA, "--gpu", "h200", "--fusion", "none", "--S", "1024")
    report = found["reports"][0]
    assert {kernel["group"] for kernel in report["kernels"]} == {"weights", "attention", "elementwise", "head"}
    total = report["total"]
    # 24 launches a layer and 3 around, 5 us each; the H200's roofline is 3.16 ms
    assert (total["launches"], total["host"]) == (771, pytest.approx(3.855e-3))
    assert total["time"] <= total["device"] < total["host"]
    assert total["tokens_per_second"] == pytest.approx(1 / 3.855e-3)
    (detail,) = found["steps"]
    assert [detail["modes"][mode]["launches"] for mode in ("eager", "graph", "persistent")] == [771, 1, 1]
    assert [detail["modes"][mode]["bound"] for mode in ("eager", "graph")] == ["host", "device"]
    assert sum(group["launches"] for group in detail["groups"]) == 771
    # measured on the H200: 10.1 to 15.3 ms eager, whose wall times scatter by half; 5.60 ms as a graph
    assert detail["modes"]["eager"]["expected"] == pytest.approx(10.1e-3, rel=0.25)
    assert detail["modes"]["graph"]["expected"] == pytest.approx(5.60e-3, rel=0.08)


def test_launch_and_overlap_choose_the_totals(document: Callable[..., Any]) -> None:
    eager, graph = (document(*LLAMA, "--launch", mode)["reports"][0]["total"] for mode in ("eager", "graph"))
    assert graph["host"] == 2e-6
    assert graph["device"] == eager["device"] < graph["device"] + eager["host"]
    added = document(*LLAMA, "--overlap", "none", "--batch", "4")["reports"][0]["total"]
    assert added["tokens_per_second"] == pytest.approx(4 / (added["host"] + added["device"]))


def test_fusion_changes_launches_and_bytes_one_way(document: Callable[..., Any]) -> None:
    totals = [document(*LLAMA, "--fusion", f)["reports"][0]["total"] for f in ("none", "standard", "all")]
    assert [total["launches"] for total in totals] == [771, 451, 194]
    assert totals[0]["bytes"] > totals[1]["bytes"] > totals[2]["bytes"]
    assert totals[0]["expected"] > totals[1]["expected"] > totals[2]["expected"]


def test_a_prefill_of_the_same_model(document: Callable[..., Any]) -> None:
    report = document("step", "--model", "llama-3-8b", "--prefill", "2048", "--gpu", "a100")["reports"][0]
    assert report["variant"] == "flash2"
    assert (report["shape"]["T"], report["shape"]["S"], report["shape"]["causal"]) == (2048, 2048, True)
    assert report["total"]["tokens_per_second"] > 1000
    assert any("last token" in note for note in report["notes"])


def test_another_dtype_is_that_of_the_weights_too(document: Callable[..., Any]) -> None:
    # 7,504,924,672 numbers of one byte over 3.35 TB/s are 2.24 ms; with one key and few activations a little more
    total = document("step", "--model", "llama-3-8b", "--S", "1", "--dtype", "fp8")["reports"][0]["total"]
    assert total["bytes"] == pytest.approx(7_504_924_672, rel=2e-3)
    assert document("step", "--model", "llama-3-8b", "--S", "1", "--dtype", "fp8")["steps"][0]["memory"]["weights"] == (
        8_030_261_248
    )


def test_two_gpus_and_variants_give_a_report_each(document: Callable[..., Any]) -> None:
    found = document(*LLAMA, "--gpu", "h100", "--gpu", "a100", "--variant", "naive", "--variant", "split-kv")
    assert [(r["gpu"], r["variant"]) for r in found["reports"]] == [
        ("h100", "naive"), ("h100", "split-kv"), ("a100", "naive"), ("a100", "split-kv"),
    ]  # fmt: skip
    assert len(found["steps"]) == 4


def test_latent_attention_takes_mla(document: Callable[..., Any]) -> None:
    found = document("step", "--model", "deepseek-v3", "--S", "4096", "--gpu", "h200")
    assert [report["variant"] for report in found["reports"]] == ["mla"]


def test_check_says_no_where_the_weights_do_not_fit(run: Run) -> None:
    too_large = ("step", "--model", "llama-3-70b", "--S", "1024")
    got = run(*too_large)
    assert got.code == 0
    assert "do not fit 80.0 GB" in " ".join(got.out.split())
    assert run(*too_large, "--check").code == 1
    assert run(*too_large, "--check", "--gpu", "h200").code == 1
    assert run(*LLAMA, "--check").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("step", "--S", "8"), "step needs --model"),
        (("step", "--model", "llama-3-8b"), "step needs --S"),
        ((*LLAMA, "--fusion", "full"), "--fusion: 'full' is not known"),
        ((*LLAMA, "--launch", "graphs"), "did you mean graph"),
        ((*LLAMA, "--variant", "flash3"), "flash3 is a variant of `roofcalc attention`"),
        ((*LLAMA, "--variant", "mla"), "choose from naive"),
        ((*LLAMA, "--page-size", "16"), "--page-size is used by none"),
        (("step", "--model", "bert-large", "--S", "8"), "--prefill N"),
        (("step", "--model", "llama-3-8b", "--S", "8", "--prefill", "9"), "--S 8 is less than the 9 new tokens"),
        (("fuse", "silu-mull"), "did you mean silu-mul"),
        (("fuse", "attention"), "needs --T"),
        (("fuse", "silu-mul", "--heads", "3"), "--heads is not used by fuse silu-mul"),
        (("fuse", "attention", "--T", "8", "--d-model", "3"), "--d-model is not used by fuse attention"),
    ],
)
def test_wrong_input_is_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    got = run(*arguments)
    assert (got.code, got.out) == (2, "")
    assert message in got.err
    assert got.err.count("\n") == 1


def test_other_formats_and_a_plot(run: Run, tmp_path: Path) -> None:
    csv = run(*LLAMA, "--format", "csv").out.splitlines()
    assert "group" in csv[0].split(",")
    assert len(csv) == 18
    assert "| qkv |" in run(*LLAMA, "--format", "markdown").out
    picture = tmp_path / "step.svg"
    assert run(*LLAMA, "--plot", str(picture)).code == 0
    assert picture.stat().st_size > 1000
    assert "batch·kv_heads·S·d" in run(*LLAMA, "--explain").out


def test_a_prefill_names_no_longest_context_since_its_activations_grow(run: Run) -> None:
    asked = ("step", "--model", "llama-3-8b", "--prefill", "2048", "--variant", "naive")
    assert "activations grow with the prompt" in " ".join(run(*asked).out.split())
    assert "longest context" in run("step", "--model", "llama-3-8b", "--S", "8k").out.replace("\n", " ")


def test_attention_that_the_layers_do_not_have_is_not_ignored_in_silence(run: Run) -> None:
    latent = run("step", "--model", "deepseek-v3", "--S", "8k", "--variant", "split-kv").out
    assert "take mla: --variant split-kv is not used" in " ".join(latent.split())
    none = run("step", "--model", "mamba-2.8b", "--S", "8k", "--variant", "split-kv").out
    assert "has no attention: --variant split-kv is not used" in " ".join(none.split())
