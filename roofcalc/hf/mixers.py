"""Which mixer each layer has: the many ways in which config.json files write a pattern of layers.

A mixer is one of `full`, `sliding`, `chunked`, `cross` (attention), `state` (the type's state-space or
linear mixer), `hybrid` (state and shared attention), `parallel` (both side by side), `mlp` or `moe`
(a block without a mixer) and `none`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys, is_whole, shown

WORDS = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "full": "full",
    "global_attention": "full",
    "attn": "full",
    "sliding_attention": "sliding",
    "local": "sliding",
    "sliding": "sliding",
    "local_attention": "sliding",
    "sliding_window_attention": "sliding",
    "swa": "sliding",
    "window": "sliding",
    "chunked_attention": "chunked",
    "cross_attention": "cross",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
    "short_conv": "state",
    "recurrent": "state",
    "ssm": "state",
    "kda": "state",
    "gated_deltanet": "state",
    "lightning": "state",
    "rwkv": "state",
    "m": "state",
    "hybrid": "hybrid",
    "parallel": "parallel",
    "mlp": "mlp",
    "moe": "moe",
    "none": "none",
    "no_op": "none",
    "deepseek_sparse_attention": "full",
}
LETTERS = {
    "M": "state",
    "*": "full",
    "-": "mlp",
    "E": "moe",
    "A": "full",
    "L": "sliding",
    "G": "full",
    "S": "sliding",
}
NUMBERS = {0: "state", 1: "full", 2: "sliding"}
LISTS = (
    "layers_block_type",
    "layer_types",
    "attn_type_list",
    "block_types",
    "_block_types",
    "layer_type_list",
    "attention_layers",
)


def mixers(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> tuple[str, ...]:
    """One mixer for each of `layers`; what could not be told apart is said in `notes`."""
    for rule in (_block_configs, _pattern_text, _listed, _linear_attn, _indices, _periods, _by_window):
        found = rule(keys, traits, layers, notes)
        if found is not None:
            # RecurrentGemma's and Samba's lists say "attention" and mean the windowed kind.
            local = traits.window == "local" and keys.value("window") is not None
            return tuple("sliding" if local and kind == "full" else kind for kind in found)
    raise AssertionError("the last rule always answers")


def _block_configs(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> list[str] | None:
    blocks = keys.items("block_configs")
    if blocks is None:
        return None
    if len(blocks) < layers:
        raise keys.error(f"{keys.prefix}block_configs lists {len(blocks)} blocks for {layers} layers")
    attention = [block.get("attention") or {} if isinstance(block, dict) else {} for block in blocks[:layers]]
    return [
        "none" if a.get("no_op") else "linear" if a.get("replace_with_linear") else "full" for a in attention
    ]


def _pattern_text(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> list[str] | None:
    text = keys.given.get("hybrid_override_pattern")
    if text is None:
        return None
    if not isinstance(text, str) or set(text) - set(LETTERS):
        raise keys.error(
            f"{keys.prefix}hybrid_override_pattern is {shown(text)}; it must hold M, *, - and E only"
        )
    if len(text) != layers:
        raise keys.error(f"{keys.prefix}hybrid_override_pattern has {len(text)} letters for {layers} layers")
    keys.record("mixers", "hybrid_override_pattern")
    return [LETTERS[letter] for letter in text]


def _listed(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> list[str] | None:
    name, value = keys.find([*LISTS, *([traits.window_list] if traits.window_list else [])])
    if not value:
        return None
    if not isinstance(value, list):
        raise keys.error(f"{keys.prefix}{name} is {shown(value)}; it must be a list with one entry a layer")
    if name in ("block_types", "_block_types"):
        value = [value[i % len(value)] for i in range(layers)]
    if len(value) < layers:
        raise keys.error(f"{keys.prefix}{name} lists {len(value)} layers, the model has {layers}")
    if len(value) > layers:
        notes.append(f"{name} lists {len(value)} layers, the first {layers} are used")
    keys.record("mixers", name)
    return [_word(item, name == traits.window_list, keys, name, notes) for item in value[:layers]]


def _word(item: Any, window_flag: bool, keys: Keys, name: str, notes: list[str]) -> str:
    if is_whole(item):
        found = ("full", "sliding")[item] if window_flag and item in (0, 1) else NUMBERS.get(item)
    else:
        found = WORDS.get(str(item).lower())
    if found is None:
        note = f"{name} says {item!r}, which is not known: counted as full attention"
        if note not in notes:
            notes.append(note)
        return "full"
    return found


def _linear_attn(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> list[str] | None:
    full = keys.section("linear_attn_config").get("full_attn_layers")
    if full is None:
        return None
    if not isinstance(full, list):
        raise keys.error(
            f"{keys.prefix}linear_attn_config.full_attn_layers is {shown(full)}; it must be a list of layers"
        )
    keys.record("mixers", "linear_attn_config")
    # Kimi-Linear counts these layers from 1.
    return ["full" if i + 1 in full else "state" for i in range(layers)]


def _indices(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> list[str] | None:
    for name, inside, outside in (
        ("attn_layer_indices", "full", "state"),
        ("attn_layer_idx", "full", "state"),
        ("full_attn_idxs", "full", "state"),
        ("hybrid_layer_ids", "hybrid", "state"),
        ("cross_attention_layers", "cross", "full"),
        ("local_layer_ids", "sliding", "full"),
    ):
        listed = keys.indices(name)
        if listed is not None and (listed or name in keys.given):
            return [inside if i in listed else outside for i in range(layers)]
    types = keys.items("attention_types")
    if types is not None:
        # GPT-Neo writes [[["global", "local"], 12]]: a group and how often it repeats.
        spread = [word for entry in types for word in _spread(keys, entry)]
        if len(spread) < layers:
            raise keys.error(
                f"{keys.prefix}attention_types spreads to {len(spread)} layers, the model has {layers}"
            )
        return [_word(word, False, keys, "attention_types", notes) for word in spread[:layers]]
    return None


def _spread(keys: Keys, entry: Any) -> list[Any]:
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], list):
        raise keys.error(
            f"{keys.prefix}attention_types holds {shown(entry)}; it must hold lists of [kinds, times]"
        )
    return list(entry[0]) * min(keys.checked("attention_types.times", entry[1]), 10_000)


def _periods(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> list[str] | None:
    if traits.everywhere:
        return [traits.everywhere] * layers
    period = keys.size("attn_layer_period")
    if period is not None:
        offset = keys.size("attn_layer_offset", 0) or 0
        inside = "hybrid" if traits.state == "zamba" else "full"
        # Zamba's class starts with two Mamba layers before its period counts.
        first = [] if inside == "full" else ["state", "state", "hybrid"]
        rest = [inside if i % period == offset else "state" for i in range(layers - len(first))]
        return (first + rest)[:layers]
    interval = keys.size("full_attention_interval") or keys.size("layer_group_size")
    if interval is not None and (traits.state or interval > 1):
        return ["full" if (i + 1) % interval == 0 else "state" for i in range(layers)]
    if traits.state in ("mamba", "mamba2", "rwkv", "mlstm") and not keys.find(("num_attention_heads",))[1]:
        return ["state"] * layers
    default = DEFAULT_PATTERNS.get(traits.state)
    return default(layers) if default else None


DEFAULT_PATTERNS: dict[str, Callable[[int], list[str]]] = {
    "gated_delta": lambda n: ["full" if (i + 1) % 4 == 0 else "state" for i in range(n)],
    "kda": lambda n: ["full" if (i + 1) % 4 == 0 and i < n - 1 else "state" for i in range(n)],
    "lightning": lambda n: ["full" if (i + 1) % 2 else "state" for i in range(n)],
    "rglru": lambda n: ["full" if i % 3 == 2 else "state" for i in range(n)],
    "mamba": lambda n: ["state"] * n,
    "mamba2": lambda n: ["state"] * n,
    "mlstm": lambda n: ["state"] * n,
    "rwkv": lambda n: ["state"] * n,
    "short_conv": lambda n: ["full"] * n,
}
"""What each configuration class builds where the file has no pattern."""


def _by_window(keys: Keys, traits: Traits, layers: int, notes: list[str]) -> Sequence[str]:
    windows = keys.value("window")
    if isinstance(windows, list) and traits.window != "never":
        return ["sliding" if w is not None else "full" for w in keys.per_layer("window", layers)]
    pattern = keys.value("sliding_window_pattern") or keys.value("_sliding_window_pattern")
    if isinstance(pattern, str):
        return [LETTERS.get(pattern[i % len(pattern)], "full") for i in range(layers)]
    if pattern is not None:
        keys.checked("sliding_window_pattern", pattern)
    period = pattern or keys.size("global_attn_every_n_layers") or traits.period
    if traits.window == "chunked":
        rope = keys.items("no_rope_layers") or [
            (i + 1) % (keys.size("no_rope_layer_interval") or 4) for i in range(layers)
        ]
        return ["chunked" if flag else "full" for flag in rope[:layers]]
    if traits.window == "pattern" or (traits.window == "auto" and pattern):
        return ["sliding" if (i + 1) % period else "full" for i in range(layers)]
    if traits.window == "upper":
        first = keys.size("max_window_layers", 0) or 0
        return [
            "sliding" if keys.flag("use_sliding_window") and i >= first else "full" for i in range(layers)
        ]
    uses = {"never": False, "all": True, "auto": not traits.known}.get(traits.window, False)
    uses = keys.flag("use_sliding_window", default=uses) if traits.window != "never" else False
    if traits.window == "never" and keys.given.get("sliding_window"):
        notes.append(f"sliding_window is set, but the code of {keys.model_type} does not use it")
    return ["sliding" if uses else "full"] * layers
