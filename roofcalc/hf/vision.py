"""Vision towers beside a language model: their parameters, and those of what joins the two.

Shapes are those of the modeling code of transformers 5.24.0 (read). A tower is counted as one entry:
its work is not that of a decoder, its weights take memory all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from roofcalc.hf.families import class_defaults
from roofcalc.hf.keys import Keys
from roofcalc.hf.model import Weights, vector

Tower = Callable[[Keys, Keys, int], int]


def vision(outer: Keys, text: Keys, hidden: int, notes: list[str]) -> Weights:
    """Parameters of the tower and its projector as one entry, or a note that they are not counted."""
    section = outer.section("vision_config")
    usual = str(outer.defaults.get("/vision_config", ""))
    if not section and not (text.prefix and usual):
        return ()
    named = str(section.get("model_type") or "")
    kind = named if named in TOWERS else usual or named
    count = TOWERS.get(kind)
    if count is None:
        notes.append(f"the vision tower ({kind or 'of no known type'}) is not counted")
        return ()
    tower = Keys(section, class_defaults(kind), outer.file, kind, "vision_config.")
    notes.append("parameters include the vision tower and its projector")
    return vector("vision_tower", "vision", count(tower, outer, hidden))


def vit(
    width: int,
    layers: int,
    mlp: int,
    *,
    qkv: bool = True,
    out: bool = True,
    bias: bool = True,
    norms: int = 4,
    gated: bool = False,
) -> int:
    """Parameters of `layers` ViT blocks: which of their matrices have biases, and norm vectors per block."""
    matrices = 4 * width * width + (3 if gated else 2) * width * mlp
    biases = 3 * width * qkv + width * out + (mlp * (2 if gated else 1) + width) * bias
    return layers * (matrices + biases + norms * width)


def _sides(tower: Keys) -> tuple[int, int, int]:
    """Patch side, patches of an image, colour channels."""
    patch, image = (_side(tower, name) for name in ("patch_size", "image_size"))
    channels = tower.size("num_channels") or tower.size("in_channels") or 3
    return patch, (image // patch) ** 2, channels


def _side(tower: Keys, name: str) -> int:
    value = tower.value(name)
    if isinstance(value, list) and value:
        return tower.checked(f"{name}[0]", value[0])
    return tower.need(name)


def siglip(tower: Keys, outer: Keys, hidden: int) -> int:
    width, mlp = tower.need("hidden"), tower.need("intermediate")
    patch, patches, channels = _sides(tower)
    head = 0
    if tower.flag("vision_use_head", True) and tower.model_type.startswith("siglip"):
        # The attention-pooling head: a probe, one attention, one MLP, one norm.
        head = width + 4 * (width * width + width) + 2 * width + 2 * width * mlp + mlp + width
    body = (
        vit(width, tower.need("layers"), mlp)
        + channels * patch * patch * width
        + width
        + patches * width
        + 2 * width
    )
    return body + head + projector(outer, width, hidden)


def clip(tower: Keys, outer: Keys, hidden: int) -> int:
    width = tower.need("hidden")
    patch, patches, channels = _sides(tower)
    around = channels * patch * patch * width + width + (patches + 1) * width + 4 * width
    return (
        vit(width, tower.need("layers"), tower.need("intermediate"))
        + around
        + projector(outer, width, hidden)
    )


def pixtral(tower: Keys, outer: Keys, hidden: int) -> int:
    width, patch = tower.need("hidden"), _side(tower, "patch_size")
    blocks = vit(
        width,
        tower.need("layers"),
        tower.need("intermediate"),
        qkv=False,
        out=False,
        bias=False,
        norms=2,
        gated=True,
    )
    return (
        blocks
        + (tower.size("num_channels") or 3) * patch * patch * width
        + width
        + projector(outer, width, hidden)
    )


def projector(outer: Keys, width: int, hidden: int) -> int:
    """Gemma 3's norm and matrix, PaliGemma's linear, Mistral 3's merger, Idefics 3's matrix, LLaVA's MLP."""
    kind = outer.model_type
    if kind in ("gemma3", "shieldgemma2"):
        return width * hidden + width
    if kind == "paligemma":
        return width * hidden + hidden
    if kind in ("idefics3", "smolvlm"):
        return (outer.size("scale_factor") or 2) ** 2 * width * hidden
    bias = outer.flag("multimodal_projector_bias", True)
    layers = outer.find(("vision_feature_layer",))[1]
    inputs = width * (len(layers) if isinstance(layers, list) else 1)
    mlp = inputs * hidden + hidden * hidden + 2 * hidden * bias
    if kind in ("mistral3", "lighton_ocr"):
        return mlp + width + width * width * (outer.size("spatial_merge_size") or 2) ** 2
    return mlp + (hidden if kind in ("llava_next", "llava_next_video", "llava_onevision") else 0)


def _merger(width: int, out: int, merge: int, norm: int) -> int:
    """Qwen-VL's merger: a norm and two layers over merge x merge patches."""
    wide = width * merge * merge
    return norm + wide * wide + wide + wide * out + out


def _qwen_patches(tower: Keys, width: int) -> tuple[int, int]:
    channels = tower.size("in_channels") or tower.size("in_chans") or 3
    patch = tower.need("patch_size")
    return channels * (tower.size("temporal_patch_size") or 2) * patch * patch * width, tower.size(
        "spatial_merge_size"
    ) or 2


def qwen2_vl(tower: Keys, outer: Keys, hidden: int) -> int:
    width, layers = tower.need("embed_dim"), tower.need("depth")
    patches, merge = _qwen_patches(tower, width)
    mlp = (tower.size("mlp_ratio") or 4) * width
    return vit(width, layers, mlp) + patches + _merger(width, tower.need("hidden_size"), merge, 2 * width)


def qwen2_5_vl(tower: Keys, outer: Keys, hidden: int) -> int:
    width = tower.need("hidden_size")
    patches, merge = _qwen_patches(tower, width)
    blocks = vit(width, tower.need("depth"), tower.need("intermediate_size"), norms=2, gated=True)
    return blocks + patches + _merger(width, tower.need("out_hidden_size"), merge, width)


def qwen3_vl(tower: Keys, outer: Keys, hidden: int) -> int:
    width, out = tower.need("hidden_size"), tower.need("out_hidden_size")
    patches, merge = _qwen_patches(tower, width)
    deep = len(tower.items("deepstack_visual_indexes") or [])
    mergers = _merger(width, out, merge, 2 * width) + deep * _merger(
        width, out, merge, 2 * width * merge * merge
    )
    table = tower.need("num_position_embeddings") * width
    return (
        vit(width, tower.need("depth"), tower.need("intermediate_size")) + patches + width + table + mergers
    )


def llama4(tower: Keys, outer: Keys, hidden: int) -> int:
    width, mlp = tower.need("hidden"), tower.need("intermediate")
    patch, patches, channels = _sides(tower)
    inputs, outputs = tower.need("projector_input_dim"), tower.need("projector_output_dim")
    # Pixel shuffle halves both sides, so four patches' features enter the adapter (mlp wide in the class).
    ratio = tower.number("pixel_shuffle_ratio") or 0.5
    adapter = int(width / ratio**2) * inputs + inputs * outputs
    around = width + (patches + 1) * width + channels * patch * patch * width + 4 * width
    return vit(width, tower.need("layers"), mlp) + around + adapter + tower.need("vision_output_dim") * hidden


def mllama(tower: Keys, outer: Keys, hidden: int) -> int:
    width, mlp = tower.need("hidden"), tower.need("intermediate")
    patch, patches, channels = _sides(tower)
    layers, deep = tower.need("layers"), tower.need("num_global_layers")
    tiles, ratios = tower.need("max_num_tiles"), len(tower.items("supported_aspect_ratios") or range(8)) + 1
    blocks = vit(width, layers + deep, mlp, qkv=False, out=False) + 2 * deep
    positions = (
        (patches + 1) * width + 1 + ratios * tiles * (patches + 1) * width + 2 * (1 + ratios * tiles * width)
    )
    around = width + channels * patch * patch * width + 4 * width
    return blocks + positions + around + tower.need("vision_output_dim") * hidden + hidden


def internvl(tower: Keys, outer: Keys, hidden: int) -> int:
    width, mlp = tower.need("hidden"), tower.need("intermediate")
    patch, patches, channels = _sides(tower)
    blocks = vit(
        width, tower.need("layers"), mlp, qkv=tower.flag("attention_bias") or tower.flag("qkv_bias"), norms=6
    )
    around = width + (patches + 1) * width + channels * patch * patch * width + width
    return blocks + around + 8 * width + 4 * width * hidden + hidden + hidden * hidden + hidden


def moonvit(tower: Keys, outer: Keys, hidden: int) -> int:
    width, layers, mlp = (
        tower.size(a) or tower.size(b) or tower.need(b)
        for a, b in (
            ("vt_hidden_size", "hidden_size"),
            ("vt_num_hidden_layers", "num_hidden_layers"),
            ("vt_intermediate_size", "intermediate_size"),
        )
    )
    patch = tower.need("patch_size")
    table = (tower.size("pos_emb_height") or tower.size("init_pos_emb_height") or 64) ** 2 * width
    around = 3 * patch * patch * width + width + table + 2 * width
    return vit(width, layers, mlp) + around + _merger(width, hidden, 2, 2 * width)


def gemma4(tower: Keys, outer: Keys, hidden: int) -> int:
    width, mlp, patch = tower.need("hidden"), tower.need("intermediate"), tower.need("patch_size")
    head = tower.size("head_dim") or width // tower.need("heads")
    blocks = vit(width, tower.need("layers"), mlp, qkv=False, out=False, bias=False, gated=True)
    table = 2 * (tower.size("position_embedding_size") or 10240) * width
    return blocks + tower.need("layers") * 2 * head + table + 3 * patch * patch * width + width * hidden


TOWERS: dict[str, Tower] = {
    "siglip_vision_model": siglip,
    "siglip": siglip,
    "clip_vision_model": clip,
    "pixtral": pixtral,
    "qwen2_vl": qwen2_vl,
    "qwen2_vl_vision": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_5_vl_vision": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_vision": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "qwen3_vl_moe_vision": qwen3_vl,
    "qwen3_5": qwen3_vl,
    "qwen3_5_vision": qwen3_vl,
    "qwen3_5_moe": qwen3_vl,
    "qwen3_5_moe_vision": qwen3_vl,
    "llama4_vision_model": llama4,
    "mllama_vision_model": mllama,
    "internvl_vision": internvl,
    "intern_vit_6b": internvl,
    "kimi_k25_vision": moonvit,
    "gemma4_vision": gemma4,
    "idefics3_vision": siglip,
    "idefics3": siglip,
    "smolvlm_vision": siglip,
}
