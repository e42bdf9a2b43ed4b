"""What surrounds the layers: embedding, positions, final norm, head, and an encoder's pooler."""

from __future__ import annotations

from roofcalc.hf.families import Traits
from roofcalc.hf.keys import Keys
from roofcalc.hf.model import Part, Weight, Weights, linear, vector


def around(keys: Keys, habits: Traits, hidden: int, vocab: int, tied: bool) -> Weights:
    """Embedding, learned positions, final norm and head."""
    width = keys.size("word_embed_proj_dim") or keys.size("embedding_size") or hidden
    per_norm = {"rms": hidden, "layer": 2 * hidden, "none": 0}[habits.norm]
    weights: Weights = (
        Weight(
            "model.embed_tokens",
            "embedding",
            width,
            _rows(keys, vocab),
            "table",
            shared="embedding" if tied or habits.encoder else "",
        ),
    )
    if habits.positions:
        rows = (keys.size(habits.positions) or keys.size("context") or 0) + habits.position_offset
        weights += (
            Weight("model.embed_positions", "embedding", width if habits.encoder else hidden, rows, "table"),
        )
    if habits.encoder:
        return weights + _encoder_rest(keys, habits, hidden, width, vocab)
    if width != hidden:
        weights += linear("model.project_in", "other", width, hidden) + linear(
            "model.project_out", "other", hidden, width
        )
    weights += vector("model.embed_norm", "norms", 2 * hidden * habits.embedding_norm)
    weights += vector("model.norm", "norms", per_norm * habits.on("final_norm", keys))
    head: Part = "lm_head"
    rows = keys.size("unpadded_vocab_size") or vocab
    weights += (Weight("lm_head", head, width, rows, "linear", shared="embedding" if tied else ""),)
    return weights + vector("lm_head.bias", head, rows * habits.on("head_bias", keys))


def _rows(keys: Keys, vocab: int) -> int:
    """Rows of the embedding: Mllama keeps eight for its image tokens beside the vocabulary."""
    return vocab + 8 if keys.model_type == "mllama_text_model" else vocab


def _encoder_rest(keys: Keys, habits: Traits, hidden: int, width: int, vocab: int) -> Weights:
    """What a BERT-like encoder has around its layers: token types, embedding norm, and the pooler or the head
    for masked words that `architectures` names."""
    weights: Weights = (
        Weight("embeddings.token_type", "embedding", width, keys.size("type_vocab_size", 0) or 0, "table"),
    )
    weights += vector("embeddings.norm", "norms", 2 * width * habits.embedding_norm)
    if width != hidden:
        weights += linear("embeddings_project", "other", width, hidden, True)
    weights += vector("encoder.norm", "norms", 2 * hidden * habits.on("final_norm", keys))
    names = keys.given.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else ""
    if first.endswith(("ForMaskedLM", "ForPreTraining", "LMHeadModel", "ForCausalLM")):
        weights += linear("lm_head.transform", "lm_head", hidden, width, True) + vector(
            "lm_head.norm", "norms", 2 * width
        )
        weights += vector("lm_head.bias", "lm_head", vocab)
        weights = (*weights, Weight("lm_head", "lm_head", width, vocab, shared="embedding"))
        weights = (
            *weights,
            *(linear("nsp", "other", hidden, 2, True) if first.endswith("ForPreTraining") else ()),
        )
    pooled = not first.endswith(("ForMaskedLM", "LMHeadModel", "ForCausalLM"))
    return weights + (
        linear("pooler.dense", "other", hidden, hidden, True)
        if pooled and keys.model_type != "electra"
        else ()
    )
