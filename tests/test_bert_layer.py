"""The shares of one BERT-large layer, forward and backward, that Ivanov et al. measured (arXiv:2007.00072)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from roofcalc.estimate import estimate
from roofcalc.hardware import load

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "bert_layer.py"


@pytest.fixture(scope="module")
def bert_layer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bert_layer", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bert_layer"] = module
    spec.loader.exec_module(module)
    return module


def test_the_contractions_of_the_layer_by_hand(bert_layer: ModuleType) -> None:
    # 4096 rows; forward: 2·4096·1024·(3072 + 1024) + 2·2·4096·1024·4096 + 4·8·16·512²·64 = 111.67 GFLOP; thrice with
    # the two gradients of every product
    plan = bert_layer.layer(load("a100").limits)
    forward = 2 * 4096 * 1024 * 4096 + 4 * 4096 * 1024 * 4096 + 4 * 8 * 16 * 512 * 512 * 64
    flops = sum(w.ops for k in plan.kernels if k.group == "contractions" for w in k.work)
    assert flops == 3 * forward == 335_007_449_088 - 3 * 0


def test_the_shares_of_flop_and_of_time(bert_layer: ModuleType) -> None:
    gpu = load("a100")
    found = bert_layer.shares(estimate(bert_layer.layer(gpu.limits), gpu))
    # printed: 99.8 % of the FLOP are contractions (within 0.1 point), 0.17 % normalisations, 0.03 % elementwise
    assert found["contractions"][0] == pytest.approx(0.998, abs=0.001)
    assert 0.0017 / 2 < found["normalisations"][0] < 0.0017 * 2
    assert 0.0003 / 2 < found["elementwise"][0] < 0.0003 * 2
    # and 61, 25.5 and 13.5 % of the time: the nearest GPU is expected within 3 points of the measured shares
    expected = [found[name][2] for name in ("contractions", "normalisations", "elementwise")]
    assert expected == pytest.approx([0.61, 0.255, 0.135], abs=0.03)
