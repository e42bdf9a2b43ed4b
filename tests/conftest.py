"""What the tests share: GPUs, reports by name, and the command line run in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from roofcalc.cli import main
from roofcalc.core import Report, Shape
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.models import variants


@dataclass(frozen=True)
class Ran:
    """What a command line gave back."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `roofcalc ARGUMENTS` and give back its exit code, stdout and stderr."""

    def _run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as stop:
            main(list(arguments))
        out, err = capsys.readouterr()
        return Ran(int(stop.value.code or 0), out, err)

    return _run


def report(
    variant: str, gpu: str = "h100", command: Any = "attention", cache: str = "cold", **sizes: Any
) -> Report:
    """The report of a variant; keyword arguments that are no size go to the variant."""
    options = {name: sizes.pop(name) for name in list(sizes) if name in variants(command)[variant].options}
    hardware = load(gpu)
    return estimate(
        variants(command)[variant].plan(Shape.of(**sizes), hardware.limits, options), hardware, cache
    )


def refused(got: Ran, said: str) -> None:
    """Bad input: exit code 2, nothing on stdout, one line on stderr that says `said`."""
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith("roofcalc: ")
    assert got.err.count("\n") == 1
    assert said in got.err
