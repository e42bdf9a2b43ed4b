"""The table: numbers as text, columns, closing sentences, narrow terminals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from render_samples import (
    BOTH,
    FLASH,
    FLASH3,
    NAIVE,
    PEAKS,
    SCORES,
    SMALL,
    SOFTMAX,
    SQUARE,
    kernel,
    line,
    make,
    table,
)

from roofcalc.core import Shape
from roofcalc.render import units
from roofcalc.render.fields import numbers, shape_line


def words(text: str, start: str) -> str:
    """The line that starts with `start`, its cells one blank apart."""
    return " ".join(next(row for row in text.splitlines() if row.strip().startswith(start)).split())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (549_755_813_888, "", "550 G"),  # INTERFACE's table
        (4_429_185_024, "B", "4.43 GB"),  # INTERFACE's table
        (0.0013221, "s", "1.32 ms"),  # INTERFACE's table
        (999.6, "B", "1.00 kB"),  # "%.3g" prints 1e+03
        (999_600_000, "B", "1.00 GB"),
        (0.00099996, "s", "1.00 ms"),
        (4.71e-7, "s", "471 ns"),
        (1.5e-6, "s", "1.50 µs"),
        (8, "B", "8 B"),
        (999, "", "999"),
        (0, "B", "0 B"),
        (None, "B", "–"),
    ],
)
def test_si(value: float | None, unit: str, text: str) -> None:
    assert units.si(value, unit) == text


def test_the_micro_sign_is_the_one_of_latin_1() -> None:
    assert units.seconds(2e-6).encode("latin-1") == b"2.00 \xb5s"


def test_long_times_stay_seconds_and_peaks_lose_their_zeros() -> None:
    assert units.seconds(12_345.6) == "12346 s"
    assert units.si(4.8e12, "B/s", trim=True) == "4.8 TB/s"
    assert units.si(800e9, "B/s", trim=True) == "800 GB/s"


@pytest.mark.parametrize(
    ("value", "text"),
    [(124.12, "124.1"), (1.25, "1.2"), (4136.0, "4136"), (999.96, "1000"), (0.0833, "0.083"), (None, "–")],
)
def test_intensity(value: float | None, text: str) -> None:
    assert units.intensity(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.2538, "25 %"), (1.0, "100 %"), (0.00321, "0.32 %"), (0.996e-2, "1 %"), (0, "0 %")]
)
def test_percent(share: float, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(("value", "text"), [(4.687, "4.7 x"), (12.3, "12 x"), (0.449, "0.45 x")])
def test_factor(value: float, text: str) -> None:
    assert units.factor(value) == text


def test_the_first_table_has_the_numbers_of_the_interface() -> None:
    out = table(BOTH)
    head = (
        "H100 SXM5 80 GB · 989 TFLOP/s bf16 · 3.35 TB/s · ridge 295      batch 1 · 32 heads · T=8192 · d=128"
    )
    assert out.startswith(f"{head} · bf16 · no mask\n")
    assert words(out, "naive") == "naive FLOP HBM FLOP/B bound roofline share"
    assert words(out, "1 scores") == "1 scores 550 G 4.43 GB 124.1 HBM 1.32 ms 25 %"
    assert words(out, "2 softmax") == "2 softmax 10.7 G 8.59 GB 1.2 HBM 2.56 ms 49 %"
    assert words(out, "total") == "total 1.11 T 17.4 GB 63.6 5.21 ms 8.59 GB of scores in memory"
    # 5.2084 ms / 1.1113 ms = 4.69
    assert words(out, "4 attention") == "4 attention 1.11 T 268 MB 4136 tensor 1.11 ms 4.7 x"
    # S and P, each written and read: 4 * 4.295 GB; exp 0.5556 ms of 1.1113 ms
    closing = "Memory traffic for the score matrix binds naive; fusing removes 17.2 GB. "
    assert closing + "flash3 is bound by the tensor pipe; exp is at 50 % of it." in " ".join(out.split())


def test_expected_has_a_column_only_where_something_is_expected() -> None:
    assert "expected" not in table(BOTH)
    known = make("naive", replace(SCORES, expected=0.0018), SOFTMAX)
    out = table([known])
    # 4,429,185,024 B in 1.8 ms are 2.46 TB/s
    assert words(out, "1 scores").endswith("1.32 ms 1.8 ms 2.46 TB/s 25 %")
    assert "–" in words(out, "2 softmax")


def test_executed_flop_has_a_column_where_tiles_do_more_than_is_useful() -> None:
    assert "executed" not in table(BOTH)
    out = table([make("naive", replace(SCORES, executed_flops=2 * SCORES.flops), SOFTMAX)])
    assert words(out, "1 scores").startswith("1 scores 550 G 1.10 T")


def test_two_gpus_stand_side_by_side() -> None:
    slow = {
        "gpu": "a100",
        "hardware": "A100 SXM4 80 GB",
        "peaks": {**PEAKS, "tensor": 312e12, "ridge": 153.0},
    }
    on_a100 = make("naive", *(replace(row, time=2 * row.time) for row in NAIVE.kernels), **slow)
    out = table([on_a100, NAIVE, make("flash2", FLASH, **slow), FLASH3])
    assert out.count("naive  ") == 1
    assert out.splitlines()[0] == "A100 SXM4 80 GB · 312 TFLOP/s bf16 · 3.35 TB/s · ridge 153"
    assert words(out, "1 scores") == "1 scores 550 G 4.43 GB 124.1 HBM 2.64 ms 25 % HBM 1.32 ms 25 %"
    # flash2 runs on the A100 alone, flash3 on the H100 alone
    assert words(out, "4 attention").endswith("4136 tensor 1.11 ms 9.4 x – – –")
    assert words(out, "5 attention").endswith("4136 – – – tensor 1.11 ms 4.7 x")


def test_sizes_that_differ_between_gpus_have_a_column_each() -> None:
    other = make("flash3", replace(FLASH, bytes=400_000_000), gpu="a100", hardware="A100")
    out = table([other, FLASH3])
    assert words(out, "1 attention") == "1 attention 1.11 T 4136 400 MB tensor 1.11 ms 268 MB tensor 1.11 ms"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    out = table(BOTH, width=width)
    assert "…" not in out
    for number in ("1.32 ms", "2.56 ms", "5.21 ms", "1.11 ms"):
        assert number in out
    if width >= 40:
        assert max(map(len, out.splitlines())) <= width
    text = " ".join(out.split())
    assert ("Too narrow for: share" in text) == (width < 65)
    assert "8.59 GB of scores in" in text


def test_markup_is_not_eaten_and_colour_follows_the_argument_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "0")
    monkeypatch.setenv("COLUMNS", "30")
    out = table([make("mine[causal]", replace(SCORES, name="[bold]x"), SOFTMAX, notes=("see [red]",))])
    assert "mine[causal]" in out
    assert "1 [bold]x" in out
    assert "see [red]" in out
    assert "\x1b" not in out
    assert "\x1b[1m" in table(BOTH, color=True)


def test_notes_say_which_variant_they_are_about() -> None:
    out = table([replace(NAIVE, notes=("kept", "all")), replace(FLASH3, notes=("all",))])
    assert "Note: [naive] kept" in out
    assert "Note: all" in out


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    for width in range(40, 100):
        assert not any(row.endswith(("17.2", " 50")) for row in table(BOTH, width=width).splitlines())


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"T": 8192}, "batch 1 · 32 heads · T=8192 · d=128 · bf16 · no mask"),
        (
            {"T": 1, "S": 4096, "batch": 8, "kv_heads": 8, "dv": 64, "kv_dtype": "fp8"},
            "batch 8 · 32 heads · 8 KV heads · T=1 · S=4096 · d=128 · dv=64 · bf16 · KV fp8 · no mask",
        ),
        (
            {"T": 64, "causal": True, "window": 16, "layers": 4, "direction": "fwd+bwd"},
            "batch 1 · 32 heads · T=64 · d=128 · bf16 · causal window 16 · 4 layers · fwd+bwd",
        ),
    ],
)
def test_the_header_echoes_the_sizes(sizes: dict[str, Any], text: str) -> None:
    assert shape_line(replace(NAIVE, shape=Shape.of(**sizes))) == text


def test_numbers_run_through_all_variants_and_are_shared_by_gpus() -> None:
    found = numbers([NAIVE, replace(NAIVE, gpu="a100"), FLASH3])
    assert list(found.items())[3] == (("flash3", "attention", 0), 4)
    assert len(found) == 4


def test_a_kernel_bound_by_its_cache_says_what_makes_it_smaller() -> None:
    # K and V 4.295 GB each, Q 67 MB: 8.590 of 8.657 GB
    ledger = (line("Q", SMALL, "read", "q"), line("K", SQUARE, "read", "k"), line("V", SQUARE, "read", "v"))
    few = kernel("attention", 10**9, ledger, {"hbm": 2.6e-3}, units=32, waves=0.24, sm_use=0.24)
    text = " ".join(table([make("flash", few)]).split())
    assert "flash is bound by memory bandwidth; K and V are 99 % of its bytes, which fewer KV heads" in text
    assert "its 32 thread blocks reach only 24 % of the SMs" in text


def test_variants_that_agree_share_a_sentence() -> None:
    text = " ".join(table([FLASH3, make("flash2", FLASH)]).split())
    assert "flash3 and flash2 are bound by the tensor pipe; exp is at 50 % of it." in text
    other = make("flash3", replace(FLASH, roofs={"tensor": 1.1e-3, "exp": 0.88e-3}), gpu="b200")
    text = " ".join(table([FLASH3, other]).split())
    assert "flash3 on h100 is bound by the tensor pipe; exp is at 50 % of it." in text
    assert "flash3 on b200 is bound by the tensor pipe; exp is at 80 % of it." in text
