"""Text on a terminal or pipe that has no Unicode: letters that say the same, never a question mark."""

from __future__ import annotations

import codecs
import sys

_ASCII = {
    "µ": "u",
    "μ": "u",
    "·": "*",
    "×": "x",
    "–": "-",
    "—": "-",
    "−": "-",
    "ᵀ": "^T",
    "²": "^2",
    "√": "sqrt ",
    "⌈": "ceil(",
    "⌉": ")",
    "≤": "<=",
    "≥": ">=",
    "∘": "o",
    "✗": "x",
    "…": "...",
    "φ": "phi",
}


def _spell(error: UnicodeError) -> tuple[str, int]:
    """The characters that an encoding lacks, spelled in ASCII (``?`` for those without a spelling)."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_ASCII.get(char, "?") for char in missing), error.end


def prepare_streams() -> None:
    """Let stdout and stderr spell what their encoding lacks instead of failing on it."""
    codecs.register_error("spell", _spell)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="spell")
