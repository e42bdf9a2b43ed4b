"""The program as a whole: run a command, and turn an error into one line and an exit code."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, NoReturn

import typer

from roofcalc.cli.app import AnswerIsNo, app
from roofcalc.cli.plain import prepare_streams
from roofcalc.core import RoofcalcError


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line and exit: 0 fine, 1 the answer is no, 2 the input is wrong (one line on stderr)."""
    prepare_streams()
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        code = 0
    except OSError as error:
        _forget_stdout()
        code = _refuse(f"cannot write the result: {error.strerror or error}")
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _forget_stdout() -> None:
    """Nothing more can be written there, so the interpreter must not try when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    import roofcalc.cli.commands  # noqa: F401 - registers the commands

    command = typer.main.get_command(app)
    try:
        _refuse_long_with_one_dash(arguments, command)
        result = command.main(arguments, prog_name="roofcalc", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except RoofcalcError as error:
        return _refuse(str(error))
    except AnswerIsNo:
        return 1
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _refuse(_usage(error))


def _refuse(message: str) -> int:
    print(f"roofcalc: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _options(command: Any) -> set[str]:
    """Every option of a command and of those below it."""
    own = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts) if opt.startswith("-")}
    return own.union(*(_options(sub) for sub in getattr(command, "commands", {}).values()))


def _refuse_long_with_one_dash(arguments: list[str], command: Any) -> None:
    """`-dv 3` would be read as `-d v`: say what was meant."""
    known = _options(command)
    for argument in arguments:
        if argument == "--":
            return
        name = re.match(r"-([A-Za-z][\w-]+)(=.*)?$", argument)
        if name and f"--{name[1]}" in known:
            raise RoofcalcError(f"no such option {argument}; did you mean --{name[1]}")


def _usage(error: Any) -> str:
    """One line for a usage error of the parser: the option, what was found, the nearest valid name."""
    name = type(error).__name__
    if name == "NoSuchOption":
        own = _options(error.ctx.command)
        if error.option_name in own:
            return f"{error.option_name} belongs to a command; `roofcalc --help` lists them"
        return f"no such option {error.option_name}{_nearest(error.option_name, own)}"
    if name == "BadOptionUsage":
        return f"{error.option_name} wants a value"
    param = getattr(error, "param", None)
    if name in ("BadParameter", "MissingParameter") and param is not None:
        label = param.opts[0] if param.opts[0].startswith("-") else param.metavar or param.name.upper()
        if name == "MissingParameter":
            return f"{label} is missing; `roofcalc {error.ctx.command.name} --help` says what it is"
        return f"{label}: {error.message}"
    text = str(error.format_message()).rstrip(".")
    if match := re.match(r"No such command '(.*?)'", text):
        return f"no such command {match[1]!r}{_nearest(match[1], error.ctx.command.commands)}"
    if match := re.match(r"Got unexpected extra argument.*? \((\w.*)\)", text):
        return f"unexpected argument {match[1]}; an option that takes several values is given once for each"
    return text


def _nearest(found: str, names: Any) -> str:
    from roofcalc.quantities import nearest

    return nearest(found, sorted(names))
