"""The kernels of one layer in their order, whatever the model's family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roofcalc.core import Access, Kernel, Tensor
from roofcalc.models.elementwise import Style, renamed, residual_add, rmsnorm
from roofcalc.models.step_mixers import (
    Tokens,
    absorbed,
    append,
    attention_kernels,
    rotations,
    state_kernels,
)
from roofcalc.models.step_mlp import mlp_kernels
from roofcalc.models.step_weights import Held, Launch, Setting, launches, product, read, vectors

if TYPE_CHECKING:
    from roofcalc.hf import Attention, Layer

HIDDEN_NORMS = ("norms", "shared.norms")
"""The vectors that hold a layer's norms of the hidden width, all of them in one."""

NORM_NAMES = {
    1: ("in_norm",),
    2: ("in_norm", "mlp_norm"),
    3: ("in_norm", "attn_norm", "mlp_norm"),
    4: ("in_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm"),
}


def layer_kernels(
    layer: Layer, held: Sequence[Held], hidden: int, at: Setting, of: Tokens, rotates: bool
) -> tuple[Kernel, ...]:
    """One layer: norm, projections, mixer, output projection, residual, norm, MLP, residual.

    Parallel layers add attention and MLP in one residual. Every weight of the layer is read once, of
    experts the touched ones; of a cross-attention layer K and V are not projected again at decode.
    """
    found = launches(held)
    loose = vectors(held, found)
    norms = _norms(layer, loose, hidden, at, of.style)
    mixer = [one for one in found if one.part in ("attention", "ssm") or one.name == "linear_attn"]
    mlp = [one for one in found if one not in mixer and one.part in ("mlp", "experts", "router")]
    other = [one for one in found if one not in mixer and one not in mlp]
    mixed, mixed_out = _mixer(layer, mixer, loose, at, of, rotates)
    dense, dense_out = mlp_kernels(layer.mlp, mlp, "x_mlp" if "mlp_norm" in norms else "x", at, of.style)
    kernels: list[Kernel] = [norms[name] for name in ("in_norm", "attn_norm") if name in norms]
    kernels += [*mixed, *_named(norms, "post_attn_norm", mixed_out)]
    if mixed and not layer.parallel:
        kernels += [_residual("residual", mixed_out, hidden, at)]
    kernels += [norms["mlp_norm"]] if "mlp_norm" in norms else []
    kernels += [*dense, *_named(norms, "post_mlp_norm", dense_out)]
    if layer.parallel or dense:
        outs = (*mixed_out, *dense_out) if layer.parallel else dense_out
        kernels += [_residual("residual_mlp" if mixed and not layer.parallel else "residual", outs, hidden, at)]
    kernels += [product(one, at, "h") for one in other]
    return _with_rest(kernels, layer, loose, at)


def _named(norms: dict[str, Kernel], name: str, outs: Sequence[str]) -> list[Kernel]:
    """A norm after a block: it takes and gives the block's result."""
    return [renamed(norms[name], h=outs[0], x=outs[0], x_mlp=outs[0])] if name in norms and outs else []


def _norms(layer: Layer, loose: Sequence[Held], hidden: int, at: Setting, style: Style) -> dict[str, Kernel]:
    """The norms of the hidden width, each with its share of the weights."""
    mine = [one for one in loose if one.weight.name in HIDDEN_NORMS]
    names = NORM_NAMES.get(layer.norms, tuple(f"norm_{i}" for i in range(layer.norms)))
    found = {}
    for i, name in enumerate(names):
        share = _share(sum(one.weight.elements for one in mine), len(names), i)
        result = "x_mlp" if name == "mlp_norm" else "x"
        found[name] = norm_kernel(name, at.tokens, hidden, share, at, style, "h", result)
    return found


def _share(total: int, parts: int, i: int) -> int:
    """The i-th of `parts` shares that add up to `total`."""
    return total * (i + 1) // parts - total * i // parts


def norm_kernel(name: str, rows: int, n: int, weights: int, at: Setting, style: Style, x: str, y: str) -> Kernel:
    """RMSNorm (or LayerNorm) over rows of n that reads `weights` numbers of its own."""
    (kernel,) = rmsnorm(rows, n, at.dtype, "torch" if style == "eager" else style)
    kept = tuple(a for a in kernel.accesses if a.tensor != "w")
    own = (Tensor(f"w_{name}", weights, at.dtype, "n").read(),) if weights else ()
    return renamed(replace(kernel, accesses=(*kept, *own)), name, "elementwise", x=x, y=y)


def _residual(name: str, outs: Sequence[str], hidden: int, at: Setting) -> Kernel:
    """The residual stream plus what one block or several gave."""
    kernel = renamed(residual_add(at.tokens, hidden, at.dtype), name, "elementwise", x=outs[0], residual="h", y="h")
    more = tuple(Tensor(out, at.tokens * hidden, at.dtype, "m·n").read() for out in outs[1:])
    work = tuple(replace(w, ops=w.ops * len(outs), why=f"{len(outs)} · elements") for w in kernel.work)
    return replace(kernel, work=work, accesses=(*more, *kernel.accesses))


def _mixer(
    layer: Layer, found: Sequence[Launch], loose: Sequence[Held], at: Setting, of: Tokens, rotates: bool
) -> tuple[list[Kernel], tuple[str, ...]]:
    """Projections, attention with its cache or a state, output projections; and the names of their results."""
    before: list[Kernel] = []
    after: list[Kernel] = []
    a, s = layer.attention, layer.state
    norm = next((one for one in loose if one.weight.name.endswith("qk_norm")), None)
    rotates = rotates and a is not None and a.kind != "cross"
    middle: list[Kernel] = []
    late: list[Kernel] = []
    for one in found:
        if a is not None and a.kind == "mla" and one.name == "kv_b" and not of.prefill:
            q_side, v_side = absorbed(a, one, at)
            late.append(q_side)
            after.append(v_side)
        elif one.leads_out:
            after.append(product(one, at, "O" if one.part == "attention" else "O_state"))
        elif one.part == "ssm" and one.name in ("x", "dt"):
            middle.append(product(one, at, "conv_out" if one.name == "x" else "x"))
        elif one.name == "qkv" and a is not None:
            before.append(_qkv(one, a, norm is not None or rotates, at, of))
        else:
            before.append(_projection(one, at))
    if a is not None:
        before += rotations(a, at, of, norm, rotates)
        before += [*late, *append(a, at, of), *attention_kernels(a, at, of)]
    if s is not None:
        inputs = sum(
            one.outputs for one in found if one.part == "ssm" and not one.leads_out and one.name not in ("x", "dt")
        )
        own = [one for one in loose if one.weight.part == "ssm"]
        kernels = state_kernels(s, inputs, own, at, of)
        before += [*(k for k in kernels if k.name == "conv"), *middle, *(k for k in kernels if k.name == "state")]
    outs = tuple(kernel.accesses[-1].tensor for kernel in after if kernel.name != "v_absorb")
    return [*before, *after], outs or (("O",) if before else ())


def _projection(one: Launch, at: Setting) -> Kernel:
    """A projection to a mixer; the low-rank ones of latent attention take each other's results."""
    kernel = product(one, at, {"q_b": "q_a", "kv_b": "kv_latent"}.get(one.name, "x"))
    return renamed(kernel, q_b="q", q="q", kv_a="kv_latent") if one.part == "attention" else kernel


def _qkv(one: Launch, a: Attention, changed: bool, at: Setting, of: Tokens) -> Kernel:
    """Q, K and V side by side in one launch; of cross-attention at decode only Q, its K and V are cached."""
    kept = one.matrices
    if a.kind == "cross" and not of.prefill:
        kept = tuple(h for h in kept if h.weight.name.endswith((".q_proj", ".gate_proj")))
    names = {"q": "q" if changed else "Q", "k": "k" if changed else "K_new", "v": "V_new", "gate": "O_gate"}
    lines: tuple[Access, ...] = tuple(
        Tensor(
            names[h.weight.name.removesuffix("_proj").rpartition(".")[2]], at.tokens * h.weight.outputs, at.dtype, "m·n"
        ).write()
        for h in kept
    )
    return product(replace(one, matrices=kept), at, "x", lines)


def _with_rest(kernels: Sequence[Kernel], layer: Layer, loose: Sequence[Held], at: Setting) -> tuple[Kernel, ...]:
    """The remaining vectors: norms of other widths as kernels of their own, all else with the first kernel."""
    done = [one for one in loose if one.weight.name in HIDDEN_NORMS or one.weight.name.endswith("qk_norm")]
    done += [one for one in loose if layer.state is not None and one.weight.part == "ssm"]
    rest = [one for one in loose if one not in done]
    norms = [one for one in rest if one.weight.part == "norms"]
    after = {
        "q_a_layernorm": "q_a_proj", "kv_a_layernorm": "kv_a_proj", "ffn_sub_norm": "gate_up",
        "norm": "state", "o_norm": "state", "norms": "x_proj",
    }  # fmt: skip
    result = list(kernels)
    for one in norms:
        leaf, n = one.weight.name.rpartition(".")[2], one.weight.elements
        x = {"q_a_layernorm": "q_a", "kv_a_layernorm": "kv_latent", "norm": "O_state", "o_norm": "O_state"}.get(
            leaf, leaf
        )
        name = f"state_{leaf}" if x == "O_state" or leaf == "norms" else leaf
        kernel = norm_kernel(name, at.tokens, n, n, at, "fused", x, x)
        place = next((i for i, k in enumerate(result) if k.name == after.get(leaf)), len(result) - 1)
        result.insert(place + 1, kernel)
    others = [one for one in rest if one.weight.part != "norms"]
    if others and result:
        result[0] = replace(result[0], accesses=(*result[0].accesses, *read("w_other", others, at.dtype, why="n")))
    return tuple(result)
