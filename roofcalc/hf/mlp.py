"""One layer's MLP or mixture of experts from its keys, and which layers have which."""

from __future__ import annotations

from typing import Any

from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys, is_whole
from roofcalc.hf.model import Mlp, Part, Weights, linear, vector


def dense_widths(keys: Keys, traits: Traits, layers: int, hidden: int) -> tuple[int, ...]:
    """The width of the dense MLP of every layer (0 for a layer without one)."""
    blocks = keys.items("block_configs")
    if blocks is not None:
        return tuple(_block_width(keys, block, hidden, i) for i, block in enumerate(blocks[:layers]))
    multipliers = keys.items("ffn_multipliers")
    if multipliers is not None:
        divisor = keys.size("ffn_dim_divisor") or 256
        if len(multipliers) < layers:
            raise keys.error(
                f"{keys.prefix}ffn_multipliers lists {len(multipliers)} values for {layers} layers"
            )
        keys.record("intermediate", "ffn_multipliers")
        return tuple(
            _divisible(keys.factor("ffn_multipliers", m) * hidden, divisor) for m in multipliers[:layers]
        )
    figure = next(
        (n for n in ("intermediate_size_mlp", "dense_intermediate_size") if keys.has(n)), "intermediate"
    )
    found = keys.per_layer(figure, layers, least=0)
    return tuple(
        _derived(keys, traits, hidden) if width is None else _adjusted(keys, traits, width) for width in found
    )


def _derived(keys: Keys, traits: Traits, hidden: int) -> int:
    """The width where no key has it: a factor of the hidden width that the type's class fixes."""
    name = next(
        (
            n
            for n in ("expansion_ratio", "mlp_ratio", "ffn_mult", "ffn_factor", traits.ffn_key)
            if n and keys.has(n)
        ),
        "",
    )
    if name:
        keys.log["intermediate"] = f"{name} * {keys.log['hidden']}"
        width = int((keys.number(name) or 1) * hidden)
        step = keys.size("ffn_round_up_to_multiple_of") or 1
        return -(-width // step) * step
    if traits.mlp_factor:
        keys.log["intermediate"] = f"{traits.mlp_factor} * {keys.log['hidden']} (as {keys.model_type} does)"
        return traits.mlp_factor * hidden
    if keys.model_type == "rwkv":
        return 4 * hidden
    return keys.need("intermediate")


def _adjusted(keys: Keys, traits: Traits, width: int) -> int:
    """LFM2 takes two thirds of the width and rounds up; Qwen 1 and RecurrentGemma write both halves."""
    if keys.flag("block_auto_adjust_ff_dim"):
        multiple = keys.size("block_multiple_of") or 1
        width = int((keys.number("block_ffn_dim_multiplier") or 1) * int(2 * width / 3))
        return -(-width // multiple) * multiple
    return width // 2 if traits.mlp_halves else width


def _divisible(value: float, divisor: int) -> int:
    """OpenELM's make_divisible: to the nearest multiple, but never below nine tenths of the value."""
    nearest = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * value else nearest


def _block_width(keys: Keys, block: Any, hidden: int, i: int) -> int:
    """Nemotron-NAS: `ffn_mult` counts two thirds of 2 * hidden, rounded up to a multiple of 256."""
    ffn = block.get("ffn") or {} if isinstance(block, dict) else {}
    if ffn.get("no_op") or ffn.get("replace_with_linear"):
        return 0
    keys.log["intermediate"] = "block_configs.ffn"
    if ffn.get("intermediate_size") is not None:
        return keys.checked(f"block_configs[{i}].ffn.intermediate_size", ffn["intermediate_size"])
    if ffn.get("ffn_mult") is None:
        raise keys.error(f"{keys.prefix}block_configs[{i}].ffn has neither ffn_mult nor intermediate_size")
    width = int(2 * keys.factor(f"block_configs[{i}].ffn.ffn_mult", ffn["ffn_mult"]) * hidden / 3)
    return -(-width // 256) * 256


def first_number(keys: Keys, figure: str) -> int | None:
    """A size that some files (Hunyuan, ERNIE-VL) write as a list with one number a layer or a modality."""
    value = keys.value(figure)
    if isinstance(value, list) and value and all(is_whole(v) for v in value):
        return int(value[0])
    return keys.size(figure, 0)


def expert_layers(keys: Keys, layers: int, experts: int) -> tuple[bool, ...]:
    """Which layers hold experts."""
    if not experts:
        return (False,) * layers
    listed = keys.items("mlp_layer_types")
    if listed:
        return tuple(kind in ("sparse", "moe") for kind in listed[:layers]) + (False,) * (
            layers - len(listed)
        )
    explicit = keys.value("moe_layers") or keys.value("moe_layers_enum")
    if isinstance(explicit, str):
        explicit = [int(i) for i in explicit.split(",") if i.strip().isdigit()]
    if isinstance(explicit, list):
        return tuple(i in explicit for i in range(layers))
    rules = (_after_dense, _freq_list, _periodic)
    return tuple(all(rule(keys, i) for rule in rules) for i in range(layers))


def _after_dense(keys: Keys, i: int) -> bool:
    first = next(
        (
            keys.size(n, 0)
            for n in ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "first_k_dense")
            if keys.has(n)
        ),
        0,
    )
    last = keys.value("moe_layer_end_index")
    end = last if is_whole(last) and last >= 0 else i
    return i >= (first or 0) and i <= end and i not in (keys.indices("mlp_only_layers") or [])


def _freq_list(keys: Keys, i: int) -> bool:
    value = keys.value("moe_layer_freq")
    if isinstance(value, list):
        return bool(value[i]) if i < len(value) else True
    freq = keys.size("moe_layer_freq") or 1
    return i % freq == 0


def _periodic(keys: Keys, i: int) -> bool:
    """One layer in every `step`: its last (Qwen, Llama 4, Arctic) or the one at an offset (Jamba)."""
    step = next(
        (
            keys.size(n)
            for n in (
                "decoder_sparse_step",
                "interleave_moe_layer_step",
                "moe_layer_frequency",
                "moe_layer_interval",
            )
            if keys.has(n)
        ),
        1,
    )
    period, offset = keys.size("expert_layer_period") or 1, keys.size("expert_layer_offset", 0) or 0
    return (i + 1) % (step or 1) == 0 and i % period == offset % period


def mixture(keys: Keys, traits: Traits, hidden: int, dense: int) -> tuple[Mlp, Weights]:
    """A mixture of experts and its weights; `dense` is the width of experts that have no key of their own."""
    experts, active = (
        first_number(keys, "experts") or keys.need("experts"),
        first_number(keys, "active experts") or 0,
    )
    if not active:
        keys.need("active experts")
    if active > experts:
        raise keys.error(
            f"{keys.log['active experts']} {active} is more than {keys.log['experts']} {experts}"
        )
    width = first_number(keys, "expert width") or keys.size("intermediate") or dense
    latent = keys.size("moe_latent_size") or hidden
    shared = _shared_width(keys, width)
    value = Mlp(intermediate=width, gated=traits.gated, experts=experts, active=active, shared=shared)
    weights = linear(
        "mlp.gate", "router", hidden, experts + (keys.size("zero_expert_num", 0) or 0), traits.router_bias
    )
    weights += vector("mlp.gate.correction", "router", experts if traits.correction else 0)
    bias, halves = traits.expert_bias, 2 if traits.gated else 1
    weights += linear("mlp.experts.gate_up_proj", "experts", latent, halves * width, bias, experts, active)
    weights += linear("mlp.experts.down_proj", "experts", width, latent, bias, experts, active)
    if latent != hidden:
        weights += linear("mlp.fc1_latent_proj", "mlp", hidden, latent) + linear(
            "mlp.fc2_latent_proj", "mlp", latent, hidden
        )
    if shared:
        weights += matrices("mlp.shared_experts", "mlp", hidden, shared, traits.gated, False)
    if shared and traits.shared_gate:
        weights += linear("mlp.shared_expert_gate", "mlp", hidden, 1)
    if traits.on("dense_beside_experts", keys):
        weights += matrices("residual_mlp", "mlp", hidden, dense, traits.gated, False)
        # Gemma 4 adds three norms and scales of the router's input and output; Arctic adds one norm.
        gemma = keys.model_type == "gemma4_text"
        weights += vector("residual_layernorm", "norms", hidden * (3 if gemma else 1))
        weights += vector("router.scales", "router", (hidden + experts) * gemma)
    return value, weights


def _shared_width(keys: Keys, width: int) -> int:
    """The always-active width: a key of its own, or a number of shared experts of the experts' width."""
    count = first_number(keys, "shared experts")
    if count == 0:
        return 0
    own = keys.size("shared width", 0)
    if own is not None:
        return own
    if keys.model_type in ("llama4_text", "llama4"):
        return width
    return (count or 0) * width


def dense(keys: Keys, traits: Traits, hidden: int, width: int) -> tuple[Mlp | None, Weights]:
    """A dense MLP and its weights (none where the width is 0)."""
    if not width:
        return None, ()
    weights = matrices("mlp", "mlp", hidden, width, traits.gated, traits.on("mlp_bias", keys))
    if traits.sub_norms:
        weights += vector("mlp.ffn_sub_norm", "norms", width) + vector(
            "self_attn.attn_sub_norm", "norms", hidden
        )
    return Mlp(intermediate=width, gated=traits.gated), weights


def matrices(name: str, part: Part, hidden: int, width: int, gated: bool, bias: bool) -> Weights:
    """Gate (when gated), up and down."""
    gate = linear(f"{name}.gate_proj", part, hidden, width, bias) if gated else ()
    return (
        gate
        + linear(f"{name}.up_proj", part, hidden, width, bias)
        + linear(f"{name}.down_proj", part, width, hidden, bias)
    )
