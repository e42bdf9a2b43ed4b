"""``roofcalc models``: what a config.json says of a model."""

from __future__ import annotations

from typing import Any

from roofcalc.cli import flow
from roofcalc.cli.app import app
from roofcalc.cli.lookup import print_rows
from roofcalc.cli.options import FORMAT, OUTPUT, Given, argument, takes, word
from roofcalc.core import KV_DTYPES

NAME = argument("name", "A preset, a config.json or its folder.", required=False, metavar="NAME|FILE")
KV = word("kv_dtype", KV_DTYPES, "Type of the cached K and V; default bf16.", "Shape")


@app.command(rich_help_panel="Look up")
@takes(NAME, KV, FORMAT, OUTPUT)
def models(given: Given) -> None:
    """The model presets, or one model in full.

    Any Hugging Face config.json: roofcalc models ./config.json
    """
    flow.check_outputs(given)
    from roofcalc.hf import describe, load_model, preset_names

    if given["name"] is None:
        rows = [_row(describe(load_model(name), given["kv_dtype"])["model"]) for name in preset_names()]
        print_rows(given, "models", rows, _TEXT)
        return
    found = describe(load_model(given["name"], ""), given["kv_dtype"])["model"]
    if given["format"] in (None, "table"):
        from roofcalc.render.model_page import page

        flow.write(given, page(found))
    elif given["format"] == "json":
        from roofcalc.render.listing import to_json

        flow.write(given, to_json(model=found))
    else:
        print_rows(given, "model", [_row(found)], _TEXT)


_COLUMNS = ("name", "layers", "heads", "kv_heads", "head_dim", "hidden", "parameters", "kv_bytes_per_token")


def _row(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in _COLUMNS}


def _parameters(value: Any) -> str:
    from roofcalc.render.units import si

    return si(value)


def _exact(value: Any) -> str:
    return "–" if value is None else f"{value:,}"


_TEXT = {"parameters": _parameters, **dict.fromkeys(("heads", "kv_heads", "head_dim", "kv_bytes_per_token"), _exact)}
