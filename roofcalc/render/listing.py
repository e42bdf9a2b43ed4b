"""Lists that are looked up (GPUs, variants, models): one set of rows, every format."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = 1


def to_json(**body: Any) -> str:
    """A JSON document of schema 1, with None as null and no NaN or infinity."""
    return json.dumps({"schema": SCHEMA, **body}, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def columns(rows: Sequence[Mapping[str, str]], *, right: Sequence[str] = (), width: int | None = None) -> str:
    """Text rows as aligned columns under their names; `right` are flush right, the last column wraps.

    Without a terminal's `width` nothing is wrapped or cut.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    names = list(rows[0])
    for name in names:
        last = name == names[-1]
        table.add_column(
            Text(name), justify="right" if name in right else "left", no_wrap=not last, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(row[name]) for name in names))
    out = io.StringIO()
    console = Console(file=out, width=width or 10_000, color_system=None, highlight=False)
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV; None is an empty cell."""
    import csv

    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """The rows as a Markdown table."""
    cells = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in cells
    )
