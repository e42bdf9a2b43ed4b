"""``roofcalc attention`` and ``roofcalc plot``."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from roofcalc.cli import flow
from roofcalc.cli.app import app
from roofcalc.cli.options import (
    CACHE,
    KEYS,
    MACHINE,
    MASK,
    MODEL,
    PASS,
    RESULT,
    SIZES,
    TOKENS,
    VARIANT,
    Given,
    argument,
    number,
    takes,
    text,
    word,
)
from roofcalc.core import DTYPES, Report, RoofcalcError

ELEMENTWISE = text(
    "elementwise",
    "What eager runs on the scores: of scale, mask, softmax, dropout. Default scale,softmax, and mask if causal.",
    "Algorithm",
    "STEPS",
)
BLOCKS = (
    number("block_q", help="Rows of the query tile of a flash variant.", panel="Algorithm"),
    number("block_kv", help="Rows of its key tile.", panel="Algorithm"),
)
DTYPE = word("dtype", DTYPES, "Whose tensor peak is drawn; default bf16.", "Machine")
OPTIONS = ("elementwise", "block_q", "block_kv")


@app.command(rich_help_panel="Model")
@takes(TOKENS, KEYS, *SIZES, MASK, PASS, *MODEL, VARIANT, ELEMENTWISE, *BLOCKS, *MACHINE, CACHE, *RESULT)
def attention(given: Given) -> None:
    """Attention over T tokens, kernel by kernel.

    Prefill or training: roofcalc attention --T 8192 --gpu h100
    """
    flow.check_outputs(given)
    if given["T"] is None:
        raise RoofcalcError("attention needs --T, the number of query tokens, such as --T 8192")
    sizes, notes, _ = flow.model_sizes(given)
    found = flow.reports("attention", given, flow.shape_of(given, sizes), flow.machines(given), OPTIONS, notes)
    flow.emit("attention", given, found, after=_trade(found))


def _trade(found: Sequence[Report]) -> str:
    """For passes that recompute: the extra work of the last variant against the bytes that it saves."""
    if len(found) < 2 or found[0].shape.direction == "fwd" or found[0].variant not in ("naive", "eager"):
        return ""
    from roofcalc.compare_passes import trade

    pairs = [(found[0], other) for other in found[1:] if other.gpu == found[0].gpu and other.memory < found[0].memory]
    lines = [fill(f"{trade(stored, recomputed)}.", 118, subsequent_indent="  ") for stored, recomputed in pairs]
    return "".join(f"{line}\n" for line in lines)


@app.command(rich_help_panel="Explore")
@takes(argument("picture", "Where to draw: .png, .svg or .pdf.", required=True, metavar="FILE"), *MACHINE, DTYPE)
def plot(given: Given) -> None:
    """The rooflines of machines alone.

    Two side by side: roofcalc plot roof.png --gpu a100 --gpu h100
    """
    flow.check_outputs({"plot": given["picture"]})
    from roofcalc.estimate import peaks
    from roofcalc.render.plot import plot_machines

    dtype = given["dtype"] or "bf16"
    plot_machines({gpu.name: peaks(gpu, dtype) for gpu in flow.machines(given)}, given["picture"], dtype)
