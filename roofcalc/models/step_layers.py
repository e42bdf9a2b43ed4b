"""The kernels of one layer in their order, and those around the layers, whatever the model's family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roofcalc.core import Access, Kernel, Tensor
from roofcalc.models.elementwise import (
    Style,
    activation,
    embedding_row,
    mul,
    renamed,
    residual_add,
    rmsnorm,
    silu,
    silu_mul,
)
from roofcalc.models.parts import elementwise
from roofcalc.models.step_mixers import (
    Tokens,
    absorbed,
    append,
    attention_kernels,
    rotations,
    state_kernels,
)
from roofcalc.models.step_weights import Held, Launch, Setting, launches, product, read, vectors
from roofcalc.numeric import Num

if TYPE_CHECKING:
    from roofcalc.hf import Attention, Layer, Mlp

HIDDEN_NORMS = ("norms", "shared.norms")
"""The vectors that hold a layer's norms of the hidden width, all of them in one."""

NORM_NAMES = {
    1: ("in_norm",),
    2: ("in_norm", "mlp_norm"),
    3: ("in_norm", "attn_norm", "mlp_norm"),
    4: ("in_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm"),
}


def layer_kernels(layer: Layer, held: Sequence[Held], hidden: int, at: Setting, of: Tokens, rotates: bool) -> tuple[Kernel, ...]:
    """One layer: norm, projections, mixer, output projection, residual, norm, MLP, residual.

    Parallel layers add attention and MLP in one residual. Every weight of the layer is read once, of
    experts the touched ones; of a cross-attention layer K and V are not projected again at decode.
    """
    found = launches(held)
    loose = vectors(held, found)
    norms = _norms(layer, loose, hidden, at, of.style)
    mixer = [one for one in found if one.part in ("attention", "ssm") or one.name == "linear_attn"]
    mlp = [one for one in found if one.part in ("mlp", "experts") or one.name == "router" and one not in mixer]
    other = [one for one in found if one not in mixer and one not in mlp]
    mixed, mixed_out = _mixer(layer, mixer, loose, at, of, rotates)
    dense, dense_out = _mlp(layer.mlp, mlp, "x_mlp" if "mlp_norm" in norms and not layer.parallel else "x", at, of.style)
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
        inputs = sum(one.outputs for one in found if one.part == "ssm" and not one.leads_out and one.name not in ("x", "dt"))
        own = [one for one in loose if one.weight.part == "ssm"]
        kernels = state_kernels(s, inputs, own, at, of)
        before += [*(k for k in kernels if k.name == "conv"), *middle, *(k for k in kernels if k.name == "state")]
    outs = tuple(kernel.name for kernel in after if kernel.name != "v_absorb")
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
        Tensor(names[h.weight.name.removesuffix("_proj").rpartition(".")[2]], at.tokens * h.weight.outputs, at.dtype, "m·n").write()
        for h in kept
    )
    return product(replace(one, matrices=kept), at, "x", lines)


def _mlp(mlp: Mlp | None, found: Sequence[Launch], x: str, at: Setting, style: Style) -> tuple[list[Kernel], tuple[str, ...]]:
    """Every MLP of a layer (dense, routed, shared): in, activation, out; a mixture chooses and adds up too."""
    kernels: list[Kernel] = []
    outs: list[str] = []
    for one in found:
        if one.leads_out:
            before = kernels[-1].accesses[-1].tensor if kernels else x
            kernels.append(product(one, at, before))
            if one.experts and mlp is not None:
                kernels.append(_weighted_sum(one, mlp, at))
            outs.append(kernels[-1].accesses[-1].tensor)
            continue
        kernels.append(product(one, at, x, _halves(one, mlp, at)))
        if one.name == "router" and mlp is not None:
            kernels.append(_choose_experts(one, mlp, at))
        kernels += _activation(one, mlp, at, style)
    return kernels, tuple(outs) or ((kernels[-1].accesses[-1].tensor,) if kernels else ())


def _halves(one: Launch, mlp: Mlp | None, at: Setting) -> tuple[Access, ...]:
    """The results of a gate-up product apart, as the activation reads them; nothing for other launches."""
    head = _into_activation(one)
    if head is None or not (mlp is None or mlp.gated):
        return ()
    half = one.rows(at.tokens) * one.outputs // 2
    return tuple(Tensor(f"{head}{part}", half, at.dtype, "m·n").write() for part in ("gate", "up"))


def _into_activation(one: Launch) -> str | None:
    """What stands before `gate_up` or `up` in a launch's name; None where no activation follows it."""
    head, joint, leaf = one.name.rpartition("gate_up" if one.name.endswith("gate_up") else "up")
    return None if leaf or not joint or head.startswith("adapter") else head


def _activation(one: Launch, mlp: Mlp | None, at: Setting, style: Style) -> list[Kernel]:
    """What follows a matrix into the MLP: SiLU of the gate times up, or a function alone."""
    head = _into_activation(one)
    if head is None:
        return []
    rows, gated = one.rows(at.tokens), mlp is None or mlp.gated
    if not gated:
        return [renamed(activation(rows, one.outputs, at.dtype), f"{head}activation", "elementwise", x=one.name, y=f"{head}act")]
    width, act = one.outputs // 2, f"{head}act"
    if style == "eager":
        first = renamed(silu(rows, width, at.dtype), f"{head}silu", "elementwise", x=f"{head}gate", y=f"{head}silu")
        second = renamed(mul(rows, width, at.dtype), f"{head}mul", "elementwise", x=f"{head}silu", up=f"{head}up", y=act)
        return [first, second]
    (kernel,) = silu_mul(rows, width, at.dtype, style)
    return [renamed(kernel, f"{head}silu_mul", "elementwise", gate=f"{head}gate", up=f"{head}up", y=act)]


def _choose_experts(one: Launch, mlp: Mlp, at: Setting) -> Kernel:
    """Softmax over the experts and the best `active` of them: five operations a score."""
    scores = at.tokens * one.outputs
    lines = (
        Tensor(one.name, scores, at.dtype, "m·experts").read(),
        Tensor("chosen", 2 * at.tokens * mlp.active, "int32", "2 (index, weight) · m·active").write(),
    )
    return replace(elementwise("topk", lines, 5 * scores, 5 * scores, "5 · scores"), group="elementwise")


def _weighted_sum(one: Launch, mlp: Mlp, at: Setting) -> Kernel:
    """The results of a token's experts, weighed and added up."""
    n = at.tokens * one.outputs
    lines = (
        Tensor(one.name, n * mlp.active, at.dtype, "m·active·hidden").read(),
        Tensor("chosen", 2 * at.tokens * mlp.active, "int32", "2 (index, weight) · m·active").read(),
        Tensor("experts_sum", n, at.dtype, "m·hidden").write(),
    )
    ops: Num = 2 * n * mlp.active
    return replace(elementwise("weighted_sum", lines, ops, ops, "2 · active · elements"), group="elementwise")


def _with_rest(kernels: Sequence[Kernel], layer: Layer, loose: Sequence[Held], at: Setting) -> tuple[Kernel, ...]:
    """The remaining vectors: norms of other widths as kernels of their own, all else with the first kernel."""
    done = [one for one in loose if one.weight.name in HIDDEN_NORMS or one.weight.name.endswith("qk_norm")]
    done += [one for one in loose if layer.state is not None and one.weight.part == "ssm"]
    rest = [one for one in loose if one not in done]
    norms = [one for one in rest if one.weight.part == "norms"]
    after = {"q_a_layernorm": "q_a", "kv_a_layernorm": "kv_a", "ffn_sub_norm": "gate_up"}
    result = list(kernels)
    for one in norms:
        leaf, n = one.weight.name.rpartition(".")[2], one.weight.elements
        x = {"q_a_layernorm": "q_a", "kv_a_layernorm": "kv_latent"}.get(leaf, leaf)
        kernel = norm_kernel(leaf, at.tokens, n, n, at, "fused", x, x)
        place = next((i for i, k in enumerate(result) if k.name == after.get(leaf)), len(result) - 1)
        result.insert(place + 1, kernel)
    others = [one for one in rest if one.weight.part != "norms"]
    if others and result:
        result[0] = replace(result[0], accesses=(*result[0].accesses, *read("w_other", others, at.dtype, why="n")))
    return tuple(result)


def around(held: Sequence[Held], hidden: int, at: Setting, of: Tokens) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
    """What runs before the layers and after them: embedding rows; final norm and head, for one row a sequence.

    The vision tower is no part of it. A tied table is read whole, by the head.
    """
    text = [one for one in held if one.weight.part != "vision"]
    tables = [one.weight for one in text if one.weight.role == "table"]
    found = launches(text)
    loose = vectors(text, found)
    rows = embedding_row(at.tokens, hidden, at.dtype, len(tables))
    widths = sum(w.inputs for w in tables)
    lines = tuple(replace(a, elements=at.tokens * w.inputs) for a, w in zip(rows.accesses, tables, strict=False))
    embed = replace(rows, accesses=(*lines, rows.accesses[-1]), sizes={**rows.sizes, "elements": at.tokens * widths}, group="head")
    last = of.batch if of.T > 1 else at.tokens
    early = [one for one in found if one.part != "lm_head" and "out" not in one.name]
    norms = {one.weight.name.rpartition(".")[2]: one for one in loose if one.weight.part == "norms"}
    before = [embed, *(replace(product(one, at, "h"), group="head") for one in early)]
    after: list[Kernel] = []
    for name, one in norms.items():
        first = name.startswith(("embed", "per_layer"))
        n = one.weight.elements
        kernel = norm_kernel(name, at.tokens if first else last, min(n, hidden), n, at, of.style, "h", "h" if first else "x_head")
        (before if first or one.weight.name == "embeddings.norm" else after).append(replace(kernel, group="head"))
    late = sorted((one for one in found if one not in early), key=lambda one: one.name == "lm_head")
    after += [replace(product(one, at, "x_head", rows=last), group="head") for one in late]
    strays = [one for one in loose if one.weight.part != "norms"]
    if strays and after:
        after[-1] = replace(after[-1], accesses=(*after[-1].accesses, *read("w_head", strays, at.dtype, why="n")))
    return tuple(before), tuple(after)
