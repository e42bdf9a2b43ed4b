"""``python -m roofcalc``."""

from roofcalc.cli import main

main()
