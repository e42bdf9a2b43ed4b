"""The schema says what the loader takes, and the shipped examples run and move what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofcalc.core import RoofcalcError
from roofcalc.design import findings, load_design, parse_design, schema
from roofcalc.estimate import estimate
from roofcalc.hardware import load, names
from roofcalc.yamlfile import read

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.yaml"))
H100 = load("h100")


def test_the_schema_is_json_of_the_2020_dialect() -> None:
    body = json.loads(json.dumps(schema()))
    assert body["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert body["required"] == ["name", "tensors", "kernels"]
    assert body["additionalProperties"] is False


def fits(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether `value` meets those words of JSON Schema that the design's schema uses."""
    if "$ref" in rule:
        return fits(value, root["$defs"][rule["$ref"].rpartition("/")[2]], root)
    if "anyOf" in rule:
        return any(fits(value, choice, root) for choice in rule["anyOf"])
    words = {"type", "enum", "properties", "required", "items", "minItems", "minProperties", "propertyNames"}
    assert set(rule) <= words | {"additionalProperties", "title", "description", "default", "$defs", "$schema"}
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}
    kind = rule.get("type")
    if kind is not None and (kind == "null") != (value is None):
        return False
    if kind in kinds and (not isinstance(value, kinds[kind]) or (kind != "boolean" and isinstance(value, bool))):
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if isinstance(value, list):
        return len(value) >= rule.get("minItems", 0) and all(fits(v, rule["items"], root) for v in value)
    if isinstance(value, dict):
        known, rest = rule.get("properties", {}), rule.get("additionalProperties", True)
        named = all(fits(key, rule.get("propertyNames", {}), root) for key in value)
        values = all(
            fits(v, known[key], root) if key in known else rest and (rest is True or fits(v, rest, root))
            for key, v in value.items()
        )
        enough = len(value) >= rule.get("minProperties", 0)
        return named and bool(values) and enough and set(rule.get("required", ())) <= set(value)
    return True


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_takes_what_the_loader_takes(path: Path) -> None:
    assert fits(read(path).data, schema(), schema())


@pytest.mark.parametrize(
    "broken",
    [
        {"nme": "x"},
        {"kernels": []},
        {"tensors": {}},
        {"dtype": "bf61"},
        {"params": [1]},
        {"params": {"T": True}},
        {"work": {"vectr": 3}},
        {"work": {"vector": {"op": 3}}},
        {"tensors": {"x": "T"}},
        {"tensors": {"x": {"shap": [1]}}},
        {"kernels": [{"name": "k", "reads": [3]}]},
        {"kernels": [{"name": "k", "tile": {"smem": 3}}]},
        {"kernels": [{"grid": 3}]},
    ],
)
def test_schema_and_loader_refuse_the_same(broken: dict[str, Any]) -> None:
    good: dict[str, Any] = {"name": "x", "tensors": {"x": [1]}, "kernels": [{"name": "k", "writes": ["x"]}]}
    assert fits(good, schema(), schema())
    assert parse_design(json.dumps(good)).name == "x"
    assert not fits({**good, **broken}, schema(), schema())
    with pytest.raises(RoofcalcError):
        parse_design(json.dumps({**good, **broken}))


def test_there_are_five_examples_each_with_its_story() -> None:
    assert len(EXAMPLES) == 5
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# ")
        assert f"roofcalc kernel examples/{path.name}" in text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_run_on_every_gpu(path: Path) -> None:
    design = load_design(path)
    for name in names():
        gpu = load(name)
        report = estimate(design.plan, gpu)
        forbidden = [f.text for f in findings(design, report, gpu) if f.forbids]
        too_large = path.stem == "refused-tile" and gpu.limits.smem_per_block < 192 * 1024
        assert bool(forbidden) is too_large, (name, forbidden)
        assert report.total.time > 0


def total_bytes(name: str, **params: Any) -> int:
    path = next(path for path in EXAMPLES if path.stem == name)
    return int(estimate(load_design(path, params).plan, H100).total.bytes)


def test_the_traffic_of_the_examples_by_hand() -> None:
    # x and y of one row, g: 3 x 4096; w: 4096 x 4096; 2 B each
    assert total_bytes("fused-rmsnorm-linear") == 2 * (3 * 4096 + 4096**2)
    # K and V 2 x 8 x 8192 x 128, q and o 2 x 32 x 128 in bf16; 16 x 32 x (128 + 1) in fp32 written and read
    assert total_bytes("split-k-gqa-decode") == 2 * (2 * 8 * 8192 * 128 + 2 * 4096) + 2 * 4 * 16 * 32 * 129
    # 2000 pages of 4 = S = 8000 exactly: K and V 2 x 8 x 8 x 8000 x 128, q and o 2 x 8 x 32 x 128; table 8 x 2000 x 4 B
    assert total_bytes("paged-decode-small-pages") == 2 * (2 * 64 * 8000 * 128 + 2 * 8 * 4096) + 64_000
    # S = 7997: the last page is loaded whole
    assert total_bytes("paged-decode-small-pages", S=7997) == total_bytes("paged-decode-small-pages")
    # Q, K, V, O: 4 x 16 x 8192 x 256 x 2 B
    assert total_bytes("refused-tile") == 4 * 16 * 8192 * 256 * 2
    # x twice, y once, m and l written and read: 3 x 4096 x 131072 x 2 B + 4 x 4096 x 4 B
    assert total_bytes("two-pass-softmax") == 3 * 4096 * 131_072 * 2 + 4 * 4096 * 4
