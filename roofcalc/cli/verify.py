"""``roofcalc verify``: an algorithm run in NumPy, its traffic counted, its result compared."""

from __future__ import annotations

from typing import Any

from roofcalc.cli import flow
from roofcalc.cli.app import AnswerIsNo, app
from roofcalc.cli.attention import BLOCKS, ELEMENTWISE
from roofcalc.cli.options import (
    FORMAT,
    KEYS,
    MACHINE,
    MASK,
    OUTPUT,
    PASS,
    SIZES,
    TOKENS,
    Given,
    argument,
    number,
    takes,
    word,
)
from roofcalc.core import RoofcalcError

VARIANT = argument("variant", "The algorithm: flash2, naive, split-kv, ...", required=False)
SPLITS = number("splits", help="Splits of the keys, for split-kv.", panel="Algorithm")
SHOW = word("show", ("online-softmax",), "Walk through the algebra on a small row.", "Output")
OPTIONS = ("elementwise", "block_q", "block_kv", "splits")


@app.command(rich_help_panel="Design")
@takes(VARIANT, TOKENS, KEYS, *SIZES, MASK, PASS, ELEMENTWISE, *BLOCKS, SPLITS, SHOW, *MACHINE, FORMAT, OUTPUT)
def verify(given: Given) -> None:
    """Run an algorithm in NumPy and count what it moves.

    It is a small example unless sizes are given: one head, d 64, 1024 queries and keys (for split-kv one query).

    The count is held against the ledger, tensor by tensor, and the result against
    softmax(Q Kᵀ) V in float64: roofcalc verify flash2 --T 1024 --d 64
    """
    flow.check_outputs(given)
    if given["show"]:
        from roofcalc.simulate import show_online_softmax

        flow.write(given, show_online_softmax())
        return
    if given["variant"] is None:
        from roofcalc.simulate import VARIANTS

        raise RoofcalcError(f"verify needs a variant: {', '.join(VARIANTS)}; or --show online-softmax")
    done = _run(given)
    if given["format"] == "json":
        from roofcalc.render.listing import to_json

        flow.write(given, to_json(**{key: value for key, value in done.to_dict().items() if key != "schema"}))
    elif given["format"] in (None, "table"):
        flow.write(given, done.to_text())
    else:
        raise RoofcalcError(f"--format {given['format']} is not one of verify's: table, json")
    if not done.agree:
        raise AnswerIsNo


def _run(given: Given) -> Any:
    from roofcalc.simulate import verify

    sizes = {"T": 1024, "d": 64, "heads": 1, **({"S": 1024} if given["variant"] == "split-kv" else {})}
    if given["variant"] == "split-kv":
        sizes["T"] = 1
    options = {name: given[name] for name in OPTIONS if given[name] is not None}
    return verify(given["variant"], flow.shape_of(given, sizes), flow.machines(given)[0].limits, options)
