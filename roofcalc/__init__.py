"""roofcalc: what a GPU kernel will cost, before it is written."""

__version__ = "0.1.0"
