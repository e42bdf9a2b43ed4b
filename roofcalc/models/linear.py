"""Linear layers: a product of activations with a weight matrix that is read once."""

from __future__ import annotations

from roofcalc.core import BITS, Kernel, Limits, Tensor
from roofcalc.models.parts import gemm, product
from roofcalc.numeric import Num


def linear(
    name: str,
    *,
    m: Num,
    n: Num,
    k: Num,
    dtype: str = "bf16",
    weights: str | None = None,
    out: str | None = None,
    limits: Limits,
) -> Kernel:
    """Y = X W: `m` rows of `k` features to `n` features, 2 m n k FLOP; X, W and Y each charged once.

    `weights` is the dtype that W is stored in (default `dtype`), the product runs in `dtype`; `out` that of
    Y (default `dtype`, 16 bits where that has fewer).
    """
    out = out or (dtype if BITS[dtype] >= 16 else "bf16")
    x = Tensor("X", m * k, dtype, "m·k")
    w = Tensor("W", n * k, weights or dtype, "n·k")
    y = Tensor("Y", m * n, out, "m·n")
    return gemm(
        name,
        rows=m,
        columns=n,
        batch=1,
        work=product(2 * m * n * k, "2·m·n·k", dtype),
        accesses=(x.read(), w.read(), y.write()),
        limits=limits,
        dtype=dtype,
        family="linear",
        sizes={"m": m, "n": n, "k": k},
    )
