"""Algorithms run in NumPy on tiles, with every access to slow memory counted.

A count comes from slicing arrays and the ledger from formulas; where both agree, tensor by tensor, each is
a witness for the other.
"""

from __future__ import annotations

from roofcalc.simulate.run import VARIANTS, verify
from roofcalc.simulate.show import show_online_softmax
from roofcalc.simulate.verification import TensorCount, Verification

__all__ = ["VARIANTS", "TensorCount", "Verification", "show_online_softmax", "verify"]
