"""Measurement files: how they are read, selected, predicted and summed up."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import report

from roofcalc.core import RoofcalcError
from roofcalc.measured import MeasurementError, Rows, read, select
from roofcalc.render.accuracy import as_dict, csv_text, json_text, markdown, table
from roofcalc.render.scatter import figure, plot_validation
from roofcalc.statements import StatementError
from roofcalc.validation import errors, over_limit, validate

# h200.csv of this project: one H200 SXM, torch 2.11, CUDA 13.0, cuDNN 9.19, Triton 3.6, 2026-11-29
HEADER = (
    "gpu,op,variant,kernel,library,batch,heads,kv_heads,T,S,d,causal,window,dtype,pass,splits,elementwise,cache,"
    "m,n,k,time_s,extra\n"
)
ROWS = """\
h200,attention,flash2,,torch 2.11 flash-attention 2,1,32,8,8192,8192,128,0,,bf16,fwd,,,cold,,,,3.25582e-03,x
h200,attention,flash2,,torch 2.11 flash-attention 2,1,32,8,2048,2048,128,0,,bf16,fwd,,,cold,,,,2.0863e-04,x
h200,attention,eager,softmax,torch 2.11 eager,1,32,32,8192,8192,128,0,,bf16,fwd,,,cold,,,,7.99592e-03,x
h200,linear,gemm,qkv,cublas 13.0,,,,,,,,,bf16,fwd,,,cold,1,6144,4096,1.551e-05,x
h200,decode,split-kv,,cudnn 9.19,8,32,8,1,8192,128,,,bf16,fwd,,,cold,,,,6.651e-05,x
h200,ceiling,memcpy,copy_bw,,,,,,,,,,bf16,fwd,,,,,,,1e-3,x
h200,attention,nonsense,,torch,1,32,32,512,512,128,0,,bf16,fwd,,,cold,,,,1e-3,x
rtx1,attention,naive,,torch,1,32,32,512,512,128,0,,bf16,fwd,,,cold,,,,1e-3,x
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "times.csv"
    path.write_text(HEADER + ROWS, encoding="utf-8")
    return path


def test_empty_cells_take_the_defaults_and_unknown_columns_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "few.csv.gz"
    text = "\ufeffgpu,op,T,S,time_s,colour\nh100,attention,512,,1e-3,red\nh100,decode,,4096,2e-3,\n"
    path.write_bytes(gzip.compress(text.encode()))
    rows = read(path)
    assert len(rows) == 2
    assert rows["T"].tolist() == [512, 1]
    assert rows["S"].tolist() == [512, 4096]
    assert rows["kv_heads"].tolist() == [32, 32]
    assert rows["kv_dtype"].tolist() == ["bf16", "bf16"]
    assert rows["cache"].tolist() == ["cold", "cold"]
    assert rows["time_s"].tolist() == [1e-3, 2e-3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpu,T\nh100,4\n", ":1: no column time_s"),
        ("", ":1: no column time_s"),
        ("T,time_s\n4,1\n4.5,1\n", ":3: T is '4.5'; a whole number is wanted"),
        ("T,time_s\n4,1\n-4,1\n", ":3: T is '-4'; a whole number is wanted"),
        ("T,time_s\n4,fast\n", ":2: time_s is 'fast'; seconds above 0 are wanted"),
        ("T,time_s\n4,\n", ":2: time_s is ''; seconds above 0 are wanted"),
        ("T,time_s\n4,0\n", ":2: time_s is '0'; seconds above 0 are wanted"),
        ("T,time_s\n4,nan\n", ":2: time_s is 'nan'; seconds above 0 are wanted"),
        ("T,time_s\n4\n", ":2: 1 cells, but the header has 2"),
    ],
)
def test_a_broken_file_is_located(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MeasurementError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{told}")


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="No such file"):
        read(tmp_path / "absent.csv")
    torn = tmp_path / "torn.csv.gz"
    torn.write_bytes(b"time_s\n1\n")
    with pytest.raises(MeasurementError, match="torn"):
        read(torn)


def test_a_statement_selects_rows(sample: Path) -> None:
    rows = read(sample)
    assert len(select(rows, None)) == 8
    assert select(rows, "op=attention and T ge 2k")["T"].tolist() == [8192, 2048, 8192]
    assert select(rows, "library in cublas 13.0,cudnn 9.19")["op"].tolist() == ["linear", "decode"]
    with pytest.raises(StatementError, match="no 'libary' here; did you mean library"):
        select(rows, "libary=torch")


def test_rows_are_grouped_predicted_and_skipped_with_a_reason(sample: Path) -> None:
    found = validate(read(sample))
    named = [(group.keys["op"], group.keys["variant"], group.count) for group in found.groups]
    assert named == [
        ("attention", "eager", 1),
        ("attention", "flash2", 2),
        ("decode", "split-kv", 1),
        ("linear", "gemm", 1),
    ]
    assert found.total is not None
    assert found.total.count == 5  # the ceiling is no prediction's subject, two rows are skipped
    assert sorted(count for _, count in found.skipped) == [1, 1]
    assert any("no variant 'nonsense'" in reason for reason, _ in found.skipped)
    assert any("unknown GPU 'rtx1'" in reason for reason, _ in found.skipped)


def test_a_row_of_one_kernel_is_that_kernel_of_the_report(sample: Path) -> None:
    found = validate(select(read(sample), "kernel=softmax"))
    softmax = report("eager", "h200", T=8192).kernels[2]
    assert softmax.name == "softmax"
    assert found.roofline[0] == pytest.approx(softmax.time)
    assert found.expected[0] == pytest.approx(softmax.expected)


def test_rows_that_differ_in_size_are_predicted_as_each_alone(sample: Path) -> None:
    together = validate(select(read(sample), "variant=flash2"))
    alone = [report("flash2", "h200", T=T, kv_heads=8) for T in (8192, 2048)]
    assert together.roofline.tolist() == pytest.approx([one.total.time for one in alone])
    assert together.expected.tolist() == pytest.approx([one.total.expected for one in alone])


def test_errors_by_hand() -> None:
    # predicted / measured = 0.5, 0.9, 1.0, 1.2: off by 0.5, 0.1, 0, 0.2
    found = errors(np.array([1.0, 1.8, 2.0, 2.4]), np.full(4, 2.0))
    assert (found.median, found.mean, found.bias) == pytest.approx((0.15, 0.2, 0.95))
    assert found.p90 == pytest.approx(0.2 + 0.7 * 0.3)  # between the third and the fourth of 0, 0.1, 0.2, 0.5


def test_a_limit_names_the_groups_above_it(sample: Path) -> None:
    found = validate(read(sample))
    assert over_limit(found, ["median=0.5", "p90=0.5"]) == []
    assert len(over_limit(found, ["median=0"])) == len(found.groups)
    for text in ("medium=0.1", "bias=0.1", "median", "median=-1", "median=many", "median=nan"):
        with pytest.raises(RoofcalcError, match="--limit"):
            over_limit(found, [text])
    with pytest.raises(RoofcalcError, match="did you mean median"):
        over_limit(found, ["medium=0.1"])


def test_another_grouping_and_an_override(sample: Path) -> None:
    rows = select(read(sample), "op=linear")
    assert [group.keys for group in validate(rows, by=["gpu", "m"]).groups] == [{"gpu": "h200", "m": "1"}]
    slow = validate(rows, ["memory.hbm.bandwidth=2.4TB/s"])
    assert slow.roofline[0] == pytest.approx(2 * validate(rows).roofline[0])
    with pytest.raises(RoofcalcError, match="--by 'kernels' is no column; did you mean kernel"):
        validate(rows, by=["kernels"])
    with pytest.raises(RoofcalcError, match="--set"):
        validate(rows, ["memory.hbm.bandwith=2.4TB/s"])


def test_the_json_has_the_promised_keys(sample: Path) -> None:
    found = validate(read(sample))
    body = json.loads(json_text(found))
    assert body["schema"] == 1
    assert set(body) == {"schema", "groups", "total", "skipped"}
    assert set(body["groups"][0]) == {"gpu", "op", "variant", "library", "count", "roofline", "expected"}
    assert set(body["total"]["roofline"]) == {"median", "p90", "mean", "bias"}
    assert set(body["skipped"][0]) == {"reason", "count"}
    assert as_dict(found)["groups"] == body["groups"]


def test_the_table_shows_every_group_the_total_and_what_was_skipped(sample: Path) -> None:
    found = validate(read(sample))
    lines = table(found).splitlines()
    assert len(lines) == 1 + 4 + 1 + 2
    assert lines[5].startswith("total")
    assert lines[6].startswith("skipped 1: ")
    assert len(csv_text(found).splitlines()) == 5
    assert markdown(found).count("\n") == 7


def test_nothing_predicted_is_no_error(sample: Path) -> None:
    found = validate(select(read(sample), "gpu=rtx1"))
    assert (found.groups, found.total) == ((), None)
    assert table(found).startswith("skipped 1: unknown GPU")


def test_the_picture_has_both_predictions_against_the_measured(sample: Path, tmp_path: Path) -> None:
    found = validate(read(sample))
    left, right = figure(found).axes
    assert [left.get_xscale(), left.get_yscale(), right.get_yscale()] == ["log", "log", "log"]
    dots = {line.get_label(): line for line in left.lines}
    assert dots["expected"].get_ydata().tolist() == pytest.approx(found.expected.tolist())
    for name in ("a.svg", "b.svg"):
        plot_validation(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_hundred_thousand_rows_take_under_fifteen_seconds() -> None:
    count = 100_000
    chance = np.random.default_rng(0)
    op = np.where(chance.random(count) < 0.5, "attention", "decode").astype(object)
    decode = op == "decode"
    S = 2 ** chance.integers(5, 18, count)
    columns = {
        "gpu": chance.choice(["a100", "h100", "h200"], count).astype(object),
        "op": op,
        "variant": np.where(decode, "split-kv", "fused").astype(object),
        "T": np.where(decode, 1, S),
        "S": S,
        "d": chance.choice([64, 128, 256], count),
        "kv_heads": 2 ** chance.integers(0, 5, count),
        "heads": np.full(count, 32),
        "batch": 2 ** chance.integers(0, 9, count),
        "causal": np.where(decode, 0, 1),
        "time_s": np.full(count, 1e-3),
    }
    plain = {"kernel": "", "library": "", "model": "", "dtype": "bf16", "kv_dtype": "bf16", "pass": "fwd"}
    plain |= {"elementwise": "", "cache": "warm", "source": "", "note": ""}
    texts = {name: np.full(count, text, dtype=object) for name, text in plain.items()}
    zeros = {name: np.zeros(count, dtype=np.int64) for name in ("window", "splits", "m", "n", "k")}
    start = time.perf_counter()
    found = validate(Rows({**columns, **texts, **zeros}))
    assert time.perf_counter() - start < 15
    assert found.total is not None
    assert found.total.count == count


STEPS = """\
h200,step,graph,,"torch 2.11, sdpa",1,32,8,1,1024,128,,,bf16,fwd,,,cold,,,,5.59743e-03,x
h200,step,graph_unfused_norm,,"torch 2.11, sdpa",1,32,8,1,1024,128,,,bf16,fwd,,,cold,,,,5.97876e-03,x
h200,step,graph,,"torch 2.11, sdpa",8,32,8,1,8192,128,,,bf16,fwd,,,cold,,,,7.81135e-03,x
h200,launch,graph,chain224,torch 2.11,,,,,,,,,bf16,fwd,,,warm,,224,,2.0806e-04,x
h200,launch,eager,linear_1x4096x4096,torch 2.11,,,,,,,,,bf16,fwd,,,warm,,,,2.520e-05,x
h200,elementwise,torch_rms_norm_wall,rmsnorm,torch 2.11,,,,,,,,,bf16,fwd,,,warm,8,4096,,1.638e-05,x
"""


def test_whole_steps_as_a_graph_and_launches_are_near_the_measured(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    lines = STEPS.splitlines()
    models = ["llama-3-8b"] * 3 + [""] * 3
    rows = [f"{line},{model}" for line, model in zip(lines, models, strict=True)]
    path.write_text("\n".join([f"{HEADER.strip()},model", *rows]) + "\n", encoding="utf-8")
    found = validate(read(path))
    assert not found.skipped
    assert (found.expected / found.rows["time_s"]).tolist() == pytest.approx([1] * 6, abs=0.15)
    # a norm as eight kernels makes a step slower, as measured
    assert found.expected[1] > found.expected[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("h200,launch,eager,fly,torch,,,,,,,,,bf16,fwd,,,,,,,1e-6,x", "no kernel 'fly'"),
        ("h200,elementwise,eager_op,fly,torch,,,,,,,,,bf16,fwd,,,,8,8,,1e-6,x", "no elementwise step 'fly'"),
        ("h200,attention,eager,fly,torch,1,8,8,64,64,64,,,bf16,fwd,,,,,,,1e-6,x", "eager has no kernel 'fly'"),
        ("h200,attention,window,,torch,1,8,8,64,64,64,,,bf16,fwd,,,,,,,1e-6,x", "without its window"),
        ("a100,linear,gemm,,torch,,,,,,,,,fp8,fwd,,,,8,8,8,1e-6,x", "a100 has no fp8"),
    ],
)
def test_a_row_that_no_model_covers_is_skipped_with_the_reason(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "one.csv"
    path.write_text(f"{HEADER}{line}\n", encoding="utf-8")
    found = validate(read(path))
    assert found.total is None
    assert [count for _, count in found.skipped] == [1]
    assert told in found.skipped[0][0]
