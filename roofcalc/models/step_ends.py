"""What a step runs before its layers and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roofcalc.core import Kernel
from roofcalc.models.elementwise import embedding_row
from roofcalc.models.step_layers import norm_kernel
from roofcalc.models.step_mixers import Tokens
from roofcalc.models.step_weights import Held, Setting, launches, product, read, vectors


def around(held: Sequence[Held], hidden: int, at: Setting, of: Tokens) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
    """What runs before the layers and after them: embedding rows; final norm and head, for one row a sequence.

    The vision tower is no part of it. A tied table is read whole, by the head.
    """
    text = [one for one in held if one.weight.part != "vision"]
    tables = [one.weight for one in text if one.weight.role == "table"]
    found = launches(text)
    loose = vectors(text, found)
    rows = embedding_row(at.tokens, hidden, at.dtype, len(tables))
    widths = sum(w.inputs for w in tables)
    lines = tuple(replace(a, elements=at.tokens * w.inputs) for a, w in zip(rows.accesses, tables, strict=False))
    embed = replace(
        rows, accesses=(*lines, rows.accesses[-1]), sizes={**rows.sizes, "elements": at.tokens * widths}, group="head"
    )
    last = of.batch if of.T > 1 else at.tokens
    early = [one for one in found if one.part != "lm_head" and "out" not in one.name]
    norms = {one.weight.name.rpartition(".")[2]: one for one in loose if one.weight.part == "norms"}
    before = [embed, *(replace(product(one, at, "h"), group="head") for one in early)]
    after: list[Kernel] = []
    for name, one in norms.items():
        first = name.startswith(("embed", "per_layer"))
        n = one.weight.elements
        called = "final_norm" if name == "norm" and not first else name
        kernel = norm_kernel(
            called, at.tokens if first else last, min(n, hidden), n, at, of.style, "h", "h" if first else "x_head"
        )
        (before if first or one.weight.name == "embeddings.norm" else after).append(replace(kernel, group="head"))
    late = sorted((one for one in found if one not in early), key=lambda one: one.name == "lm_head")
    after += [replace(product(one, at, "x_head", rows=last), group="head") for one in late]
    strays = [one for one in loose if one.weight.part != "norms"]
    if strays and after:
        after[-1] = replace(after[-1], accesses=(*after[-1].accesses, *read("w_head", strays, at.dtype, why="n")))
    return tuple(before), tuple(after)
