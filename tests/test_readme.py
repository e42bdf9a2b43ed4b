"""What the README shows is what the commands print, and every command that it names exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^    \$ roofcalc (.*)\n((?:(?:    .*)?\n)*)", README, re.MULTILINE)
NAMED = [
    command
    for command in re.findall(r"`roofcalc ([^`]*)`", README)
    if not re.search(r"[A-Z]{4}|\[|>|mine|my_kernel|my\.csv", command)
]

Run = Callable[..., Ran]


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_readme_shows_what_is_printed(run: Run, command: str, output: str) -> None:
    wanted = [line[4:].rstrip() for line in output.rstrip().splitlines()]
    assert [line.rstrip() for line in run(*shlex.split(command)).out.splitlines()] == wanted


@pytest.mark.parametrize("command", NAMED)
def test_every_command_of_the_readme_runs(
    run: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert run(*shlex.split(command)).code == 0


def test_every_command_is_in_the_readme(run: Run) -> None:
    listed = re.findall(r"^│ ([a-z]+) ", run("--help").out, re.MULTILINE)
    assert len(listed) >= 8
    for command in listed:
        assert f"roofcalc {command}" in README


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert "('attention', 'tensor')" in capsys.readouterr().out
