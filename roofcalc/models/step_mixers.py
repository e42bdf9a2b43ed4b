"""What mixes tokens in a step: attention of any variant with its cache, latent attention, and fixed states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofcalc.core import Access, Kernel, Shape, Tensor, Work
from roofcalc.models import Command, VariantError, variants
from roofcalc.models.cache import cached
from roofcalc.models.elementwise import Style, renamed, rmsnorm, rope
from roofcalc.models.latent import latent
from roofcalc.models.step_weights import Held, Launch, Setting, product, read
from roofcalc.numeric import Num

if TYPE_CHECKING:
    from roofcalc.hf import Attention, State

NO_ROTATION = ("bloom", "mpt", "jamba", "nemotron_h", "zamba", "bert", "opt", "gpt_bigcode")
"""Model types whose queries and keys are not rotated: learned or linear positions, or none."""


@dataclass(frozen=True)
class Tokens:
    """What the step does for its sequences: `T` new tokens each, `S` keys in the cache with them, by which
    attention variant with which options, and how elementwise steps are run."""

    batch: int
    T: int
    S: int
    kv_dtype: str
    variant: str
    options: Mapping[str, Any]
    prefill: bool
    causal: bool
    caches: bool
    style: Style

    @property
    def command(self) -> Command:
        return "attention" if self.prefill else "decode"


def attention_shape(a: Attention, at: Setting, of: Tokens, layers: int = 1) -> Shape:
    """The attention of one layer as a shape; latent attention in its expanded form."""
    keys = of.S if a.index_topk is None else min(of.S, max(a.index_topk, of.T))
    return Shape.of(
        T=of.T, S=keys, batch=of.batch, heads=a.heads, kv_heads=a.heads if a.kind == "mla" else a.kv_heads,
        d=a.head_dim, dv=a.v_head_dim, window=a.window, causal=of.causal and of.T > 1,
        dtype=at.dtype, kv_dtype=of.kv_dtype, layers=layers,
    )  # fmt: skip


def attention_kernels(a: Attention, at: Setting, of: Tokens) -> tuple[Kernel, ...]:
    """The attention of one layer by the chosen variant; none for cross-attention, whose keys are an image's.

    Latent attention decodes by `mla`, whatever the variant. Raises VariantError for `mla` on other layers
    and for a name that the command does not know.
    """
    if a.kind == "cross":
        return ()
    absorbed = a.kind == "mla" and not of.prefill
    name = "mla" if absorbed else of.variant
    known = variants(of.command)
    if name not in known or (name == "mla" and not absorbed):
        usable = ", ".join(v for v in known if v != "mla")
        raise VariantError(f"--variant {name!r} is no {of.command} variant for these layers; choose from {usable}")
    options = {**of.options, **({"kv_lora_rank": a.kv_lora_rank, "rope_dim": a.rope_dim} if absorbed else {})}
    plan = known[name].plan(attention_shape(a, at, of), at.limits, options)
    kernels = tuple(replace(kernel, group="attention") for kernel in plan.kernels)
    return (*_indexer(a, of), *kernels)


def _indexer(a: Attention, of: Tokens) -> tuple[Kernel, ...]:
    """DeepSeek-V3.2's lightning indexer: a score of every cached key by small heads (its technical report)."""
    if not a.index_heads or not a.index_dim:
        return ()
    keys = of.batch * of.S
    ops = 2 * of.T * keys * a.index_heads * a.index_dim
    lines = (
        Tensor("K_index", keys * a.index_dim, "fp8", "batch·S·index_dim").read(),
        Tensor("K_index_scale", keys, "fp32", "batch·S").read(),
        Tensor("topk", of.T * of.batch * min(of.S, a.index_topk or of.S), "int32", "batch·T·topk").write(),
    )
    # On the vector pipe it would bind at once; GPUs without fp8 products run it in the model's dtype.
    return (Kernel("indexer", (Work("tensor", ops, "2·T·S·index_heads·index_dim", "bf16"),), lines, group="attention"),)


def append(a: Attention, at: Setting, of: Tokens) -> tuple[Kernel, ...]:
    """The new tokens' keys and values into the cache: one kernel, or one each as eager PyTorch does it."""
    if not a.cached or not of.caches:
        return ()
    shape = replace(attention_shape(a, at, of), S=of.T)
    if a.kind == "mla":
        whole = Tensor("kv_latent", at.tokens * a.cached, at.dtype, "m·(kv_lora_rank + rope_dim)")
        return (_copy("append", (whole,), latent(shape, a.kv_lora_rank or 0, a.rope_dim or 0)),)
    stored = cached(shape)
    fresh = (
        Tensor("K_new", at.tokens * a.kv_heads * a.head_dim, at.dtype, "m·kv_heads·d"),
        Tensor("V_new", at.tokens * a.kv_heads * a.v_head_dim, at.dtype, "m·kv_heads·dv"),
    )
    if of.style == "eager":
        by_name = {n: tuple(t for t in stored if t.name.startswith(n)) for n in "KV"}
        return tuple(_copy(f"append_{n.lower()}", (x,), by_name[n]) for n, x in zip("KV", fresh, strict=True))
    return (_copy("append", fresh, stored),)


def _copy(name: str, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> Kernel:
    elements: Num = sum((t.elements for t in reads), 0)
    lines = (*(t.read() for t in reads), *(t.write() for t in writes))
    return Kernel(name, (), lines, family="indexed", sizes={"elements": elements, "rows": 1}, group="attention")


def rotations(a: Attention, at: Setting, of: Tokens, norm: Held | None, rotates: bool) -> tuple[Kernel, ...]:
    """Norms of single heads and rotary embedding, on Q and on K apart; `eager` rotates by five kernels each."""
    found: list[Kernel] = []
    heads = {"q": a.heads, "k": a.kv_heads} if a.owns_cache and a.kind != "cross" else {"q": a.heads}
    for letter, count in heads.items():
        width = a.rope_dim or a.head_dim
        steps: list[tuple[Kernel, ...]] = []
        if norm is not None:
            one = rmsnorm(at.tokens * count, a.head_dim, at.dtype, _norm_style(of.style))
            share = norm.weight.elements // len(heads)
            steps.append((_with_weight(renamed(one[0], f"{letter}_norm"), share, at.dtype),))
        if rotates:
            n = width if a.kind == "mla" and letter == "k" else count * width
            steps.append(rope(at.tokens, n, at.dtype, of.style, f"rope_{letter}"))
        for i, kernels in enumerate(steps):
            x, y = _named(letter, i), _named(letter, i + 1, len(steps))
            found += _chained(kernels, x, y)
    return tuple(replace(kernel, group="elementwise") for kernel in found)


def _norm_style(style: Style) -> Style:
    """RMSNorm is one kernel in every setting: PyTorch's own where the rest is eager."""
    return "torch" if style == "eager" else style


def _with_weight(kernel: Kernel, elements: int, dtype: str) -> Kernel:
    lines = (*(a for a in kernel.accesses if a.tensor != "w"), Tensor(f"w_{kernel.name}", elements, dtype, "n").read())
    return replace(kernel, accesses=lines)


def _named(letter: str, i: int, last: int | None = None) -> str:
    """Names of Q or K on the way from the projection to attention: q, q1, ... Q (or K_new)."""
    if i == last:
        return {"q": "Q", "k": "K_new"}[letter]
    return letter if i == 0 else f"{letter}{i}"


def _chained(kernels: Sequence[Kernel], x: str, y: str) -> list[Kernel]:
    """A chain whose tensor x is called `x`, its last result `y`; a single kernel reads one and writes the other."""
    if len(kernels) == 1:
        return [renamed(kernels[0], x=x, y=y)]
    last = len(kernels) - 1
    return [
        replace(k, accesses=tuple(replace(a, tensor=y if i == last and a.mode == "write" else x) for a in k.accesses))
        for i, k in enumerate(kernels)
    ]


def absorbed(a: Attention, launch: Launch, at: Setting) -> tuple[Kernel, Kernel]:
    """kv_b_proj at decode (arXiv:2405.04434, section 2.1): its keys' half turns queries to the latent before
    attention, its values' half turns the latent's result to heads after it. Each half is read once."""
    rank, nope = a.kv_lora_rank or 0, a.head_dim - (a.rope_dim or 0)
    whole = launch.matrices[0]
    halves = []
    for name, width, x, y, into, out in (
        ("q_absorb", nope, "Q", "Q_latent", nope, rank),
        ("v_absorb", a.v_head_dim, "O", "O_heads", rank, a.v_head_dim),
    ):
        bits = whole.bits * width // (nope + a.v_head_dim)
        half = Held(replace(whole.weight, inputs=rank, outputs=a.heads * width), bits)
        kernel = product(Launch(name, "attention", (half,)), at, x)
        lines = (
            Tensor(x, at.tokens * a.heads * into, at.dtype, "m·heads·inputs").read(),
            *(line for line in kernel.accesses if line.tensor.startswith("W_")),
            Tensor(y, at.tokens * a.heads * out, at.dtype, "m·heads·outputs").write(),
        )
        halves.append(replace(kernel, accesses=lines))
    return halves[0], halves[1]


STATE_STEPS: dict[str, tuple[int, str]] = {
    "mamba": (7, "decay (1), input (2), update (2), read-out (2): arXiv:2312.00752"),
    "mamba2": (6, "input (2), update (2), read-out (2): arXiv:2405.21060"),
    "delta": (7, "decay (1), k S (2), rank-one update (2), q S (2): arXiv:2412.06464"),
    "linear": (5, "decay and k v (3), q S (2): arXiv:2501.08313"),
    "recurrent": (3, "a h + b x: arXiv:2402.19427"),
    "rwkv": (4, "numerator, denominator and maximum: arXiv:2305.13048"),
    "mlstm": (6, "forget, k v, add, q C: arXiv:2405.04517"),
}
"""Operations of a token on each number of the state."""


def state_kernels(s: State, inputs: int, held: Sequence[Held], at: Setting, of: Tokens) -> tuple[Kernel, ...]:
    """A convolution and the recurrence: the state is read and written, in fp32; the last inputs in bf16.

    A prefill keeps the state on chip and writes it once. `inputs` is the width that the projections give.
    """
    conv = [h for h in held if "conv" in h.weight.name]
    rest = [h for h in held if "conv" not in h.weight.name]
    found = []
    if s.conv:
        channels = s.conv // max(1, s.kernel)
        ops = 2 * max(1, s.kernel) * channels * at.tokens
        lines = (
            Tensor("conv_in", at.tokens * channels, at.dtype, "m·channels").read(),
            *read("w_conv", conv, at.dtype, why="channels·kernel"),
            *_kept("conv_state", s.conv, "bf16", of),
            Tensor("conv_out", at.tokens * channels, at.dtype, "m·channels").write(),
        )
        found.append(Kernel("conv", (Work("vector", ops, "2·kernel·channels·m"),), lines, group="attention"))
    if s.recurrent:
        steps, why = STATE_STEPS[s.kind]
        exps = s.recurrent if s.kind == "mamba" else s.heads
        work = (
            Work("vector", steps * s.recurrent * at.tokens, f"{steps} a number of the state and token: {why}"),
            Work("exp", exps * at.tokens, "the decay"),
        )
        state_lines = (
            Tensor("state_in", at.tokens * inputs, at.dtype, "m·inputs").read(),
            *read("w_state", rest, at.dtype, why="vectors of the mixer"),
            *_kept("state", s.recurrent, "fp32", of),
            Tensor("O_state", at.tokens * s.inner, at.dtype, "m·inner").write(),
        )
        found.append(Kernel("state", work, state_lines, group="attention"))
    return tuple(found)


def _kept(name: str, numbers: int, dtype: str, of: Tokens) -> tuple[Access, ...]:
    kept = Tensor(name, of.batch * numbers, dtype, "batch·state")
    return (kept.write(),) if of.prefill else (kept.read(), kept.write())
