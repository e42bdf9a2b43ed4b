"""``roofcalc validate``: its gate, its files, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran

Run = Callable[..., Ran]
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
HEAD = "gpu,op,variant,m,n,k,dtype,time_s\n"


def test_the_shipped_timings_lie_within_the_bars(run: Run) -> None:
    # the bars for the median and the 90th percentile; wall times of eager loops are reported, not judged
    fused = ("op=attention and variant in flash2,flash3 and pass=fwd", "median=0.06", "p90=0.20")
    linear = ("op=linear", "median=0.06", "p90=0.18")
    decode = ("op=decode and variant=split-kv", "median=0.08", "p90=0.22")
    for where, *limits in (fused, linear, decode):
        asked = [part for limit in limits for part in ("--limit", limit)]
        assert run("validate", "--where", where, "--by", "op", *asked).code == 0
    assert run("validate", "--where", "op=linear", "--limit", "median=0.001").code == 1


def test_at_most_two_percent_of_the_shipped_rows_are_skipped(run: Run) -> None:
    found = json.loads(run("validate", "--format", "json").out)
    skipped = sum(line["count"] for line in found["skipped"])
    assert skipped <= 0.02 * (found["total"]["count"] + skipped)
    assert found["total"]["expected"]["median"] < 0.06
    assert 0.95 < found["total"]["expected"]["bias"] < 1.05


def test_the_example_of_the_readme_is_a_measurement_file(run: Run, tmp_path: Path) -> None:
    (block,) = re.findall(r"^    (gpu,op,variant.*\n(?:    \w.*\n)+)", README, re.MULTILINE)
    mine = tmp_path / "my.csv"
    mine.write_text("\n".join(line.strip() for line in block.splitlines()) + "\n")
    found = json.loads(run("validate", str(mine), "--format", "json").out)
    assert (found["total"]["count"], found["skipped"]) == (3, [])


def test_a_plot_shows_predicted_against_measured(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "errors.png"
    assert run("validate", "--where", "op=linear", "--plot", str(picture)).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("h100,linear,gemm,16,4096,4096,bf17,0.00002", "dtype 'bf17' is not known; did you mean bf16"),
        ("h100,linear,gemm,16,4096,,bf16,0.00002", "a row without k"),
        ("h100,elementwise,triton_fused,16,0,,bf16,0.00002", "a row without n"),
        ("h100,step,zzz,,,,bf16,0.00002", "nothing to validate"),
        ("h100,foo,zzz,,,,bf16,0.00002", "nothing to validate"),
        ("h900,linear,gemm,16,64,64,bf16,0.00002", "unknown GPU"),
    ],
)
def test_a_file_of_which_nothing_can_be_predicted_fails_no_gate_silently(
    run: Run, tmp_path: Path, row: str, said: str
) -> None:
    mine = tmp_path / "my.csv"
    mine.write_text(HEAD + row + "\n")
    got = run("validate", str(mine), "--limit", "median=0.1")
    assert (got.code, got.out, got.err.count("\n")) == (2, "", 1)
    assert said in got.err
