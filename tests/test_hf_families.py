"""Further families of config.json in tests/data/model_families.yaml, each with its own way to write sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from roofcalc.hf import describe, load_model

TEXT = (Path(__file__).parent / "data" / "model_families.yaml").read_text(encoding="utf-8")
FAMILIES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_and_cache(name: str, tmp_path: Path) -> None:
    entry = FAMILIES[name]
    (tmp_path / "config.json").write_text(json.dumps(entry["config"]), encoding="utf-8")
    model = describe(load_model(str(tmp_path)))["model"]
    assert model["parameters"] == entry["parameters"]
    assert model["kv_bytes_per_token"] == entry["kv"]
    assert model["kv_bytes_per_token_beyond_window"] == entry.get("growth", entry["kv"])
    if "state" in entry:
        assert model["state_bytes_per_sequence"] == entry["state"]
