"""The mixers whose memory is fixed: SSMs, delta rules, lightning, RG-LRU, short convolution, RWKV, mLSTM.

Each function takes the keys and the hidden width and returns the State with its weights. Shapes are
those of the modeling code of transformers 5.24.0 (read) and of the papers named at each.
"""

from __future__ import annotations

from collections.abc import Callable

from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys
from roofcalc.hf.model import State, linear, vector
from roofcalc.hf.ssm import Built, mamba, mamba2, zamba


def state(keys: Keys, traits: Traits, hidden: int) -> Built:
    """The state mixer of the type; for a type that is not known, told by the keys that it has."""
    kind = traits.state
    if not kind:
        kind = (
            "gated_delta"
            if keys.has("linear_num_value_heads")
            else "lightning"
            if keys.section("linear_attn_config") == {}
            else "kda"
        )
        if keys.find(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "mamba_d_head", "mamba_head_dim"))[
            1
        ]:
            kind = "mamba2"
        elif keys.find(("mamba_d_state", "state_size", "mamba_dt_rank", "time_step_rank"))[1]:
            kind = "mamba"
    return BUILDERS[kind](keys, traits, hidden)


def gated_delta(keys: Keys, traits: Traits, hidden: int) -> Built:
    """Gated delta net (arXiv:2412.06464) as Qwen3-Next has it: a state of d_k x d_v per value head."""
    # Where OLMo's hybrid leaves these out its class takes the attention's heads, and 0.75 of the width.
    olmo = keys.model_type == "olmo_hybrid"
    key_heads, heads = (
        keys.size(n) or keys.need("heads" if olmo else n)
        for n in ("linear_num_key_heads", "linear_num_value_heads")
    )
    dk = keys.size("linear_key_head_dim") or (
        int(0.75 * hidden / key_heads) if olmo else keys.need("linear_key_head_dim")
    )
    dv = keys.size("linear_value_head_dim") or (2 * dk if olmo else keys.need("linear_value_head_dim"))
    kernel = keys.size("conv kernel") or 4
    channels, inner = 2 * key_heads * dk + heads * dv, heads * dv
    weights = linear("linear_attn.in_proj_qkvz", "ssm", hidden, channels + inner)
    weights += linear("linear_attn.in_proj_ba", "ssm", hidden, 2 * heads)
    weights += vector("linear_attn.conv1d", "ssm", channels * kernel) + vector(
        "linear_attn.dt_bias_A", "ssm", 2 * heads
    )
    weights += vector("linear_attn.norm", "norms", dv) + linear("linear_attn.out_proj", "ssm", inner, hidden)
    return State(
        kind="delta",
        inner=inner,
        state=dk,
        heads=heads,
        groups=key_heads,
        kernel=kernel,
        recurrent=heads * dk * dv,
        conv=channels * kernel,
    ), weights


def kda(keys: Keys, traits: Traits, hidden: int) -> Built:
    """Kimi delta attention (arXiv:2510.26692): as the gated delta rule, with a decay per channel."""
    section = {**keys.section("linear_attn_config")}
    inside = Keys({**keys.given, **section}, keys.defaults, keys.file, keys.model_type, keys.prefix)
    inner_named = "num_heads" in section
    heads = (
        inside.need("num_heads") if inner_named else inside.size("linear_num_heads") or inside.need("heads")
    )
    d = inside.need("head_dim") if inner_named else inside.size("linear_head_dim") or inside.need("head dim")
    kernel = inside.size("conv kernel") or 4
    inner, full = heads * d, traits.state == "kda_full"
    weights = linear("self_attn.qkv_proj", "ssm", hidden, 3 * inner) + vector(
        "self_attn.conv1d", "ssm", 3 * inner * kernel
    )
    weights += vector("self_attn.dt_bias_A", "ssm", inner + heads)
    for gate in ("f", "g"):
        weights += (
            linear(f"self_attn.{gate}_proj", "ssm", hidden, inner)
            if full
            else (
                linear(f"self_attn.{gate}_a_proj", "ssm", hidden, d)
                + linear(f"self_attn.{gate}_b_proj", "ssm", d, inner)
            )
        )
    weights += linear("self_attn.b_proj", "ssm", hidden, heads) + vector("self_attn.o_norm", "norms", d)
    weights += linear("self_attn.o_proj", "ssm", inner, hidden)
    return State(
        kind="delta",
        inner=inner,
        state=d,
        heads=heads,
        groups=heads,
        kernel=kernel,
        recurrent=heads * d * d,
        conv=3 * inner * kernel,
    ), weights


def lightning(keys: Keys, traits: Traits, hidden: int) -> Built:
    """Lightning attention (arXiv:2501.08313): linear attention with a fixed decay, d x d per head."""
    heads, d = keys.need("heads"), keys.size("head dim") or hidden // keys.need("heads")
    inner = heads * d
    weights = linear("self_attn.qkv_proj", "ssm", hidden, 3 * inner) + linear(
        "self_attn.output_gate", "ssm", hidden, inner
    )
    weights += vector("self_attn.norm", "norms", inner) + linear("self_attn.out_proj", "ssm", inner, hidden)
    return State(
        kind="linear", inner=inner, state=d, heads=heads, groups=heads, kernel=0, recurrent=inner * d, conv=0
    ), weights


def rglru(keys: Keys, traits: Traits, hidden: int) -> Built:
    """RG-LRU (arXiv:2402.19427): two branches, a convolution, block-diagonal gates."""
    width, heads = keys.size("lru_width") or hidden, keys.need("heads")
    kernel = keys.size("conv1d_width") or 4
    block = width // heads
    weights = linear("temporal_block.linear_y", "ssm", hidden, width, True) + linear(
        "temporal_block.linear_x", "ssm", hidden, width, True
    )
    weights += linear("temporal_block.linear_out", "ssm", width, hidden, True) + vector(
        "temporal_block.conv_1d", "ssm", width * (kernel + 1)
    )
    weights += linear("temporal_block.rg_lru.gates", "ssm", block, 2 * block, True, heads, heads)
    weights += vector("temporal_block.rg_lru.recurrent_param", "ssm", width)
    return State(
        kind="recurrent",
        inner=width,
        state=1,
        heads=heads,
        groups=heads,
        kernel=kernel,
        recurrent=width,
        conv=width * kernel,
    ), weights


def short_conv(keys: Keys, traits: Traits, hidden: int) -> Built:
    """LFM2's gated short convolution: only the last inputs are kept."""
    kernel, bias = keys.size("conv_L_cache") or 3, keys.flag("conv_bias")
    weights = linear("conv.in_proj", "ssm", hidden, 3 * hidden, bias) + vector(
        "conv.conv", "ssm", hidden * (kernel + bias)
    )
    weights += linear("conv.out_proj", "ssm", hidden, hidden, bias)
    return State(
        kind="conv",
        inner=hidden,
        state=0,
        heads=1,
        groups=1,
        kernel=kernel,
        recurrent=0,
        conv=hidden * kernel,
    ), weights


def rwkv(keys: Keys, traits: Traits, hidden: int) -> Built:
    """RWKV-4 (arXiv:2305.13048): numerator, denominator and maximum a channel, and two shifted inputs."""
    width = keys.size("attention_hidden_size") or hidden
    weights = vector("attention.time", "ssm", 2 * width + 3 * hidden)
    for name in ("key", "value", "receptance"):
        weights += linear(f"attention.{name}", "ssm", hidden, width)
    weights += linear("attention.output", "ssm", width, hidden)
    # The channel mixing has a receptance matrix beside the two of an MLP.
    weights += vector("feed_forward.time_mix", "mlp", 2 * hidden) + linear(
        "feed_forward.receptance", "mlp", hidden, hidden
    )
    return State(
        kind="rwkv", inner=width, state=3, heads=1, groups=1, kernel=0, recurrent=3 * width, conv=2 * hidden
    ), weights


def mlstm(keys: Keys, traits: Traits, hidden: int) -> Built:
    """xLSTM's matrix memory (arXiv:2405.04517): d_qk x d_v per head, a normaliser and a maximum."""
    heads = keys.need("heads")
    qk, v = (int((keys.number(f"{name}_dim_factor") or 1) * hidden) for name in ("qk", "v"))
    weights = linear("mlstm_layer.qk", "ssm", hidden, 2 * qk) + linear(
        "mlstm_layer.v_gate", "ssm", hidden, 2 * v
    )
    weights += linear("mlstm_layer.if_gate", "ssm", hidden, 2 * heads, True) + vector(
        "mlstm_layer.norm", "norms", v
    )
    weights += linear("mlstm_layer.out_proj", "ssm", v, hidden)
    recurrent = qk * (v // heads) + qk + heads
    return State(
        kind="mlstm",
        inner=v,
        state=qk // heads,
        heads=heads,
        groups=heads,
        kernel=0,
        recurrent=recurrent,
        conv=0,
    ), weights


BUILDERS: dict[str, Callable[[Keys, Traits, int], Built]] = {
    "mamba": mamba,
    "mamba2": mamba2,
    "zamba": zamba,
    "gated_delta": gated_delta,
    "kda": kda,
    "kda_full": kda,
    "lightning": lightning,
    "rglru": rglru,
    "short_conv": short_conv,
    "rwkv": rwkv,
    "mlstm": mlstm,
}
