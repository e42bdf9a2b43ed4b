"""One model as a page of text: sizes, parameters by part, cache and state, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from roofcalc.render.units import si, size

WIDTH = 118


def page(model: Mapping[str, Any]) -> str:
    """The page of what `hf.describe` says under ``model``."""
    blocks = (_sizes(model), _parameters(model), _memory(model), _origin(model))
    lines = "\n\n".join("\n".join(block) for block in blocks if block).splitlines()
    return (
        "\n".join(fill(line, WIDTH, subsequent_indent="  ") if len(line) > WIDTH else line for line in lines)
        + "\n"
    )


def _sizes(m: Mapping[str, Any]) -> list[str]:
    words = [
        f"{m['layers']} layers",
        f"hidden {m['hidden']:,}",
        f"vocabulary {m['vocab']:,}",
        *([f"context {m['context']:,}"] if m["context"] else []),
        _weights(m),
    ]
    lines = [" · ".join([m["name"], *words])]
    for group in m["layer_groups"]:
        lines.append(f"  {group['count']:3d} x {_group(group)}")
    return lines


def _weights(m: Mapping[str, Any]) -> str:
    """``bf16 weights``, ``fp8 weights, bf16 rest``, ``4-bit awq weights, fp16 rest``."""
    q = m["quantisation"]
    if not q:
        return f"{m['dtype']} weights"
    bits = "" if f"{q['bits']:g}" in q["method"] else f"{q['bits']:g}-bit "
    return f"{bits}{q['method']} weights, {m['dtype']} rest"


def _group(group: Mapping[str, Any]) -> str:
    words = [group["kind"]]
    if group["heads"]:
        widths = f"{group['head_dim']}"
        if group["v_head_dim"] != group["head_dim"]:
            widths += f"/{group['v_head_dim']}"
        many = f"{group['kv_heads']} KV {'head' if group['kv_heads'] == 1 else 'heads'} of {widths}"
        if group["kv_lora_rank"]:
            many = f"latent {group['kv_lora_rank']} + {group['rope_dim']}"
        words.append(f"{group['heads']} heads{f' of {widths}' if group['kv_lora_rank'] else ''}, {many}")
        words.append(f"window {group['window']:,}" if group["window"] else "full attention")
    mlp = group["mlp"]
    if mlp and mlp["experts"]:
        shared = f" + shared {mlp['shared_width']:,}" if mlp["shared_width"] else ""
        words.append(f"{mlp['active']} of {mlp['experts']} experts of {mlp['width']:,}{shared}")
    elif mlp:
        words.append(f"MLP {mlp['width']:,}{' gated' if mlp['gated'] else ''}")
    return " · ".join(words)


def _parameters(m: Mapping[str, Any]) -> list[str]:
    lines = [f"Parameters  {m['parameters']:,} ({si(m['parameters'])}), {size(m['weight_bytes'])} as stored"]
    if m["active_parameters"] != m["parameters"]:
        lines.append(f"  active a token {m['active_parameters']:,}")
    lines += [f"  {part:10s} {count:>18,}" for part, count in m["parts"].items() if count]
    if m["tied"]:
        lines.append("  the LM head is the embedding's matrix: stored once, read at every step")
    if m["quantisation"]:
        q = m["quantisation"]
        lines.append(
            f"  quantised: {q['method']}, {q['bits']:g} bits, {q['bits_with_scales']:.4g} with scales"
        )
    return lines


def _memory(m: Mapping[str, Any]) -> list[str]:
    token, beyond = m["kv_bytes_per_token"], m["kv_bytes_per_token_beyond_window"]
    lines = [f"KV cache    {token:,} bytes a token over all layers, in {m['kv_dtype']}"]
    if beyond != token:
        window = m["kv_window_bytes_per_sequence"]
        lines.append(
            f"  past the windows {beyond:,} bytes a token, and {size(window)} a sequence that no longer grow"
        )
    if m["state_bytes_per_sequence"]:
        ssm, conv = m["ssm_state_bytes_per_sequence"], m["conv_state_bytes_per_sequence"]
        lines.append(
            f"  state {ssm:,} bytes a sequence in fp32, {conv:,} of convolution in bf16; neither grows"
        )
    if m["index_bytes_per_token"]:
        lines.append(f"  indexer of sparse attention {m['index_bytes_per_token']:,} bytes a token more")
    return lines


def _origin(m: Mapping[str, Any]) -> list[str]:
    # What the class gave is in a note; it is no key of the file.
    read = {what: key for what, key in m["sources"].items() if f"{what}: {key}" not in m["defaulted"]}
    keys = ", ".join(key if key == what else f"{what} from {key}" for what, key in read.items())
    lines = [f"Keys read: {keys}."] if keys else []
    return [*lines, *(f"Note: {note}" for note in m["notes"])]
