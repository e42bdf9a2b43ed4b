"""quantization_config: bits per weight, what its scales and zeros add, and which modules are left alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from roofcalc.hf.keys import Keys, is_whole, shown
from roofcalc.hf.model import Quantisation, Weight

HEADS = ("lm_head", "embed_tokens")


def quantisation(outer: Keys, notes: list[str]) -> Quantisation | None:
    """The file's quantisation, or None; a method that is not known is said in `notes`."""
    section = outer.section("quantization_config") or outer.section("compression_config")
    text = outer.section("text_config").get("quantization_config")
    section = section or (text if isinstance(text, Mapping) else {})
    if not section:
        return None
    method = str(
        section.get("quant_method") or section.get("quant_algo") or section.get("quant_type") or "unknown"
    ).lower()
    if section.get("load_in_4bit") or section.get("load_in_8bit") or section.get("_load_in_4bit"):
        method = "bitsandbytes"
    reader = READERS.get(method)
    if reader is None:
        if not is_whole(section.get("bits")):
            notes.append(
                f"quantisation method {method!r} is not known: weights counted at the declared dtype"
            )
            return None
        notes.append(f"quantisation method {method!r} is not known: read by its bits and group_size")
        reader = _grouped
    return reader(section, outer, method)


def _number(section: Mapping[str, Any], outer: Keys, name: str, fallback: int) -> int:
    value = section.get(name, section.get({"bits": "w_bit", "group_size": "q_group_size"}.get(name, name)))
    if value is None:
        return fallback
    if not is_whole(value):
        raise outer.error(f"quantization_config.{name} is {shown(value)}; it must be a whole number")
    return int(value)


def _skips(section: Mapping[str, Any], outer: Keys) -> tuple[str, ...]:
    found = next(
        (
            section[n]
            for n in (
                "modules_to_not_convert",
                "ignore",
                "ignored_layers",
                "exclude_modules",
                "llm_int8_skip_modules",
                "exclude",
                "modules_to_not_quantize",
            )
            if section.get(n)
        ),
        (),
    )
    if isinstance(found, str) or not isinstance(found, list | tuple):
        raise outer.error(f"quantization_config lists modules as {shown(found)}; it must be a list of names")
    return tuple(str(name) for name in found)


def _grouped(section: Mapping[str, Any], outer: Keys, method: str) -> Quantisation:
    """AWQ and GPTQ: per group of inputs an fp16 scale and a zero of as many bits as a weight.

    GPTQ adds one int32 group index for each input row. A group size of -1 is one group for all inputs.
    """
    bits, group = _number(section, outer, "bits", 4), _number(section, outer, "group_size", 128)
    if bits < 1:
        raise outer.error(f"quantization_config.bits is {bits}; it must be at least 1")
    zero = bits if method != "awq" or section.get("zero_point", True) else 0
    overhead = (16 + zero) / group if group > 0 else 0.0
    return Quantisation(
        method=method,
        bits=bits,
        overhead=overhead,
        skipped=_skips(section, outer),
        row_bits=32 if "gptq" in method else 0,
    )


def _bitsandbytes(section: Mapping[str, Any], outer: Keys, method: str) -> Quantisation:
    """LLM.int8: one fp32 scale an output row. 4-bit: an fp32 scale per 64 weights, with double quantisation
    an 8-bit one and an fp32 per 256 of those (arXiv:2305.14314, section 3)."""
    skipped = _skips(section, outer) or ("lm_head",)
    if section.get("load_in_4bit") or section.get("_load_in_4bit"):
        overhead = 8 / 64 + 32 / (64 * 256) if section.get("bnb_4bit_use_double_quant") else 32 / 64
        return Quantisation(method=method, bits=4, overhead=overhead, skipped=skipped, only_layers=False)
    return Quantisation(method=method, bits=8, overhead=0.0, skipped=skipped, only_layers=False)


def _fp8(section: Mapping[str, Any], outer: Keys, method: str) -> Quantisation:
    """One fp32 scale per block (128 x 128 in DeepSeek-V3), or one a tensor."""
    block = section.get("weight_block_size")
    if block is not None and not (
        isinstance(block, list) and len(block) == 2 and all(is_whole(b) and b > 0 for b in block)
    ):
        raise outer.error(
            f"quantization_config.weight_block_size is {shown(block)}; it must be two whole numbers"
        )
    return Quantisation(
        method=method,
        bits=8,
        overhead=0.0,
        skipped=(*_skips(section, outer), *HEADS),
        block=(block[0], block[1]) if block else None,
    )


def _mxfp4(section: Mapping[str, Any], outer: Keys, method: str) -> Quantisation:
    """Four bits and one 8-bit scale per 32 (OCP MX 1.0), for the experts' matrices only."""
    return Quantisation(
        method=method, bits=4, overhead=8 / 32, skipped=_skips(section, outer), only_experts=True
    )


def _compressed(section: Mapping[str, Any], outer: Keys, method: str) -> Quantisation:
    """compressed-tensors: bits and strategy of the first group of weights; modelopt's NVFP4 and FP8 alike."""
    groups = section.get("config_groups")
    first: Any = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    weights = weights if isinstance(weights, Mapping) else {}
    algo = str(section.get("quant_algo") or section.get("format") or "").lower()
    fallback = 4 if "nvfp4" in algo or "w4" in algo else 8
    bits, group = (
        _number(weights, outer, "num_bits", fallback),
        weights.get("group_size") or (16 if "nvfp4" in algo else 0),
    )
    scale = 8 if "nvfp4" in algo or group == 16 else 16
    block = weights.get("block_structure")
    zero = 0 if weights.get("symmetric", True) else bits
    overhead = (scale + zero) / group if is_whole(group) and group > 0 else 0.0
    return Quantisation(
        method=method,
        bits=bits,
        overhead=overhead,
        skipped=_skips(section, outer) or ("lm_head",),
        block=(block[0], block[1]) if isinstance(block, list) and len(block) == 2 else None,
    )


def _bitnet(section: Mapping[str, Any], outer: Keys, method: str) -> Quantisation:
    """Ternary weights, packed four to a byte."""
    return Quantisation(method=method, bits=2, overhead=0.0, skipped=_skips(section, outer))


READERS = {
    "awq": _grouped,
    "gptq": _grouped,
    "auto-round": _grouped,
    "autoround": _grouped,
    "marlin": _grouped,
    "gptq_marlin": _grouped,
    "bitsandbytes": _bitsandbytes,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "finegrained_fp8": _fp8,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "modelopt": _compressed,
    "nvfp4": _compressed,
    "modelopt_fp4": _compressed,
    "bitnet": _bitnet,
    "hqq": _grouped,
    "intel/auto-round": _grouped,
}


def quantised(q: Quantisation, name: str, weight: Weight) -> bool:
    """Whether this matrix is stored in the quantised form. Norms, biases, tables and routers never are."""
    if weight.role != "linear" or weight.part in ("router", "embedding", "vision"):
        return False
    if q.only_experts:
        return weight.part == "experts"
    if q.only_layers and weight.part == "lm_head":
        return False
    return not any(_matches(pattern, name) for pattern in q.skipped)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    glob = re.escape(pattern).replace(r"\*", ".*")
    return re.search(rf"(^|\.){glob}(\.|$)", name) is not None


def weight_bits(q: Quantisation, weight: Weight) -> int:
    """Bits that one quantised matrix takes with its scales, zeros and indices."""
    bits = int(weight.elements * (q.bits + q.overhead)) + q.row_bits * weight.inputs * weight.copies
    if q.block:
        rows, columns = q.block
        bits += 32 * -(-weight.outputs // rows) * -(-weight.inputs // columns) * weight.copies
    elif q.method in ("bitsandbytes",) and q.bits == 8:
        bits += 32 * weight.outputs * weight.copies
    return bits
