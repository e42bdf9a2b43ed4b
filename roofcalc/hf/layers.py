"""The layers of a model: each one's mixer, MLP, norms and weights."""

from __future__ import annotations

from dataclasses import replace

from roofcalc.hf.attention import Heads, attention, heads_of
from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys
from roofcalc.hf.mixers import mixers
from roofcalc.hf.mlp import dense, dense_widths, expert_layers, first_number, mixture
from roofcalc.hf.model import Attention, Layer, Mlp, Weights, linear, vector
from roofcalc.hf.special import layer_extras, shared_block
from roofcalc.hf.state import state


def all_layers(keys: Keys, habits: Traits, count: int, hidden: int, notes: list[str]) -> tuple[Layer, ...]:
    """The `count` layers of the file; what could not be told apart is said in `notes`."""
    kinds = mixers(keys, habits, count, notes)
    heads = heads_of(keys, count, hidden) if set(kinds) & ATTENDING else None
    holds = _holds_mlp(keys, habits, kinds)
    routed = _routed(keys, kinds, holds)
    dense_too = habits.on("dense_beside_experts", keys) or any(
        h and not r for h, r in zip(holds, routed, strict=True)
    )
    widths = dense_widths(keys, habits, count, hidden) if dense_too else (0,) * count
    shared = shared_block(keys, hidden, heads, notes) if "hybrid" in kinds else None
    layers: list[Layer] = []
    for i, kind in enumerate(kinds):
        layer = _layer(keys, habits, i, kind, heads, hidden, widths[i] if holds[i] else 0, routed[i])
        layer = shared.join(layer, i) if shared and kind == "hybrid" else layer
        layers += _sublayers(keys, habits, layer, hidden)
    return tuple(_without_own_cache(keys, layers))


ATTENDING = {"full", "sliding", "chunked", "cross", "parallel", "hybrid"}


def _holds_mlp(keys: Keys, habits: Traits, kinds: tuple[str, ...]) -> tuple[bool, ...]:
    """Which layers may have an MLP; one of width 0 is none all the same."""
    if set(kinds) & {"mlp", "moe"}:
        return tuple(kind in ("mlp", "moe") for kind in kinds)
    bare = habits.norms == 1 and habits.state in ("mamba", "mamba2", "zamba")
    return (not bare or bool(keys.size("d_intermediate", 0)),) * len(kinds)


def _routed(keys: Keys, kinds: tuple[str, ...], holds: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which layers have experts."""
    if set(kinds) & {"mlp", "moe"}:
        return tuple(kind == "moe" for kind in kinds)
    experts = first_number(keys, "experts") or 0
    # Dense files of families that also have mixtures keep their key at 0 or 1.
    sparse = expert_layers(keys, len(kinds), experts if experts > 1 else 0)
    return tuple(h and s for h, s in zip(holds, sparse, strict=True))


def _layer(
    keys: Keys,
    habits: Traits,
    i: int,
    kind: str,
    heads: Heads | None,
    hidden: int,
    width: int,
    moe: bool,
) -> Layer:
    softmax: Attention | None = None
    weights: Weights = ()
    if heads and kind in ATTENDING - {"hybrid"}:
        softmax, weights = attention(keys, habits, kind, heads, i, hidden)
    if kind == "linear":
        weights += linear("self_attn.linear_attn", "other", hidden, hidden)
    mixer = None
    if kind in ("state", "hybrid", "parallel"):
        mixer, more = state(keys, habits, hidden)
        weights += more
    mlp: Mlp | None
    if moe:
        mlp, more = mixture(keys, habits, hidden, width)
    else:
        mlp, more = dense(keys, habits, hidden, width)
    shared = keys.size("shared_intermediate_size", 0)
    if not moe and habits.moe_drops_dense and shared:
        # Granite's hybrid without experts keeps the shared MLP alone.
        mlp, more = dense(keys, habits, hidden, shared)
    weights += more
    norms = _norms(keys, habits, kind, bool(softmax or mixer or kind == "linear"), mlp is not None)
    per_norm = {"rms": hidden, "layer": 2 * hidden, "none": 0}[habits.norm]
    weights += vector("norms", "norms", norms * per_norm) + layer_extras(
        keys, habits, kind, i, hidden, softmax
    )
    return Layer(
        attention=softmax,
        state=mixer,
        mlp=mlp,
        norms=norms,
        parallel=_parallel(keys, habits),
        weights=weights,
    )


def _parallel(keys: Keys, habits: Traits) -> bool:
    if keys.model_type in ("falcon", "RefinedWeb", "RefinedWebModel"):
        return keys.flag("new_decoder_architecture") or keys.flag("parallel_attn")
    return habits.on("parallel", keys)


def _norms(keys: Keys, habits: Traits, kind: str, mixes: bool, has_mlp: bool) -> int:
    """Norms of the hidden width in one layer."""
    if keys.model_type in ("falcon", "RefinedWeb", "RefinedWebModel"):
        if keys.flag("new_decoder_architecture"):
            return keys.size("num_ln_in_parallel_attn") or 2
        return 1 if keys.flag("parallel_attn") else 2
    norms = 1 if habits.norms == 2 and habits.on("single_norm_if", keys) else habits.norms
    if mixes and has_mlp:
        return norms
    return (norms + 1) // 2 if mixes or has_mlp else 0


def _sublayers(keys: Keys, habits: Traits, layer: Layer, hidden: int) -> tuple[Layer, ...]:
    """LongCat-Flash has two attentions and two dense MLPs around one mixture: two layers here."""
    if habits.sublayers == 1:
        return (layer,)
    mlp, more = dense(keys, habits, hidden, keys.need("intermediate"))
    plain = tuple(w for w in layer.weights if w.part in ("attention", "norms"))
    return replace(layer, weights=layer.weights + more), replace(layer, mlp=mlp, weights=plain + more)


def _without_own_cache(keys: Keys, layers: list[Layer]) -> list[Layer]:
    """Marks the layers that read an earlier layer's K and V: Gemma 3n's last, Hunyuan's every second."""
    last, factor = keys.size("num_kv_shared_layers", 0) or 0, keys.size("cla_share_factor", 0) or 0
    share = [i >= len(layers) - last for i in range(len(layers))]
    if keys.flag("use_cla") and factor > 1:
        share = [i % factor != 0 for i in range(len(layers))]
    return [
        replace(
            layer, attention=replace(layer.attention, owns_cache=False), weights=_without_kv(layer.weights)
        )
        if shares and layer.attention
        else layer
        for layer, shares in zip(layers, share, strict=True)
    ]


def _without_kv(weights: Weights) -> Weights:
    kept = [w for w in weights if ".k_proj" not in w.name and ".v_proj" not in w.name]
    return tuple(replace(w, outputs=w.outputs // 2) if w.name.endswith("qk_norm") else w for w in kept)
