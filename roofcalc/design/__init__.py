"""A kernel of one's own, in YAML: read, checked against a GPU, and written out from a built-in variant."""

from __future__ import annotations

from roofcalc.design.export import export
from roofcalc.design.finding import Finding
from roofcalc.design.findings import findings
from roofcalc.design.fit import held
from roofcalc.design.load import Design, DesignError, DesignShape, TileVaries, load_design, parse_design
from roofcalc.design.schema import schema

__all__ = [
    "Design",
    "DesignError",
    "DesignShape",
    "Finding",
    "TileVaries",
    "export",
    "findings",
    "held",
    "load_design",
    "parse_design",
    "schema",
]
