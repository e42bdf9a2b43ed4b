"""The typer application that the commands register with."""

from __future__ import annotations

import os

import typer

from roofcalc import __version__

# pydantic looks through every installed package for plugins, a tenth of the whole start-up
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    name="roofcalc",
    help="What a GPU attention kernel will cost, before it is written: FLOPs, bytes, roofs, time.",
    epilog="Start with: roofcalc attention --T 8192 --gpu h100",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


class AnswerIsNo(Exception):
    """The question was asked well and the answer is no: exit code 1, after the result was printed."""


def _version(value: bool) -> None:
    if value:
        print(f"roofcalc {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
