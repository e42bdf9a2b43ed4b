"""The command line: parse, call, render. Importing it loads typer and nothing heavier."""

from roofcalc.cli.main import main

__all__ = ["main"]
