"""Designs that several tests read, and the findings about them."""

from __future__ import annotations

from typing import Any

from roofcalc.design import Finding, findings, parse_design
from roofcalc.estimate import estimate
from roofcalc.hardware import load

# The example of the interface document, word for word.
EXAMPLE = """\
name: fused rmsnorm + linear
params: {T: 1, D: 4096, N: 4096}          # -p overrides; a sweep or solve may vary them
dtype: bf16
tensors:                                   # symbolic shapes
  x: [T, D]
  w: {shape: [D, N]}
  y: {shape: [T, N], dtype: bf16}
kernels:
  - name: norm_linear
    reads: [x, w]                          # or {tensor: w, times: "ceil(T / 128)", tier: l2}
    writes: [y]
    work: {tensor: "2*T*D*N", vector: "4*T*D"}
    grid: "ceil(N / 128)"
    tile: {smem: "2*128*64*2 * 3", registers: 128, threads: 256, stages: 3}
"""

# The three kernels of standard attention as a user writes them, with the tile of a library's large product.
NAIVE = """\
name: my naive
params: {batch: 1, heads: 32, kv_heads: heads, T: 8192, S: T, d: 128, pairs: "batch*heads*T*S"}
tensors:
  Q: [batch, heads, T, d]
  K: [batch, kv_heads, S, d]
  V: [batch, kv_heads, S, d]
  O: [batch, heads, T, d]
  S: [batch, heads, T, S]
  P: [batch, heads, T, S]
kernels:
  - name: scores
    reads: [Q, K]
    writes: [S]
    work: {tensor: "2*pairs*d"}
    grid: "batch*heads*ceil(T / 128)*ceil(S / 128)"
    tile: {smem: 96 KiB, registers: 128, threads: 256, stages: 3, block_q: 128, block_kv: 128}
  - name: softmax
    reads: [S]
    writes: [P]
    work: {vector: "4*pairs", exp: pairs}
  - name: pv
    reads: [P, V]
    writes: [O]
    work: {tensor: "2*pairs*d"}
    grid: "batch*heads*ceil(T / 128)*ceil(d / 128)"
    tile: {smem: 96 KiB, registers: 128, threads: 256, stages: 3, block_q: 128, block_kv: 128}
"""

# Two kernels: y = a b (a product), z = y + 1. Every number is a power of two, so all can be done in the head.
CHAIN = """\
name: chain
params: {n: 1024}
tensors: {a: [n, n], b: [n, n], y: [n, n], z: [n, n]}
kernels:
  - name: product
    reads: [a, b]
    writes: [y]
    work: {tensor: "2*n**3"}
    grid: "(n / 128)**2"
    tile: {threads: 256, registers: 128, smem: 96 KiB}
  - name: add
    reads: [y]
    writes: [z]
    work: {vector: "n**2"}
    grid: 300
    tile: {threads: 1024, registers: 32}
"""


def found(text: str, gpu: str = "h100", **params: Any) -> list[Finding]:
    hardware = load(gpu)
    design = parse_design(text, params)
    return list(findings(design, estimate(design.plan, hardware), hardware))


def only(text: str, kind: str, gpu: str = "h100", kernel: str | None = None, **params: Any) -> Finding:
    """The one finding of a kind about a kernel (None: about the whole)."""
    matching = [f for f in found(text, gpu, **params) if f.kind == kind and f.kernel == kernel]
    assert len(matching) == 1, matching
    return matching[0]
