"""The algorithms run with every access counted: counts by hand, counts against the ledger, results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulations import DECODE, H100, TILED, counted, ran

from roofcalc.core import Shape
from roofcalc.simulate import VARIANTS, verify
from roofcalc.simulate.hbm import HBM
from roofcalc.simulate.layer import visible

# --- the instrument


def test_reads_and_writes_are_counted_by_the_elements_that_move() -> None:
    hbm = HBM({"A": np.zeros((4, 5))})
    hbm.read("A", (slice(1, 3),))  # 2 x 5
    hbm.read("A", (0, slice(3, 9)))  # the row ends after 2 of them
    hbm.write("A", (slice(0, 4), 2), np.ones(4))
    assert hbm.moved == {("A", "read"): 12, ("A", "write"): 4}


def test_no_view_of_the_memory_leaves_it_or_enters_it() -> None:
    mine = np.zeros((2, 2))
    hbm = HBM({"A": mine})
    mine[:] = 7
    hbm.read("A", (0,))[:] = 8
    value = np.full(2, 9.0)
    hbm.write("A", (1,), value)
    value[:] = 10
    assert hbm.read("A", ()).tolist() == [[0, 0], [9, 9]]


def test_a_write_is_never_broadcast() -> None:
    hbm = HBM({"A": np.zeros((2, 2))})
    with pytest.raises(ValueError, match=r"\(2, 2\) here, not \(2,\)"):
        hbm.write("A", (), np.zeros(2))


def test_an_allocated_array_is_not_a_number_until_it_is_written() -> None:
    hbm = HBM({})
    hbm.allocate("O", (3,), np.float32)
    assert np.isnan(hbm.read("O", ())).all()
    with pytest.raises(ValueError, match="already holds 'O'"):
        hbm.allocate("O", (3,), np.float32)


# --- counts that the reading on IO complexity and the papers give


def test_the_square_is_94_percent_of_standard_attention_at_1024() -> None:
    # the reading: 4 T² + 4 T d numbers; "at T = 1,024 and d_k = 64, the two square matrices are 94%"
    moved = counted("naive", T=1024, d=64)
    square = sum(n for name, n in moved.items() if name[0] in "SP")
    assert square == 4 * 1024 * 1024
    assert sum(moved.values()) - square == 4 * 1024 * 64
    assert square / sum(moved.values()) == pytest.approx(0.941176, abs=1e-6)


def test_four_elementwise_kernels_move_ten_squares() -> None:
    # the reading: "with scale, mask, softmax, and dropout (k = 4) that is 10 T²"; beside them the mask that is
    # added (T² numbers) and the bytes of dropout's mask (T² of them)
    moved = counted("eager", T=256, d=64, elementwise="scale,mask,softmax,dropout")
    assert moved.pop("M read") == moved.pop("D write") == 65_536
    assert sum(moved.values()) == 655_360 + 65_536  # 10 T² + 4 T d


def test_one_additive_mask_serves_all_heads_only_while_it_fits_l2() -> None:
    sizes = {"T": 16, "heads": 3, "batch": 2, "elementwise": "mask,softmax"}
    assert counted("eager", **sizes)["M read"] == 256
    assert counted("eager", limits=replace(H100, l2=511), **sizes)["M read"] == 6 * 256  # it has 512 bytes


def test_flash1_counts_as_its_algorithm_1_by_hand() -> None:
    # N = 8, d = 2, blocks of 4 keys, so 2 passes: K and V once, Q and O 2 N d a pass, l and m 4 N a pass, O read
    # in the second pass only, l and m not read in the first: 2 N d + 2 (2 N d + 4 N) + N d - 2 N = 160
    moved = counted("flash1", T=8, block_q=4, block_kv=4)
    assert moved == {
        **{"K read": 16, "V read": 16, "Q read": 32},
        **{"O read": 16, "O write": 32, "L read": 16, "L write": 32},
    }
    assert sum(moved.values()) == 160


def test_flash1_with_ragged_tiles_moves_no_padding() -> None:
    # 3 queries in blocks of 2, 5 keys in blocks of 2, so 3 passes; d = 2, dv = 1
    assert counted("flash1", T=3, S=5, dv=1, block_q=2, block_kv=2) == {
        **{"K read": 10, "V read": 5, "Q read": 18},
        **{"O read": 6, "O write": 9, "L read": 12, "L write": 18},
    }


def test_flash2_reads_the_tiles_that_a_causal_mask_leaves() -> None:
    # 2 x 2 blocks of 2: the first query block sees one block of keys, the second both: 3 x 2 keys of d = 2
    assert counted("flash2", T=4, causal=True, block_q=2, block_kv=2) == {
        **{"Q read": 8, "K read": 12, "V read": 12, "O write": 8, "L write": 4},
    }


def test_flash2_reads_a_partly_masked_tile_whole_and_a_ragged_one_as_far_as_it_goes() -> None:
    # query blocks {0,1,2} and {3,4}, key blocks {0,1,2} and {3,4}: 3 keys, then 5
    assert counted("flash2", T=5, causal=True, block_q=3, block_kv=3)["K read"] == (3 + 5) * 2


def test_flash2_reads_the_keys_of_a_group_once_per_query_head_and_block() -> None:
    # 2 query blocks x 4 query heads x 6 keys x d = 2, though there is a single KV head
    moved = counted("flash2", T=6, heads=4, kv_heads=1, block_q=3, block_kv=4)
    assert moved["K read"] == moved["V read"] == 96
    assert moved["Q read"] == moved["O write"] == 48


def test_two_pass_and_ideal_and_chunked_read_a_group_s_keys_for_all_its_heads() -> None:
    sizes = {"T": 1030, "S": 9, "heads": 4, "kv_heads": 2}
    assert counted("ideal", **sizes)["K read"] == 36  # 2 KV heads x 9 keys x d = 2
    assert counted("two-pass", **sizes)["K read"] == 72
    assert counted("two-pass", **sizes)["V read"] == 36
    assert counted("chunked", **sizes)["K read"] == 72  # 1,030 queries are two chunks of 1,024
    assert counted("chunked", **sizes)["V read"] == 72


def test_splitting_moves_a_partial_output_and_one_log_sum_exp_a_row_and_split() -> None:
    # 4 query heads on 2 KV heads, 20 keys in 4 splits of 5 (the plan's block of keys is longer than that)
    assert counted("split-kv", T=1, S=20, heads=4, kv_heads=2, splits=4) == {
        **{"Q read": 32, "K read": 80, "V read": 80, "O write": 8},
        **{"O_partial write": 32, "O_partial read": 32, "L_partial write": 16, "L_partial read": 16},
    }


def test_one_split_needs_no_second_kernel() -> None:
    moved = counted("split-kv", T=1, S=20, splits=1)
    assert moved == {"Q read": 2, "K read": 40, "V read": 40, "O write": 2}


def test_decode_flash_reads_the_keys_for_each_query_head_and_flash_gqa_for_each_group() -> None:
    sizes = {"T": 1, "S": 10, "heads": 6, "kv_heads": 2}
    assert counted("flash", **sizes)["K read"] == 6 * 10 * 2
    assert counted("flash-gqa", **sizes)["K read"] == 2 * 10 * 2


def test_decode_naive_reads_the_keys_that_its_window_leaves() -> None:
    # 2 KV heads x 30 of the 100 keys x d = 2; 4 query heads x 30 scores, written and read
    found = verify("naive", Shape.of(T=1, S=100, heads=4, kv_heads=2, d=2, window=30), H100, command="decode")
    assert found.agree
    moved = {(line.tensor, line.mode): line.counted for line in found.tensors}
    assert moved["K", "read"] == moved["V", "read"] == 120
    assert moved["S", "write"] == moved["P", "read"] == 120


# --- the corners where a formula is easily wrong


@pytest.mark.parametrize("variant", TILED)
def test_a_query_block_without_a_key_reads_nothing_and_still_writes_its_zeros(variant: str) -> None:
    # 10 causal queries on 4 keys: query 6 is the first to see one, so blocks {0,1}, {2,3}, {4,5} see none
    # (flash_fwd_kernel.h: "exit early and write 0")
    moved = counted(variant, T=10, S=4, causal=True, block_q=2, block_kv=4)
    assert moved["Q read"] == 4 * 2
    assert moved["O write"] == 10 * 2


@pytest.mark.parametrize(("variant", "keys"), [("flash1", 8), ("flash2", 12), ("ideal", 5), ("two-pass", 10)])
def test_keys_that_a_window_hides_from_every_query_are_not_read(variant: str, keys: int) -> None:
    # queries at positions 98 and 99 with a window of 4 see the keys 95 to 99, in the blocks {92..95} and {96..99};
    # with query blocks of one row the first loads both blocks, the second the last one alone
    blocks = {"block_q": 1, "block_kv": 4} if variant in TILED else {}
    assert counted(variant, T=2, S=100, causal=True, window=4, **blocks)["K read"] == keys * 2


def test_a_split_without_keys_reads_no_queries() -> None:
    # 9 keys in 4 splits are chunks of 3, 3 and 3; the fourth split only writes its zeros
    moved = counted("split-kv", T=1, S=9, splits=4)
    assert (moved["Q read"], moved["O_partial write"]) == (3 * 2, 4 * 2)


def test_decode_query_tiles_skip_the_blocks_that_they_do_not_see() -> None:
    # 1,024 tokens in 64-row tiles on blocks of 256 keys (d <= 64): 4 tiles each end in block 1, 2, 3 and 4
    assert counted("split-kv", T=1024, causal=True, splits=1)["K read"] == 4 * (1 + 2 + 3 + 4) * 256 * 2


def test_rows_that_see_no_key_are_zero() -> None:
    for variant in set(VARIANTS) - set(DECODE):
        assert ran(variant, T=7, S=3, causal=True).error64 < 1e-12


def test_a_mask_counts_the_pairs_that_its_definition_names() -> None:
    # each query and key looked at alone, aligned at the bottom right
    for T, S, causal, window in [(5, 5, True, None), (3, 7, True, 2), (7, 3, True, None), (6, 9, False, 3)]:
        shape = Shape.of(T=T, S=S, heads=1, causal=causal, window=window)
        found = visible(shape, slice(0, T), slice(0, S))
        for i in range(T):
            for j in range(S):
                back = i + S - T - j
                hidden = (causal and back < 0) or (window is not None and abs(back) >= window)
                assert found[i, j] == (not hidden)
        assert found.sum() == shape.pairs


# --- any shape


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A variant with a shape and options that it takes, and a GPU with a small or a usual L2."""
    variant = draw(st.sampled_from(VARIANTS))
    kv_heads = draw(st.integers(1, 2))
    T, S = draw(st.integers(1, 70)), draw(st.integers(1, 90))
    if variant in DECODE:
        T, S = min(T, S), max(T, S) * draw(st.sampled_from((1, 8)))
    case = {
        **{"variant": variant, "T": T, "S": S, "kv_heads": kv_heads, "heads": kv_heads * draw(st.integers(1, 4))},
        "d": draw(st.sampled_from((1, 8, 40))),
        "dv": draw(st.sampled_from((1, 6))),
        "batch": draw(st.integers(1, 2)),
        "causal": draw(st.booleans()),
        "window": draw(st.none() | st.integers(1, 80)),
        "limits": replace(H100, sms=draw(st.sampled_from((1, 132))), l2=draw(st.sampled_from((100, 2000, 50 << 20)))),
    }
    if variant in TILED:
        case |= {"block_q": draw(st.integers(1, 32)), "block_kv": draw(st.integers(1, 32))}
    if variant == "split-kv":
        window = case["window"] or S
        case |= {"splits": draw(st.integers(1, min(12, S, window + T - 1)))}
    if variant == "eager":
        steps = [step for step in ("scale", "mask", "softmax", "dropout") if step == "softmax" or draw(st.booleans())]
        case |= {"elementwise": ",".join(steps)}
    return case


@settings(max_examples=250, deadline=None)
@given(cases())
def test_count_equals_ledger_and_the_result_is_attention(case: dict[str, Any]) -> None:
    found = ran(**case)
    assert found.agree, found.to_text()
    assert found.error32 < 1e-4
