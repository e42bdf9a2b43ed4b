"""What a user types and gets: good input to stdout, bad input to one line on stderr and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran, refused

Run = Callable[..., Ran]


def test_the_first_command(run: Run) -> None:
    got = run("attention", "--T", "8192", "--gpu", "h100")
    assert (got.code, got.err) == (0, "")
    assert "H100 SXM5 80 GB" in got.out
    for text in ("naive", "scores", "softmax", "pv", "flash3", "T=8192", "1.32 ms", "2.56 ms", "8.59 GB"):
        assert text in got.out


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    got = run()
    assert got.code == 0
    assert "attention" in got.out


def test_counts_are_binary_and_echoed(run: Run) -> None:
    for typed, echoed in (("8k", "T=8192"), ("128K", "T=131072"), ("1M", "T=1048576"), ("8192", "T=8192")):
        assert echoed in run("attention", "-T", typed, "--variant", "ideal").out


def test_json_names_every_key_of_the_interface(run: Run) -> None:
    document = json.loads(run("attention", "--T", "8192", "--variant", "naive", "--format", "json").out)
    assert (document["schema"], document["command"]) == (1, "attention")
    report = document["reports"][0]
    assert (report["gpu"], report["variant"], report["source"]) == (
        "h100",
        "naive",
        "arXiv:2205.14135, Algorithm 0",
    )
    shape = {
        "batch": 1,
        "heads": 32,
        "kv_heads": 32,
        "T": 8192,
        "S": 8192,
        "d": 128,
        "dv": 128,
        "causal": False,
    }
    shape |= {"window": None, "dtype": "bf16", "kv_dtype": "bf16", "layers": 1, "pass": "fwd"}
    assert report["shape"] == shape
    kernel = report["kernels"][0]
    keys = {
        "name",
        "flops",
        "executed_flops",
        "bytes",
        "intensity",
        "ridge",
        "bound",
        "roof",
        "time",
        "expected",
    }
    keys |= {"launches", "share", "roofs", "units", "waves", "sm_use", "ledger"}
    assert keys <= set(kernel)
    assert set(kernel["roofs"]) == {"hbm", "l2", "smem", "tensor", "vector", "exp"}
    assert (kernel["bound"], kernel["roof"]) == ("memory", "hbm")
    assert kernel["expected"] >= kernel["time"]
    # INTERFACE's sample: Q is heads·T·d = 33,554,432 numbers of 2 B
    first = kernel["ledger"][0]
    assert (first["tensor"], first["mode"], first["tier"], first["bytes"]) == ("Q", "read", "hbm", 67_108_864)
    assert report["total"]["memory"] == 8_589_934_592


def test_layers_multiply_everything_but_the_memory(run: Run) -> None:
    def total(*more: str) -> dict[str, float]:
        out = run("attention", "--T", "1k", "--variant", "naive", "--format", "json", *more).out
        report = json.loads(out)["reports"][0]
        ledger = sum(line["bytes"] for kernel in report["kernels"] for line in kernel["ledger"])
        return {**report["total"], "ledger": ledger}

    one, four = total(), total("--layers", "4")
    for key in ("flops", "executed_flops", "bytes", "launches", "ledger"):
        assert four[key] == 4 * one[key]
    assert four["time"] == pytest.approx(4 * one["time"])
    assert four["memory"] == one["memory"]


def test_explain_prints_every_access_with_its_formula(run: Run) -> None:
    out = run("attention", "--T", "8k", "--variant", "naive", "--explain").out
    assert "batch·heads·T·S" in out
    assert "2·pairs·d" in out


def test_a_piped_table_is_never_cut(run: Run) -> None:
    out = run("attention", "--T", "1M", "--variant", "all", "--gpu", "h100", "--gpu", "a100").out
    assert "…" not in out


def test_set_changes_a_figure(run: Run) -> None:
    out = run("attention", "--T", "8k", "--variant", "naive", "--set", "memory.hbm.bandwidth=6.7TB/s").out
    assert "6.7 TB/s" in out
    assert "0.661 ms" in out or "661 µs" in out  # half of 1.3221 ms


def test_output_and_plot_go_to_files(run: Run, tmp_path: Path) -> None:
    table, picture = tmp_path / "table.txt", tmp_path / "roof.svg"
    got = run("attention", "--T", "8k", "--output", str(table), "--plot", str(picture))
    assert (got.code, got.out) == (0, "")
    assert "scores" in table.read_text()
    assert picture.read_text().startswith("<?xml")


def test_plot_draws_machines_alone(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "roof.png"
    assert run("plot", str(picture), "--gpu", "a100", "--gpu", "h100").code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


ATTENTION = ("attention", "--T", "8192")

BAD = [
    (("attention",), "needs --T"),
    (("attention", "--T", "0"), "--T"),
    (("attention", "--T", "-5"), "--T"),
    (("attention", "--T", "8.5"), "8.5"),
    (("attention", "--T", "8kk"), "8kk"),
    (("attention", "--T", ""), "--T"),
    (("attention", "--t", "8"), "did you mean --T"),
    ((*ATTENTION, "-dv", "3"), "did you mean --dv"),
    ((*ATTENTION, "--kvheads", "3"), "did you mean --kv-heads"),
    ((*ATTENTION, "--heads", "32", "--kv-heads", "5"), "not a multiple"),
    ((*ATTENTION, "--gpu", "h1000"), "did you mean"),
    ((*ATTENTION, "--gpu", "nothing.yaml"), "nothing.yaml"),
    ((*ATTENTION, "--variant", "flsh2"), "did you mean flash2"),
    ((*ATTENTION, "--dtype", "bf17"), "did you mean bf16"),
    ((*ATTENTION, "--dtype", "fp8", "--gpu", "a100", "--variant", "naive"), "a100 has no fp8"),
    ((*ATTENTION, "--format", "jsn"), "did you mean json"),
    ((*ATTENTION, "--plot", "roof.gif"), ".png"),
    ((*ATTENTION, "--plot", "/no/such/folder/roof.png"), "no folder /no/such/folder"),
    ((*ATTENTION, "--output", "/no/such/folder/table.txt"), "no folder /no/such/folder"),
    ((*ATTENTION, "--variant", "naive", "--block-q", "64"), "--block-q is used by none"),
    ((*ATTENTION, "--variant", "eager", "--elementwise", "scale,relu"), "no step 'relu'"),
    ((*ATTENTION, "--set", "memory.hbm.bandwith=4TB/s"), "memory.hbm.bandwidth"),
    ((*ATTENTION, "--set", "memory.hbm.bandwidth=4Tb/s"), "bytes"),
    ((*ATTENTION, "extra"), "extra"),
    (("attenton", "--T", "8"), "did you mean attention"),
    (("variants", "flash9"), "did you mean flash"),
    (("gpus", "h1000"), "did you mean"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: tuple[str, ...], said: str) -> None:
    refused(run(*arguments), said)


BROKEN = [
    ("bandwidth: 3.35 TB/s", "bandwidth: 3.35 Tb/s", "bytes"),
    ("bandwidth: 3.35 TB/s", "bandwidth: 3.35", "no unit"),
    ("sms: 132", "sms: 132\nsms: 132", "sms"),
    ("sms: 132", "sms: 132\nsmz: 3", "smz"),
]


@pytest.mark.parametrize(("good", "bad", "said"), BROKEN)
def test_a_broken_hardware_file_is_named_with_its_line(
    run: Run, tmp_path: Path, good: str, bad: str, said: str
) -> None:
    built_in = Path(__file__).parent.parent / "hardware" / "h100.yaml"
    text = built_in.read_text()
    assert good in text
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace(good, bad, 1))
    got = run(*ATTENTION, "--gpu", str(mine))
    assert (got.code, got.out) == (2, "")
    assert f"{mine}:" in got.err
    assert said in got.err


def test_a_hardware_file_by_path_works_like_a_built_in_one(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text((Path(__file__).parent.parent / "hardware" / "h100.yaml").read_text())
    own = run(*ATTENTION, "--gpu", str(mine), "--format", "csv").out.replace("mine", "h100")
    assert own == run(*ATTENTION, "--gpu", "h100", "--format", "csv").out


def test_every_command_and_option_is_in_the_readme_or_its_help(run: Run) -> None:
    overview = run("--help").out
    for command in ("attention", "plot", "gpus", "variants"):
        assert command in overview
        assert run(command, "--help").code == 0
