"""What a verification finds, what it refuses, and the online softmax by itself."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulations import DECODE, ran

from roofcalc.core import RoofcalcError
from roofcalc.simulate import VARIANTS, show_online_softmax, tiled
from roofcalc.simulate.hbm import HBM, Array
from roofcalc.simulate.online import State, fold, log_sum_exp, merge, output, restore, start

# --- what a verification finds


def test_a_forgotten_correction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(state: State, s: Array, V: Array) -> State:
        right = fold(state, s, V)
        p = np.exp(s - right.m[:, None])
        return State(right.m, state.l + p.sum(axis=1), state.O + p @ V)

    monkeypatch.setattr(tiled, "fold", careless)
    found = ran("flash2", T=32, block_q=8, block_kv=8)
    assert found.error64 > 1e-3
    assert not found.agree
    assert "the result is wrong" in found.to_text()


def test_one_read_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = HBM.write

    def nosy(self: HBM, name: str, index: Any, value: Array) -> None:
        if name == "L":
            self.read("K", (0, 0, slice(0, 1)))
        write(self, name, index, value)

    monkeypatch.setattr(HBM, "write", nosy)
    found = ran("flash2", T=32, block_q=8, block_kv=8)
    assert not found.agree
    assert [line.tensor for line in found.tensors if line.counted != line.ledger] == ["K"]
    line = next(line for line in found.tensors if line.tensor == "K")
    assert line.counted - line.ledger == 4 * 2  # once for each of 4 query blocks, d = 2
    assert "count and ledger differ: K read" in found.to_text()


def test_an_output_that_was_never_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = HBM.write

    def forgetful(self: HBM, name: str, index: Any, value: Array) -> None:
        if name != "O":
            write(self, name, index, value)

    monkeypatch.setattr(HBM, "write", forgetful)
    found = ran("naive", T=4)
    assert math.isnan(found.error64)
    assert not found.agree
    assert found.to_dict()["error"] is None


def test_float32_rounds_and_float64_does_not_to_speak_of() -> None:
    for variant in VARIANTS:
        found = ran(variant, T=8 if variant in DECODE else 200, S=200, d=16)
        assert found.error64 < 1e-13 < 1e-8 < found.error32 < 1e-4


def test_the_json_names_every_tensor_and_mode_once() -> None:
    out = ran("flash2", T=64).to_dict()
    assert list(out) == ["schema", "variant", "tensors", "error", "error32", "agree"]
    assert (out["schema"], out["variant"], out["agree"]) == (1, "flash2", True)
    assert out["tensors"][0] == {"tensor": "Q", "mode": "read", "counted": 128, "ledger": 128}
    assert len({(line["tensor"], line["mode"]) for line in out["tensors"]}) == len(out["tensors"]) == 5


# --- the online softmax alone


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12), st.data())
def test_any_cut_of_a_row_gives_the_softmax_of_the_row(row: list[float], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(row)))) | {0, len(row)})
    s, V = np.array([row]), np.arange(2.0 * len(row)).reshape(-1, 2)
    inside = outside = start(1, 2, np.float64)
    for a, b in pairwise(cuts):
        inside = fold(inside, s[:, a:b], V[a:b])
        part = fold(start(1, 2, np.float64), s[:, a:b], V[a:b])
        outside = merge(outside, restore(output(part), log_sum_exp(part)))
    top = max(row)
    weights = [math.exp(x - top) / math.fsum(math.exp(y - top) for y in row) for x in row]
    expected = [math.fsum(w * V[j, c] for j, w in enumerate(weights)) for c in (0, 1)]
    assert output(inside)[0] == pytest.approx(expected, rel=1e-12)
    assert output(outside)[0] == pytest.approx(expected, rel=1e-12)


def test_scores_that_overflow_an_exponential_do_no_harm() -> None:
    # exp(1000) is no float32; the weights of the row are e^-1 / (1 + e^-1) and 1 / (1 + e^-1)
    state = fold(start(1, 1, np.float32), np.float32([[999.0]]), np.float32([[1.0]]))
    state = fold(state, np.float32([[1000.0]]), np.float32([[2.0]]))
    assert output(state)[0, 0] == pytest.approx(1.7310586, abs=1e-6)
    assert output(state).dtype == np.float32


def test_the_walk_through_shows_each_number_of_the_algebra() -> None:
    # by hand: s = 1, 3 | 5, 2. e^-2 = 0.135335, e^-3 = 0.049787, e^-4 = 0.018316.
    # l1 = e^-2 + 1; l2 = e^-2 l1 + 1 + e^-3 = e^-4 + e^-2 + 1 + e^-3 = 1.203438
    # O = (e^-4 [1, 0] + e^-2 [0, 1] + [2, 2] + e^-3 [-1, 1]) / l2 = [1.968529, 2.185122] / 1.203438
    text = show_online_softmax()
    for line in (
        "  m1 = max(s) = 3",
        "  l1 = sum(p) = 1.135335",
        "  m2 = max(m1, s) = 5",
        "  correction exp(m1 - m2) = exp(3 - 5) = 0.135335",
        "  l2 = 0.135335 · l1 + sum(p) = 0.135335 · 1.135335 + 1.049787 = 1.203438",
        "  O2 = 0.135335 · O1 + p V = 0.135335 · [0.135335, 1] + [1.950213, 2.049787] = [1.968529, 2.185122]",
        "  O / l = [1.968529, 2.185122] / 1.203438 = [1.635754, 1.815733]",
        "  weights V = [1.635754, 1.815733]",
    ):
        assert line in text.splitlines()
    assert max(map(len, text.splitlines())) <= 110


# --- what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"variant": "flash"}, "more than --S"),
        ({"variant": "flsh2"}, "no run of 'flsh2'; did you mean flash2"),
        ({"variant": "mamba"}, "no run of 'mamba'; choose from naive"),
        ({"variant": "naive", "block_q": 8}, "--block-q is used by none"),
        ({"variant": "flash3", "direction": "bwd"}, "--pass bwd"),
        ({"variant": "naive", "direction": "fwd+bwd"}, "--pass fwd+bwd"),
        ({"variant": "naive", "layers": 2}, "--layers 2"),
        ({"variant": "ideal", "S": 30_000_000}, "at most 200,000,000"),
        ({"variant": "ideal", "d": 30_000_000}, "at most 250,000,000"),
        ({"variant": "naive", "T": 12_000, "S": 12_000}, "288,096,000 numbers"),
        ({"variant": "flash2", "T": 2000, "S": 2000, "block_q": 1, "block_kv": 1}, "4,000,000 tiles"),
        ({"variant": "naive", "T": np.array([1, 2])}, "plain numbers"),
        ({"variant": "split-kv", "T": 1, "kv_dtype": "int4"}, "--kv-dtype int4"),
        ({"variant": "split-kv", "T": 1, "lengths": (3, 4), "batch": 2}, "one length"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    sizes = {"T": 8, "S": 4, **given}
    if "lengths" in sizes:
        del sizes["S"]
    with pytest.raises(RoofcalcError) as refused:
        ran(**sizes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
