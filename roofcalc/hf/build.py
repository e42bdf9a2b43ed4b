"""Puts a model together from its keys: layers, embeddings, head, and what the reader should know."""

from __future__ import annotations

from typing import Any

from roofcalc.hf.around import around
from roofcalc.hf.families import known_types, traits
from roofcalc.hf.keys import Keys, shown
from roofcalc.hf.layers import all_layers
from roofcalc.hf.model import Layer, Model
from roofcalc.hf.names import NAMES
from roofcalc.hf.quantisation import quantisation
from roofcalc.hf.sections import open_config
from roofcalc.hf.special import extra_weights
from roofcalc.hf.vision import vision

DTYPES = {
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
}

MOST_LAYERS = 10_000


def build(data: Any, name: str, file: str) -> Model:
    """A Model from the parsed JSON of a config.json.

    Raises ModelError, naming `file` and the key, where a size is missing or no whole number, where heads
    do not divide, or where a pattern does not fit the number of layers.
    """
    keys, outer = open_config(data, file)
    habits = traits(keys.model_type)
    notes: list[str] = []
    named = outer.given.get("model_type")
    if named and named not in known_types() and habits.known and not keys.prefix:
        notes.append(
            f"model type {named!r} is not known: read as {keys.model_type}, which its architecture names"
        )
    if not habits.known:
        notes.append(
            f"model type {keys.model_type!r} is not known: read by its keys, as a Llama-like decoder"
        )
    elif not habits.read:
        notes.append(f"the code of {keys.model_type} was not read: counted as a Llama-like decoder")
    hidden, count = keys.need("hidden"), _count(keys)
    if count > MOST_LAYERS:
        raise keys.error(f"{keys.log['layers']} is {count}; no model has more than {MOST_LAYERS}")
    vocab = _vocab(keys)
    tied = _tied(keys, outer)
    layers = all_layers(keys, habits, count, hidden, notes)
    # A file that names no dtype leaves bf16 as the likeliest; the note says so.
    dtype = _dtype(keys, outer, notes)
    pictures = vision(outer, keys, hidden, notes)
    return Model(
        name=name,
        model_type=str(outer.model_type),
        hidden=hidden,
        vocab=vocab,
        tied=tied,
        dtype=dtype,
        layers=layers,
        weights=around(keys, habits, hidden, vocab, tied) + extra_weights(keys, count, hidden) + pictures,
        quantisation=quantisation(outer, notes),
        context=keys.size("context"),
        encoder=habits.encoder and not keys.flag("is_decoder"),
        sublayers=habits.sublayers,
        sources=dict(keys.log),
        defaulted=_defaulted(keys),
        notes=_notes(keys, outer, layers, notes),
    )


def _count(keys: Keys) -> int:
    """How many layers; a list or pattern of them counts where no key says a number."""
    if keys.find(NAMES["layers"])[0] in keys.given:
        return keys.need("layers")
    for name in ("hybrid_override_pattern", "layers_block_type"):
        listed = keys.given.get(name)
        if isinstance(listed, str | list) and listed:
            keys.log["layers"] = f"length of {name}"
            return len(listed)
    return keys.need("layers")


def _vocab(keys: Keys) -> int:
    vocab, multiple = keys.need("vocab"), keys.size("pad_vocab_size_multiple")
    return -(-vocab // multiple) * multiple if multiple else vocab


def _tied(keys: Keys, outer: Keys) -> bool:
    """Whether head and embedding are one; of a nested file, where either level says so."""
    for name in ("share_input_output_layers", "tie_embeddings"):
        if keys.has(name):
            keys.record("tied", name)
            return keys.flag(name)
    if not keys.has("tie_word_embeddings") and not outer.has("tie_word_embeddings"):
        keys.log["tied"] = "no key"
    else:
        keys.record("tied", "tie_word_embeddings")
    # The first Mamba files have no such key, and tie.
    fallback = keys.model_type in ("mamba_ssm", "mamba2_ssm")
    if outer is keys or not keys.prefix:
        return keys.flag("tie_word_embeddings", fallback)
    inner = keys.given.get("tie_word_embeddings")
    if "tie_word_embeddings" in outer.given or "tie_word_embeddings" in outer.defaults:
        return outer.flag("tie_word_embeddings") or inner is True
    return keys.flag("tie_word_embeddings", fallback)


def _dtype(keys: Keys, outer: Keys, notes: list[str]) -> str:
    value = keys.value("dtype") or outer.value("dtype")
    if value is not None and not isinstance(value, str):
        raise keys.error(f"dtype is {shown(value)}; it must be a name, such as {', '.join(DTYPES)}")
    found = DTYPES.get(str(value).removeprefix("torch."))
    if found is None:
        notes.append(
            f"{'no dtype in the file' if value is None else f'dtype {value!r} is not known'}: bf16 assumed"
        )
    return found or "bf16"


def _defaulted(keys: Keys) -> tuple[str, ...]:
    return tuple(f"{figure}: {source}" for figure, source in keys.log.items() if "(default of " in source)


def _figure_and_key(line: str) -> str:
    """``tied (tie_word_embeddings)`` for ``tied: tie_word_embeddings (default of gpt2)``."""
    figure, _, source = line.partition(": ")
    key = source.partition(" (default of ")[0]
    return figure if key == figure else f"{figure} ({key})"


def _notes(keys: Keys, outer: Keys, layers: tuple[Layer, ...], notes: list[str]) -> tuple[str, ...]:
    if _defaulted(keys):
        notes.append(
            f"not in the file, taken from the class of {keys.class_type}: "
            + ", ".join(_figure_and_key(line) for line in _defaulted(keys))
        )
    if keys.flag("is_encoder_decoder") or outer.flag("is_encoder_decoder"):
        notes.append("an encoder-decoder: the decoder alone is described, as if it stood by itself")
    extra = keys.size("num_nextn_predict_layers", 0) or keys.size("num_mtp_layers", 0)
    if extra:
        notes.append(f"{extra} multi-token-prediction layer(s) beside the {len(layers)} are not counted")
    if any(a.index_dim for layer in layers if (a := layer.attention)):
        notes.append("the sparse-attention indexer caches keys of its own beside the latent")
    if any(layer.kind == "cross" for layer in layers):
        notes.append("cross-attention layers cache an image's keys and values, none per token")
    if keys.log.get("tied") == "no key":
        notes.append("no tie_word_embeddings: embedding and head are counted as two tables")
    return tuple(notes)
