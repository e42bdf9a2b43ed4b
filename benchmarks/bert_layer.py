"""Where the FLOP and the time of a BERT-large layer go, beside what Ivanov et al. measured.

Ivanov et al. (arXiv:2007.00072) profile one encoder layer in PyTorch, forward and backward, by three classes of
operators: contractions 99.8 % of the FLOP and 61 % of the time, normalisations 0.17 % and 25.5 %, elementwise
0.03 % and 13.5 %. Sizes: batch 8, 512 tokens, hidden 1024, 16 heads, MLP 4096, recalled from the paper. Its GPU (a
V100, recalled) has no hardware file here; of those that have, the A100 is the nearest.

The counting rule: softmax 5 operations a score, its scale 1 and its dropout 2 (one class, as one fused kernel), its
gradient 4 and again 1 and 2; LayerNorm 7 an element forward (mean, variance, normalise, scale, shift), 9 for the
gradient of its input, 4 for that of its weights; 1 an element for every bias, activation, residual sum and dropout
and for their gradients. The sums of bias gradients are reductions and count as normalisations.

    python benchmarks/bert_layer.py [GPU]
"""

from __future__ import annotations

import sys
from dataclasses import replace

from roofcalc.core import Kernel, Limits, Plan, Report, Shape, Tensor
from roofcalc.estimate import estimate
from roofcalc.hardware import load
from roofcalc.models import variants
from roofcalc.models.linear import linear
from roofcalc.models.parts import elementwise

BATCH, TOKENS, HIDDEN, HEADS, WIDE = 8, 512, 1024, 16, 4096
ROWS = BATCH * TOKENS
PUBLISHED = {"contractions": (0.998, 0.61), "normalisations": (0.0017, 0.255), "elementwise": (0.0003, 0.135)}
ATTENTION = {"softmax": "normalisations", "scale": "normalisations", "dropout": "normalisations"}


def layer(limits: Limits, dtype: str = "fp16") -> Plan:
    """Every kernel of the layer, forward and backward, each with its class as its group."""
    shape = Shape.of(T=TOKENS, batch=BATCH, heads=HEADS, d=HIDDEN // HEADS, dtype=dtype, direction="fwd+bwd")
    attention = variants("attention")["eager"].plan(shape, limits, {"elementwise": "scale,softmax,dropout"})
    kernels = [replace(kernel, group=_class(kernel)) for kernel in attention.kernels]
    for name, inputs, outputs in (
        ("qkv", HIDDEN, 3 * HIDDEN), ("out", HIDDEN, HIDDEN), ("up", HIDDEN, WIDE), ("down", WIDE, HIDDEN),
    ):  # fmt: skip
        kernels += _linear(name, inputs, outputs, limits, dtype)
        kernels += [_step(f"{name}_bias", outputs, 1, 2, "elementwise", dtype)]
        kernels += [_step(f"{name}_bias_grad", outputs, 1, 1, "normalisations", dtype)]
    for name, width in (("out_dropout", HIDDEN), ("up_dropout", WIDE), ("down_dropout", HIDDEN), ("activation", WIDE)):
        kernels += [
            _step(name, width, 1, 2, "elementwise", dtype),
            _step(f"{name}_grad", width, 1, 3, "elementwise", dtype),
        ]
    for i in range(2):
        kernels += [_step(f"residual_{i}", HIDDEN, 1, 3, "elementwise", dtype)]
        kernels += [_step(f"residual_grad_{i}", HIDDEN, 1, 3, "elementwise", dtype)]
        for name, ops, passes in (("norm", 7, 2), ("norm_grad", 9, 3), ("norm_weights_grad", 4, 2)):
            kernels += [_step(f"{name}_{i}", HIDDEN, ops, passes, "normalisations", dtype)]
    return Plan("eager", shape, tuple(kernels), "arXiv:2007.00072")


def _class(kernel: Kernel) -> str:
    name = kernel.name.removeprefix("bwd_")
    return "normalisations" if name in (*ATTENTION, "ds") else "contractions"


def _linear(name: str, inputs: int, outputs: int, limits: Limits, dtype: str) -> list[Kernel]:
    """The product, and those of the gradients of its input and of its weights."""
    sizes = {"": (ROWS, outputs, inputs), "_dx": (ROWS, inputs, outputs), "_dw": (inputs, outputs, ROWS)}
    made = [linear(f"{name}{k}", m=m, n=n, k=inner, dtype=dtype, limits=limits) for k, (m, n, inner) in sizes.items()]
    return [replace(kernel, group="contractions") for kernel in made]


def _step(name: str, width: int, ops: int, passes: int, group: str, dtype: str) -> Kernel:
    """`ops` operations on each of ROWS x width elements, whose matrix passes the memory `passes` times."""
    x = Tensor("x", ROWS * width, dtype, "rows·width")
    lines = (*(x.read() for _ in range(max(1, passes - 1))), *([x.write()] if passes > 1 else []))
    family = "reduction" if group == "normalisations" else "stream"
    count = ops * ROWS * width
    return replace(elementwise(name, lines, count, count, f"{ops} · rows·width", family), group=group)


def shares(report: Report) -> dict[str, tuple[float, float, float]]:
    """Of each class its share of the useful FLOP, of the roofline time and of the expected time."""
    later = sum(row.expected or 0 for row in report.kernels)
    found = {}
    for name in PUBLISHED:
        rows = [row for row in report.kernels if row.group == name]
        flops, time = sum(row.flops for row in rows), sum(row.time for row in rows)
        expected = sum(row.expected or 0 for row in rows)
        found[name] = (flops / report.total.flops, time / report.total.time, expected / later)
    return found


def main() -> None:
    gpu = load(sys.argv[1] if len(sys.argv) > 1 else "a100")
    found = shares(estimate(layer(gpu.limits), gpu))
    print(f"{gpu.name:16}  {'FLOP':>8} {'published':>10}  {'roofline':>8} {'expected':>9} {'published':>10}")
    for name, (flops, time, expected) in found.items():
        published, measured = PUBLISHED[name]
        print(f"{name:16}  {flops:8.3%} {published:10.2%}  {time:8.1%} {expected:9.1%} {measured:10.1%}")


if __name__ == "__main__":
    main()
