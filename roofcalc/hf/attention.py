"""One layer's attention from its keys: heads, head dims, window, latent ranks, and the matrices."""

from __future__ import annotations

from dataclasses import dataclass

from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys
from roofcalc.hf.model import Attention, Weights, linear, vector

SWA = {
    "heads": "swa_num_attention_heads",
    "kv heads": "swa_num_key_value_heads",
    "head dim": "swa_head_dim",
    "value head dim": "swa_v_head_dim",
}
"""Keys that give sliding layers sizes of their own (MiMo-V2)."""


@dataclass(frozen=True)
class Heads:
    """Per layer: query heads, KV heads and the width of a head."""

    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    head_dim: tuple[int, ...]


def _jetmoe(keys: Keys, layers: int) -> Heads:
    """JetMoE's heads are the KV heads of every expert that a token uses."""
    kv, d = keys.need("kv heads"), keys.need("head dim")
    keys.log["heads"] = "num_key_value_heads * num_experts_per_tok"
    return Heads((kv * keys.need("active experts"),) * layers, (kv,) * layers, (d,) * layers)


def heads_of(keys: Keys, layers: int, hidden: int) -> Heads:
    """Heads of every layer, with those rules of multi-query and grouped types that no size states.

    Raises ModelError where heads is no multiple of KV heads, or the width does not divide by the heads
    and no key gives the head dim. Neither matters to latent attention, whose widths are keys of their own.
    """
    if keys.model_type == "jetmoe":
        return _jetmoe(keys, layers)
    listed = keys.per_layer("heads", layers)
    if any(h is None for h in listed):
        keys.need("heads")
    heads = tuple(h or 0 for h in listed)
    if keys.size("kv_lora_rank", 0):
        return Heads(heads, heads, (keys.need("qk_nope_head_dim") + keys.need("qk_rope_head_dim"),) * layers)
    dims = keys.per_layer("head dim", layers)
    name = keys.log["heads"]
    for h, d in zip(heads, dims, strict=True):
        if d is None and hidden % h:
            raise keys.error(
                f"{keys.log['hidden']} {hidden} does not divide by {name} {h}, and no key gives the head dim"
            )
    if None in dims:
        keys.log.setdefault("head dim", f"{keys.log['hidden']} / {name}")
    head_dim = tuple(d or hidden // h for h, d in zip(heads, dims, strict=True))
    kv_heads = _kv_heads(keys, layers, heads)
    for h, kv in zip(heads, kv_heads, strict=True):
        if kv < 1 or h % kv:
            raise keys.error(f"{name} {h} is not a multiple of {keys.log.get('kv heads', 'kv heads')} {kv}")
    return Heads(heads, kv_heads, head_dim)


def _kv_heads(keys: Keys, layers: int, heads: tuple[int, ...]) -> tuple[int, ...]:
    groups = _group_sizes(keys, layers)
    if groups is not None:
        keys.log["kv heads"] = "block_configs.attention.n_heads_in_group"
        return tuple(h // g if g and h % g == 0 else h for h, g in zip(heads, groups, strict=True))
    if _multi_query(keys):
        return (1,) * layers
    if keys.model_type in ("falcon", "RefinedWeb", "RefinedWebModel") and not keys.flag(
        "new_decoder_architecture"
    ):
        return heads
    if keys.has("multi_query_attention") and not keys.flag("multi_query_attention"):
        keys.log["kv heads"] = "multi_query_attention false: as many as heads"
        return heads
    found = keys.per_layer("kv heads", layers)
    if None in found:
        keys.log.setdefault("kv heads", "as many as heads")
    return tuple(h if kv is None else kv for h, kv in zip(heads, found, strict=True))


def _multi_query(keys: Keys) -> bool:
    """Whether one KV head serves all: a flag in Falcon, GPTBigCode, MPT; in ChatGLM without groups."""
    if keys.value("attn_type") == "multiquery_attention":
        keys.log["kv heads"] = "attn_type multiquery_attention"
        return True
    for name in ("multi_query", "multi_query_attention"):
        grouped = (
            keys.model_type not in ("falcon", "RefinedWebModel", "gpt_bigcode") and keys.find(GROUPED)[0]
        )
        if keys.flag(name) and not keys.flag("new_decoder_architecture") and not grouped:
            keys.log["kv heads"] = f"{name} true: one"
            return True
    return False


GROUPED = (
    "multi_query_group_num",
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "kv_n_heads",
    "num_query_groups",
)


def _group_sizes(keys: Keys, layers: int) -> tuple[int | None, ...] | None:
    blocks = keys.items("block_configs")
    if blocks is None:
        return None
    attention = [block.get("attention") or {} if isinstance(block, dict) else {} for block in blocks[:layers]]
    if not any("n_heads_in_group" in a for a in attention):
        return None
    return tuple(
        None
        if a.get("n_heads_in_group") is None
        else keys.checked(f"block_configs[{i}].n_heads_in_group", a["n_heads_in_group"])
        for i, a in enumerate(attention)
    )


def window_of(keys: Keys, mixer: str, i: int) -> int | None:
    """Keys that a query of layer `i` sees; None for all."""
    if mixer == "chunked":
        return keys.size("attention_chunk_size")
    if mixer != "sliding":
        return None
    return keys.per_layer("window", i + 1)[i]


def attention(
    keys: Keys, traits: Traits, mixer: str, all_heads: Heads, i: int, hidden: int
) -> tuple[Attention, Weights]:
    """The attention of layer `i` and its weights."""
    heads, kv_heads, d = all_heads.heads[i], all_heads.kv_heads[i], all_heads.head_dim[i]
    if keys.size("kv_lora_rank", 0):
        return _latent(keys, traits, hidden, heads, window_of(keys, mixer, i))
    dv = keys.size("value head dim") or d
    if traits.swa_sizes and mixer == "sliding":
        heads, kv_heads, d, dv = (
            keys.size(SWA[f]) or v for f, v in zip(SWA, (heads, kv_heads, d, dv), strict=True)
        )
    wide = keys.flag("attention_k_eq_v") and mixer == "full"
    global_dim = keys.size("global_head_dim") if mixer == "full" else None
    if global_dim:
        d = dv = global_dim
    if wide and keys.size("num_global_key_value_heads"):
        kv_heads = keys.size("num_global_key_value_heads") or kv_heads
    inputs = keys.size("attention_hidden_size") or hidden
    value = Attention(
        kind="cross" if mixer == "cross" else "attention",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=d,
        v_head_dim=dv,
        inputs=inputs,
        window=window_of(keys, mixer, i),
        values_are_keys=wide,
    )
    return value, _weights(keys, traits, mixer, value, hidden)


def _expert_heads(keys: Keys, a: Attention, hidden: int) -> Weights:
    """JetMoE's mixture of attention heads (arXiv:2404.07413): queries and output per expert."""
    experts, active, width = keys.need("experts"), keys.need("active experts"), a.kv_heads * a.head_dim
    weights = linear("self_attention.experts.input", "attention", hidden, width, False, experts, active)
    weights += linear("self_attention.experts.output", "attention", width, hidden, False, experts, active)
    weights += linear("self_attention.router", "router", hidden, experts) + vector(
        "self_attention.bias", "attention", hidden
    )
    return (
        weights
        + linear("self_attention.kv_proj", "attention", hidden, 2 * width)
        + vector("mlp.bias", "mlp", hidden)
    )


def _weights(keys: Keys, traits: Traits, mixer: str, a: Attention, hidden: int) -> Weights:
    if keys.model_type == "jetmoe":
        return _expert_heads(keys, a, hidden)
    bias, wide_q = (
        traits.on("qkv_bias", keys),
        traits.out_gate == "wide_q" and keys.flag("attn_output_gate", True),
    )
    queries, keys_out, out = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.heads * a.v_head_dim
    name = "cross_attn" if mixer == "cross" else "self_attn"
    weights = linear(f"{name}.q_proj", "attention", a.inputs, queries * (2 if wide_q else 1), bias)
    weights += linear(f"{name}.k_proj", "attention", a.inputs, keys_out, bias)
    if not a.values_are_keys:
        weights += linear(f"{name}.v_proj", "attention", a.inputs, a.kv_heads * a.v_head_dim, bias)
    weights += linear(f"{name}.o_proj", "attention", out, hidden, traits.on("out_bias", keys))
    norm = "head" if mixer == "cross" else traits.qk_norm if traits.on("qk_norm_if", keys) else ""
    each = {
        "": 0,
        "head": 2 * a.head_dim,
        "head_layer": 4 * a.head_dim,
        "heads": queries + keys_out,
        "all": queries + keys_out,
    }[norm]
    weights += vector(f"{name}.qk_norm", "norms", each)
    gate = {"separate": out, "per_head": a.heads}.get(traits.out_gate, 0)
    weights += linear(f"{name}.gate_proj", "attention", hidden, gate) if gate else ()
    sinks = traits.sinks is True or traits.sinks == mixer
    return weights + vector(f"{name}.sinks", "attention", a.heads if sinks else 0)


def _latent(
    keys: Keys, traits: Traits, hidden: int, heads: int, window: int | None
) -> tuple[Attention, Weights]:
    """Multi-head latent attention (arXiv:2405.04434, section 2.1), with DeepSeek-V3.2's indexer if any."""
    rank, q_rank = keys.need("kv_lora_rank"), keys.size("q_lora_rank", 0) or None
    nope, rope = keys.need("qk_nope_head_dim"), keys.need("qk_rope_head_dim")
    # MiniCPM3's class derives the value heads' width; its files do not state it.
    dv = keys.size("value head dim") or (
        hidden // heads if keys.model_type == "minicpm3" else keys.need("value head dim")
    )
    keys.log["kv heads"] = "one latent (kv_lora_rank + qk_rope_head_dim)"
    keys.log["head dim"] = "qk_nope_head_dim + qk_rope_head_dim"
    index_heads, index_dim = keys.size("index_n_heads"), keys.size("index_head_dim")
    value = Attention(
        kind="mla",
        heads=heads,
        kv_heads=1,
        head_dim=nope + rope,
        v_head_dim=dv,
        inputs=hidden,
        window=window,
        q_lora_rank=q_rank,
        kv_lora_rank=rank,
        rope_dim=rope,
        index_heads=index_heads,
        index_dim=index_dim,
        index_topk=keys.size("index_topk"),
    )
    bias = traits.on("mla_bias", keys)
    if q_rank:
        weights = linear("self_attn.q_a_proj", "attention", hidden, q_rank, bias)
        weights += vector("self_attn.q_a_layernorm", "norms", q_rank)
        weights += linear("self_attn.q_b_proj", "attention", q_rank, heads * (nope + rope))
    else:
        weights = linear("self_attn.q_proj", "attention", hidden, heads * (nope + rope))
    weights += linear("self_attn.kv_a_proj_with_mqa", "attention", hidden, rank + rope, bias)
    weights += vector("self_attn.kv_a_layernorm", "norms", rank)
    weights += linear("self_attn.kv_b_proj", "attention", rank, heads * (nope + dv))
    weights += linear("self_attn.o_proj", "attention", heads * dv, hidden, bias)
    if traits.state == "kda_full":
        weights += linear("self_attn.g_proj", "attention", hidden, heads)
    if index_heads and index_dim:
        weights += linear("self_attn.indexer.wq_b", "attention", q_rank or hidden, index_heads * index_dim)
        weights += linear("self_attn.indexer.wk", "attention", hidden, index_dim)
        weights += vector("self_attn.indexer.k_norm", "norms", 2 * index_dim)
        weights += linear("self_attn.indexer.weights_proj", "attention", hidden, index_heads)
    return value, weights
