"""JSON, CSV, Markdown, the ledger in words, and what each format loads."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy
import pytest
from render_samples import BOTH, FLASH3, NAIVE, SCORES, SOFTMAX, make, table

from roofcalc.core import Shape, Term
from roofcalc.render import FORMATS, PLOT_ENDINGS, plot_format
from roofcalc.shape import RoofcalcError


def test_json_is_schema_1() -> None:
    document = json.loads(FORMATS["json"](BOTH, command="attention"))
    assert (document["schema"], document["command"]) == (1, "attention")
    report = document["reports"][0]
    assert report["shape"] == {
        **{"batch": 1, "heads": 32, "kv_heads": 32, "T": 8192, "S": 8192, "d": 128, "dv": 128},
        **{"causal": False, "window": None, "dtype": "bf16", "kv_dtype": "bf16", "layers": 1, "pass": "fwd"},
    }
    scores = report["kernels"][0]
    assert isinstance(scores["flops"], int)
    assert scores["flops"] == 549_755_813_888
    assert scores["bytes"] == 4_429_185_024
    assert scores["intensity"] == pytest.approx(124.12, abs=0.01)
    assert scores["roofs"] == {
        **{"hbm": 1.3221e-3, "l2": 0.4712e-3, "smem": None},
        **{"tensor": 0.5556e-3, "vector": None, "exp": None},
    }
    assert scores["expected"] is None
    assert scores["ledger"][0] == {
        **{"tensor": "Q", "mode": "read", "tier": "hbm", "bytes": 67_108_864},
        "why": "batch·heads·T·d",
    }
    assert report["total"]["memory"] == 8_589_934_592
    assert set(report["total"]) == {
        "flops",
        "executed_flops",
        "bytes",
        "intensity",
        "time",
        "expected",
        "launches",
        "memory",
    }


def test_json_ledger_covers_all_launches_and_says_so() -> None:
    layers = make("naive", replace(SCORES, launches=4, bytes=4 * SCORES.bytes), SOFTMAX)
    scores = json.loads(FORMATS["json"]([layers], command="attention"))["reports"][0]["kernels"][0]
    assert sum(entry["bytes"] for entry in scores["ledger"]) == scores["bytes"]
    assert scores["ledger"][2] == {
        **{"tensor": "S", "mode": "write", "tier": "hbm", "bytes": 4 * 4_294_967_296},
        "why": "4 launches × batch·heads·T·S",
    }
    assert scores["work"][0]["ops"] == 4 * 549_755_813_888


def test_json_takes_numpy_scalars_and_refuses_nan() -> None:
    row = replace(SCORES, flops=numpy.int64(7), time=numpy.float64(0.5), roof=numpy.str_("hbm"))
    found = json.loads(FORMATS["json"]([make("naive", row)], command="attention"))["reports"][0]
    assert found["kernels"][0]["flops"] == 7
    assert found["kernels"][0]["roof"] == "hbm"
    assert found["total"]["time"] == 0.5
    with pytest.raises(ValueError, match="JSON compliant"):
        FORMATS["json"]([make("naive", replace(row, time=float("nan")))], command="attention")


def test_csv_has_a_row_per_kernel_with_the_json_names() -> None:
    text = FORMATS["csv"](BOTH, command="attention")
    assert "\r" not in text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["variant"], row["kernel"]) for row in rows] == [
        *[("naive", "scores"), ("naive", "softmax"), ("naive", "pv")],
        ("flash3", "attention"),
    ]
    assert rows[0]["gpu"] == "h100"
    assert rows[0]["T"] == "8192"
    assert rows[0]["causal"] == "false"
    assert rows[0]["window"] == ""
    assert rows[0]["bytes"] == "4429185024"
    assert rows[0]["roofs.hbm"] == "0.0013221"


def test_markdown_escapes_bars_and_shows_only_sizes_that_vary() -> None:
    long = replace(NAIVE, shape=Shape.of(T=16384), kernels=(replace(SCORES, name="a|b"),))
    out = FORMATS["markdown"]([NAIVE, long], command="attention")
    rows = [row for row in out.splitlines() if row.startswith("|")]
    assert rows[0].startswith("| gpu | variant | T | S | kernel | flops |")
    assert rows[-1].startswith("| h100 | naive | 16384 | 16384 | a\\|b | 550 G |")
    assert {row.replace("\\|", "").count("|") for row in rows} == {rows[0].count("|")}


def test_explain_prints_every_access_work_item_and_roof() -> None:
    row = replace(
        SCORES,
        launches=2,
        units=131_072,
        waves=496.48,
        sm_use=0.999,
        expected=0.0018,
        terms=(Term("memory", 0.0018, "bytes at 86 % of HBM"), Term("rest", -1e-20, "nothing")),
    )
    out = table([make("naive", row, SOFTMAX)], explain=True)
    ledger = [" ".join(text.split()) for text in out.splitlines()]
    assert "reads Q HBM 134 MB 2 launches × batch·heads·T·d: 67,108,864 bf16" in ledger
    assert "writes S HBM 8.59 GB 2 launches × batch·heads·T·S: 4,294,967,296 bf16" in ledger
    assert "work tensor bf16 1.10 TFLOP 2 launches × 2·pairs·d: 1,099,511,627,776" in ledger
    assert "roof HBM 1.32 ms binds" in ledger
    assert "roof tensor 556 µs 42 %" in ledger  # 0.5556 / 1.3221
    assert "memory +1.80 ms bytes at 86 % of HBM" in ledger
    assert not any("nothing" in text for text in ledger)


def test_a_design_shows_its_params() -> None:
    class Design:
        dtype, params = "bf16", {"T": 1, "D": 4096}

    shape: Any = Design()
    mine = replace(FLASH3, shape=shape)
    assert "T=1 · D=4096 · bf16" in table([mine])
    found = json.loads(FORMATS["json"]([mine], command="kernel"))["reports"][0]
    assert found["shape"] == {"T": 1, "D": 4096}


@pytest.mark.parametrize(("form", "never"), [("table", "numpy"), ("table", "matplotlib"), ("json", "rich")])
def test_a_format_loads_only_its_own_library(form: str, never: str) -> None:
    code = (
        "import sys\n"
        "from roofcalc.core import Report, Row, Shape\n"
        "from roofcalc.render import FORMATS\n"
        "row = Row('k', 1, 1, 1, 1.0, 1.0, 1, bound='memory', roof='hbm', roofs={'hbm': 1.0}, share=1.0)\n"
        "peaks = {'vector': 1.0, 'hbm': 1.0, 'ridge': 1.0}\n"
        "report = Report('g', 'G', 'v', 's', Shape.of(T=1), (row,), row, 0, peaks)\n"
        f"assert 'k' in FORMATS[{form!r}]([report], command='x')\n"
        f"assert {never!r} not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_plot_format_takes_the_three_endings_and_names_them_in_its_error() -> None:
    assert [plot_format(f"a.{ending.upper()}") for ending in PLOT_ENDINGS] == ["png", "svg", "pdf"]
    with pytest.raises(RoofcalcError, match=r"'a\.jpg' ends in \.jpg; choose \.png, \.svg, \.pdf"):
        plot_format("a.jpg")
    with pytest.raises(RoofcalcError, match="has no ending"):
        plot_format("plot")
