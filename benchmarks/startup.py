"""Cold start of the command line, as ratios to ``python -c pass``.

Run it with the Python that has roofcalc installed: ``.venv/bin/python benchmarks/startup.py``. The two
commands of a pair take turns, so that a machine whose speed drifts does not tilt the ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
ROOFCALC = str(Path(sys.executable).with_name("roofcalc"))
COMMANDS = {
    "roofcalc --help": [ROOFCALC, "--help"],
    "roofcalc attention --T 8192": [ROOFCALC, "attention", "--T", "8192"],
}


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    empty = [sys.executable, "-c", "pass"]
    for name, command in COMMANDS.items():
        seconds(empty), seconds(command)  # warm the file cache
        pairs = [(seconds(command), seconds(empty)) for _ in range(ROUNDS)]
        ratio = statistics.median(a / b for a, b in pairs)
        print(
            f"{name:32s} {statistics.median(a for a, _ in pairs) * 1e3:6.0f} ms   {ratio:5.1f} x python -c pass"
        )


if __name__ == "__main__":
    main()
