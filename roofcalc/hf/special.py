"""Weights that one family has and no other: shared blocks, per-layer embeddings, gates."""

from __future__ import annotations

from dataclasses import dataclass, replace

from roofcalc.hf.attention import Heads
from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys
from roofcalc.hf.model import Attention, Layer, Mlp, Weight, Weights, linear, vector


@dataclass(frozen=True)
class SharedBlock:
    """Zamba's transformer block(s), whose weights several layers share; each use keeps its own KV cache."""

    attention: Attention
    mlp: Mlp
    blocks: tuple[Weights, ...]
    own: tuple[Weights, ...]
    uses: tuple[int, ...]

    def join(self, layer: Layer, i: int) -> Layer:
        """A hybrid layer: its own Mamba mixer and linear, and the block that its turn picks."""
        turn = self.uses.index(i)
        block = self.blocks[turn % len(self.blocks)]
        return replace(
            layer,
            attention=self.attention,
            mlp=self.mlp,
            weights=layer.weights + block + self.own[turn],
            norms=layer.norms + 2,
        )


def shared_block(keys: Keys, hidden: int, heads: Heads | None, notes: list[str]) -> SharedBlock:
    """Zamba and Zamba2 (arXiv:2405.16712, 2411.15242): attention over input and embedding together."""
    kinds = keys.items("layers_block_type")
    listed = keys.indices("hybrid_layer_ids")
    layers = keys.need("layers")
    if kinds:
        uses = tuple(i for i, kind in enumerate(kinds) if kind == "hybrid")
    elif listed:
        uses = tuple(i for i in range(layers) if i in listed)
    else:
        period = keys.need("attn_layer_period")
        uses = tuple(
            i
            for i in range(layers)
            if i == 2 or (i > 2 and (i - 3) % period == (keys.size("attn_layer_offset", 0) or 0))
        )
    wide, first = 2 * hidden, heads.heads[0] if heads else keys.need("heads")
    # The class derives this head dim from twice the width; a file's kv_channels of hidden / heads is not it.
    d = wide // first
    kv = keys.size("num_key_value_heads") or first
    if kv > first or first % kv:
        raise keys.error(f"num_attention_heads {first} is not a multiple of num_key_value_heads {kv}")
    keys.log["head dim"] = "2 * hidden_size / num_attention_heads"
    attention = Attention(heads=first, kv_heads=kv, head_dim=d, v_head_dim=d, inputs=wide)
    width, count = keys.need("intermediate"), keys.size("num_mem_blocks") or 1
    zamba2 = keys.model_type == "zamba2"
    bias = keys.flag("add_bias_linear")
    rank = keys.size("adapter_rank") or 0
    blocks = []
    for b in range(count):
        block = linear("shared.q_proj", "attention", wide, first * d) + linear(
            "shared.k_proj", "attention", wide, kv * d
        )
        block += linear("shared.v_proj", "attention", wide, kv * d) + linear(
            "shared.o_proj", "attention", first * d, hidden
        )
        block += linear("shared.gate_up_proj", "mlp", hidden, 2 * width, bias) + linear(
            "shared.down_proj", "mlp", width, hidden, bias
        )
        block += vector("shared.norms", "norms", wide + hidden)
        blocks.append(tuple(replace(w, shared=f"block{b}.{w.name}") for w in block))
    own: list[Weights] = []
    for _ in uses:
        mine = linear("linear", "other", hidden, hidden)
        if zamba2:
            mine += linear("adapter.down", "mlp", hidden, rank) + linear("adapter.up", "mlp", rank, 2 * width)
            if keys.flag("use_shared_attention_adapter"):
                for name in ("q", "k", "v"):
                    mine += linear(f"adapter.{name}_down", "attention", wide, rank) + linear(
                        f"adapter.{name}_up", "attention", rank, first * d
                    )
        own.append(mine)
    notes.append(
        f"{len(uses)} layers share {count} attention block(s): weights counted once, a KV cache for each use"
    )
    return SharedBlock(attention, Mlp(intermediate=width, gated=True), tuple(blocks), tuple(own), uses)


def layer_extras(
    keys: Keys, traits: Traits, kind: str, i: int, hidden: int, attention: Attention | None
) -> Weights:
    """Small weights that only one type's layers have."""
    weights = vector("act_fn", "other", traits.extra_per_layer)
    if kind == "cross":
        weights += vector("cross_attn_gates", "other", 2)
    if keys.model_type == "diffllama" and attention:
        weights += vector("self_attn.lambda", "attention", 4 * attention.head_dim)
    if keys.model_type == "doge" and attention:
        weights += linear(
            "self_attn.dt_proj", "attention", attention.kv_heads * attention.head_dim, attention.kv_heads
        )
        weights += vector("residuals", "other", 2 * hidden + attention.kv_heads)
    if keys.model_type == "rwkv" and i == 0:
        weights += vector("pre_ln", "norms", 2 * hidden)
    per_layer = keys.size("hidden_size_per_layer_input", 0)
    if per_layer and keys.model_type in ("gemma3n_text", "gemma4_text"):
        weights += linear("per_layer_input_gate", "other", hidden, per_layer) + linear(
            "per_layer_projection", "other", per_layer, hidden
        )
        weights += vector("post_per_layer_input_norm", "norms", hidden)
    if keys.model_type == "gemma3n_text":
        rank, n = keys.size("laurel_rank") or 64, keys.size("altup_num_inputs") or 4
        weights += linear("laurel.left", "other", hidden, rank) + linear(
            "laurel.right", "other", rank, hidden
        )
        weights += vector("laurel.norm", "norms", hidden) + vector("altup.norms", "norms", 2 * hidden)
        weights += vector("altup.coefficients", "other", n * n * (1 + n) + n * hidden)
    return weights


def extra_weights(keys: Keys, layers: int, hidden: int) -> Weights:
    """Gemma 3n's and Gemma 4's per-layer embeddings and Gemma 3n's stream projections."""
    per_layer = keys.size("hidden_size_per_layer_input", 0)
    if not per_layer or keys.model_type not in ("gemma3n_text", "gemma4_text"):
        return ()
    rows = keys.size("vocab_size_per_layer_input") or keys.need("vocab")
    weights: Weights = (Weight("embed_tokens_per_layer", "embedding", layers * per_layer, rows, "table"),)
    weights += linear("per_layer_model_projection", "other", hidden, layers * per_layer)
    weights += vector("per_layer_projection_norm", "norms", per_layer)
    if keys.model_type == "gemma3n_text":
        streams = (keys.size("altup_num_inputs") or 4) - 1
        weights += linear("altup_projections", "other", hidden, hidden, False, 2 * streams, 2 * streams)
    return weights
