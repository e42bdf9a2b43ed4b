"""``roofcalc validate``: predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from roofcalc.cli import flow
from roofcalc.cli.app import AnswerIsNo, app
from roofcalc.cli.options import FORMAT, MACHINE, OUTPUT, Given, argument, several, takes, text
from roofcalc.core import RoofcalcError

FILE = argument("file", "A measurement file (.csv or .csv.gz); without one, H200 timings that ship with roofcalc.",
                required=False, metavar="MEASUREMENTS.csv")  # fmt: skip
WHERE = text("where", "Only rows for which this holds: 'op=decode and S ge 8192'.", "Rows", "STATEMENT")
BY = text("by", "Group by these columns; default gpu,op,variant,library.", "Rows", "COLUMNS")
LIMIT = several("limit", "Exit 1 when a group's expected error is above it: median=0.1, p90=0.3.", "Rows", "NAME=VALUE")
PLOT = text("plot", "Draw predicted against measured into FILE (.png, .svg, .pdf).", "Output", "FILE")


@app.command(rich_help_panel="Measure")
@takes(FILE, WHERE, BY, LIMIT, MACHINE[1], FORMAT, PLOT, OUTPUT)
def validate(given: Given) -> None:
    """Predicted against measured times, by group.

    Errors are |predicted / measured - 1|, bias the median of predicted / measured. A file has a header line
    with gpu, op, variant, library, batch, heads, kv_heads, T, S, d, causal, dtype, m, n, k, time_s (seconds)
    and more; the README has an example.
    """
    flow.check_outputs(given)
    from roofcalc.measured import read, select
    from roofcalc.render import accuracy
    from roofcalc.validation import BY as GROUPS
    from roofcalc.validation import over_limit
    from roofcalc.validation import validate as validated

    rows = select(read(Path(given["file"]) if given["file"] else _bundled()), given["where"])
    if not len(rows):
        raise RoofcalcError("no row is left to validate; look at --where and at the file")
    by: Sequence[str] = given["by"].split(",") if given["by"] else GROUPS
    found = validated(rows, given["set"] or (), by)
    if found.total is None:
        reasons = "; ".join(reason for reason, _ in found.skipped) or "no row has an op that is predicted"
        raise RoofcalcError(f"nothing to validate: {reasons}")
    limits = over_limit(found, given["limit"] or ())
    match given["format"] or "table":
        case "json":
            out = accuracy.json_text(found)
        case "csv":
            out = accuracy.csv_text(found)
        case "markdown":
            out = accuracy.markdown(found)
        case _:
            out = accuracy.table(found, width=flow.width(given))
            out += "".join(f"above --limit: {line}\n" for line in limits)
    flow.write(given, out)
    if given["plot"]:
        from roofcalc.render.scatter import plot_validation

        plot_validation(found, given["plot"])
    if limits:
        raise AnswerIsNo


def _bundled() -> Path:
    return Path(str(files("roofcalc"))) / "measurements" / "h200.csv.gz"
