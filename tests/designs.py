"""Designs that several tests read."""

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
