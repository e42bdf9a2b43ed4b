"""Where the command line meets its surroundings: pipes that close, full disks, terminals without Unicode."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran

Run = Callable[..., Ran]
ROOT = Path(__file__).parent.parent
TABLE = [sys.executable, "-m", "roofcalc", "attention", "--T", "8k"]
FULL = Path("/dev/full")


def started(*more: str, **how: object) -> subprocess.CompletedProcess[str]:
    """A table in a process of its own, with what a shell would give it."""
    environment = {**os.environ, **{key: str(value) for key, value in how.items() if key.isupper()}}
    return subprocess.run([*TABLE, *more], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_a_disk_that_is_full_is_one_line_and_exit_code_2() -> None:
    with FULL.open("w") as full:
        done = subprocess.run(TABLE, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("roofcalc: cannot write the result")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_read_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(TABLE, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_text_without_unicode_keeps_its_units() -> None:
    done = started("--explain", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "?" not in done.stdout
    assert "471 us" in done.stdout  # the L2 roof of scores: 4,429,185,024 B at 9.4 TB/s


def test_a_variant_that_cannot_run_is_left_out_unless_it_was_named(run: Run) -> None:
    out = run("attention", "--T", "8k", "--dtype", "fp32").out
    assert "naive" in out
    assert "flash3 on h100 is left out" in out
    named = run("attention", "--T", "8k", "--dtype", "fp32", "--variant", "flash3")
    assert (named.code, named.out) == (2, "")


def test_a_figure_that_others_are_derived_from_changes_alone_and_says_so(run: Run) -> None:
    out = run("attention", "--T", "8k", "--variant", "naive", "--set", "sms=10").out
    assert "leaves the peaks" in " ".join(out.split())


def test_flash3_on_an_a100_is_a_what_if(run: Run) -> None:
    asked = ("attention", "--T", "8k", "--d", "64", "--gpu", "a100", "--variant", "flash3")
    assert "written for Hopper" in run(*asked).out


def test_a_decoder_without_its_mask_is_pointed_out(run: Run) -> None:
    asked = ("attention", "--T", "8k", "--model", "mistral-7b", "--variant", "ideal")
    assert "add --causal" in run(*asked).out
    assert "add --causal" not in run(*asked, "--causal").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("attention", "--T"), "--T wants a value"),
        (("attention", "--T", "8", "extra"), "unexpected argument extra"),
        (("-T", "3"), "-T belongs to a command"),
        (("plot",), "FILE is missing"),
        (("attention", "--T", "8", "--variant", "naive,flash2"), "a --variant of its own"),
    ],
)
def test_the_parser_speaks_as_the_rest_does(run: Run, arguments: tuple[str, ...], said: str) -> None:
    got = run(*arguments)
    assert (got.code, got.out) == (2, "")
    assert said in got.err
