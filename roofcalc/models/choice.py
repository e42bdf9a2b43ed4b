"""Which variants a command runs: the named ones, all of them, or those that fit the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from roofcalc.models import Command, Variant, VariantError, variants

GENERATIONS = {"ampere": "flash2", "ada": "flash2", "hopper": "flash3", "blackwell": "flash3"}
"""The FlashAttention generation whose library is written for an architecture (arXiv:2307.08691, 2407.08608)."""

NEEDS_HOPPER = "flash3 is written for Hopper (TMA, WGMMA): this GPU cannot run it, so read its row as what if"
STAND_IN = "flash3 stands in for a Blackwell kernel, which is not modelled yet"


def choose(
    command: Command, names: Sequence[str], architecture: str
) -> tuple[list[Variant], dict[str, tuple[str, ...]]]:
    """The variants to run on a GPU of `architecture`, and notes by variant. Raises VariantError."""
    known = variants(command)
    if "all" in names:
        return list(known.values()), {}
    if names:
        chosen = [_named(name, command, known) for name in dict.fromkeys(names)]
        needs: dict[str, tuple[str, ...]] = {"flash3": (NEEDS_HOPPER,)} if GENERATIONS[architecture] == "flash2" else {}
        return chosen, needs
    if command == "decode":
        return [known[name] for name in ("naive", "flash", "split-kv")], {}
    flash = GENERATIONS[architecture]
    notes: dict[str, tuple[str, ...]] = {flash: (STAND_IN,)} if architecture == "blackwell" else {}
    return [known["naive"], known[flash]], notes


def _named(name: str, command: Command, known: Mapping[str, Variant]) -> Variant:
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}" if near else f"; choose from {', '.join(known)} or all"
    if "," in name:
        hint = "; name each with a --variant of its own"
    other: Command = "decode" if command == "attention" else "attention"
    if name in variants(other):
        hint = f"; {name} is a variant of `roofcalc {other}`"
    raise VariantError(f"--variant {name!r} is not known to {command}{hint}")


def options_for(chosen: Sequence[Variant], typed: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Notes on the options that a variant ignores. Raises VariantError for one that none of them uses."""
    notes: dict[str, tuple[str, ...]] = {}
    for option in typed:
        users = [variant.name for variant in chosen if option in variant.options]
        flag = f"--{option.replace('_', '-')}"
        if not users:
            raise VariantError(
                f"{flag} is used by none of the chosen variants ({', '.join(v.name for v in chosen)})"
            )
        for variant in chosen:
            if option not in variant.options:
                notes[variant.name] = (*notes.get(variant.name, ()), f"{flag} is not used by {variant.name}")
    return notes
