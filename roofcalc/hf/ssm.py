"""The state-space mixers: Mamba, Zamba's Mamba with heads, and Mamba-2.

Shapes are those of the modeling code of transformers 5.24.0 (read) and of the papers named at each.
"""

from __future__ import annotations

from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys, is_whole
from roofcalc.hf.model import State, Weights, linear, vector

Built = tuple[State, Weights]


def inner_width(keys: Keys, hidden: int) -> int:
    """Channels of an SSM: a width of its own (mamba_d_ssm), heads * head dim, or expand * hidden."""
    own = keys.size("mamba_d_ssm")
    if own:
        return own
    # For pure Mamba files `intermediate_size` is this width; a hybrid's is the MLP's.
    if keys.model_type in ("mamba", "falcon_mamba") and keys.size("intermediate_size"):
        return keys.need("intermediate_size")
    factor = keys.number("expand", "mamba_expand", "ssm_expand")
    heads, width = keys.size("ssm heads"), keys.value("ssm head dim")
    if keys.model_type == "nemotron_h" and heads and is_whole(width):
        return heads * int(width)
    if factor is None and heads and is_whole(width):
        return heads * int(width)
    return int((factor or 2) * hidden)


def mamba(keys: Keys, traits: Traits, hidden: int) -> Built:
    """Mamba (arXiv:2312.00752): in, depthwise convolution, x_proj to (dt, B, C), dt_proj, A, D, out."""
    inner, n, kernel = inner_width(keys, hidden), keys.size("ssm state") or 16, keys.size("conv kernel") or 4
    rank = keys.value("dt rank")
    dt_rank = keys.checked(keys.log["dt rank"], rank) if rank not in (None, "auto") else -(-hidden // 16)
    bias = keys.flag("use_bias") or keys.flag("mamba_proj_bias")
    conv_bias = next(
        (keys.flag(k) for k in ("use_conv_bias", "mamba_conv_bias", "conv_bias") if keys.has(k)), True
    )
    weights = linear("mixer.in_proj", "ssm", hidden, 2 * inner, bias)
    weights += vector("mixer.conv1d", "ssm", inner * kernel) + vector(
        "mixer.conv1d.bias", "ssm", inner * conv_bias
    )
    weights += linear("mixer.x_proj", "ssm", inner, dt_rank + 2 * n) + linear(
        "mixer.dt_proj", "ssm", dt_rank, inner, True
    )
    weights += vector("mixer.A_log", "ssm", inner * n) + vector("mixer.D", "ssm", inner)
    weights += linear("mixer.out_proj", "ssm", inner, hidden, bias)
    weights += vector("mixer.norms", "norms", (dt_rank + 2 * n) * traits.ssm_norms)
    return _mamba(inner, n, 1, kernel, dt_rank), weights


def _mamba(inner: int, n: int, heads: int, kernel: int, dt_rank: int) -> State:
    """The state of a Mamba-1 mixer: `n` numbers a channel, and the last `kernel` inputs of the convolution."""
    return State(
        kind="mamba",
        inner=inner,
        state=n,
        heads=heads,
        groups=1,
        kernel=kernel,
        dt_rank=dt_rank,
        recurrent=inner * n,
        conv=inner * kernel,
    )


def zamba(keys: Keys, traits: Traits, hidden: int) -> Built:
    """Zamba's Mamba with `n_mamba_heads` heads, each with its own x_proj and dt_proj (arXiv:2405.16712)."""
    inner, n, kernel = inner_width(keys, hidden), keys.size("ssm state") or 16, keys.size("conv kernel") or 4
    heads = keys.size("n_mamba_heads") or 2
    rank = keys.value("dt rank")
    dt_rank = keys.checked(keys.log["dt rank"], rank) if rank not in (None, "auto") else -(-hidden // 16)
    weights = linear("mamba.in_proj", "ssm", hidden, 2 * inner)
    weights += vector("mamba.conv1d", "ssm", inner * kernel) + vector("mamba.conv1d.bias", "ssm", inner)
    weights += linear("mamba.x_proj", "ssm", inner, dt_rank + 2 * n) + linear(
        "mamba.dt_proj", "ssm", dt_rank, inner, True
    )
    weights += vector("mamba.A_log", "ssm", inner * n) + vector("mamba.D", "ssm", inner)
    weights += linear("mamba.out_proj", "ssm", inner, hidden)
    return _mamba(inner, n, heads, kernel, dt_rank), weights


def mamba2(keys: Keys, traits: Traits, hidden: int) -> Built:
    """Mamba-2 (arXiv:2405.21060): one projection to (z, x, B, C, dt), convolution over x, B, C."""
    inner, n, kernel = inner_width(keys, hidden), keys.size("ssm state") or 128, keys.size("conv kernel") or 4
    groups = keys.size("ssm groups") or 1
    width = keys.value("ssm head dim")
    # The pure model's class calls them num_heads; beside attention that name is the attention's.
    own = keys.size("num_heads") if keys.model_type == "mamba2" else None
    heads = keys.size("ssm heads") or own or inner // (width if is_whole(width) else 64)
    bias = keys.flag("use_bias") or keys.flag("mamba_proj_bias") or keys.flag("add_bias_linear")
    conv_bias = next((keys.flag(k) for k in ("use_conv_bias", "mamba_conv_bias") if keys.has(k)), True)
    channels = inner + 2 * groups * n
    weights = linear("mixer.in_proj", "ssm", hidden, inner + channels + heads, bias)
    weights += vector("mixer.conv1d", "ssm", channels * kernel) + vector(
        "mixer.conv1d.bias", "ssm", channels * conv_bias
    )
    weights += vector("mixer.dt_bias_A_D", "ssm", 3 * heads)
    weights += vector("mixer.norm", "norms", inner * keys.flag("mamba_rms_norm", True))
    weights += linear("mixer.out_proj", "ssm", inner, hidden, bias)
    return State(
        kind="mamba2",
        inner=inner,
        state=n,
        heads=heads,
        groups=groups,
        kernel=kernel,
        recurrent=inner * n,
        conv=channels * kernel,
    ), weights
