"""Every way in which a design's file, its formulas and its params can be wrong, and what the refusal says."""

from __future__ import annotations

from typing import Any

import pytest
from designs import EXAMPLE

from roofcalc.core import RoofcalcError
from roofcalc.design import parse_design


def refusal(old: str, new: str, **params: Any) -> str:
    assert EXAMPLE.count(old) == 1
    with pytest.raises(RoofcalcError) as caught:
        parse_design(EXAMPLE.replace(old, new), params, "mine.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


BAD_FORMULAS = [
    ("N^2", "'N^2' uses ^, which is no power here; write N**2"),
    ("2*N^2", "write 2*N**2"),
    ("Nn", "has the unknown name 'Nn'; did you mean N"),
    ("Q", "has the unknown name 'Q'; allowed: T, D, N"),
    ("N.real", "uses the attribute .real"),
    ("N.bit_length()", "uses the attribute .bit_length"),
    ("open(1)", "calls open(), which is not allowed; allowed: min, max, ceil, floor, sqrt, log2"),
    ("cel(N / 2)", "calls cel(), which is not allowed; did you mean ceil"),
    ("__import__('os')", "calls __import__()"),
    ("ceil", "has ceil without its numbers; write ceil(...)"),
    ("ceil(N, 128)", "ceil() takes one number"),
    ("max(N)", "max() takes two numbers or more"),
    ("9**9**9", "is too large"),
    ("9**999999999", "is too large"),
    ("N*1e30", "is too large at N=4096"),
    ("2N", "lacks an operator; write 2*N"),
    ("2 N", "lacks an operator; write 2*N"),
    ("T N", "lacks an operator; write T*N"),
    ("2(N)", "lacks an operator; write 2*(...)"),
    ("N(2)", "lacks an operator; write N*(...)"),
    ("2·N", "has the sign ·; write * for it"),
    ("N²", "has the sign ²; write **2 for it"),
    ("8k", "without a unit or a prefix (8k is 8*1024)"),
    ("64 blocks", "without a unit or a prefix"),
    ("N / (T - 1)", "divides by zero at T=1, N=4096"),
    ("N % 0", "divides by zero at N=4096"),
    ("N // 0", "divides by zero"),
    ("sqrt(T - 2)", "takes the square root of a negative number at T=1"),
    ("log2(T - 1)", "takes the logarithm of a number that is not above zero at T=1"),
    ("N if T else D", "is more than arithmetic (IfExp)"),
    ("N > 3", "is more than arithmetic (Compare)"),
    ("(N := 3)", "is more than arithmetic (NamedExpr)"),
    ("lambda: 3", "is more than arithmetic (Lambda)"),
    ("(lambda: 1)()", "is more than arithmetic (Lambda)"),
    ("[N](2)", "is more than arithmetic (List)"),
    ("'3'", "has '3' where a number is wanted"),
    ("N +", "is no formula"),
    ("", "is empty"),
    ("3.5", "found 3.5; a whole number is wanted: write 3 or 4"),
    ("N / 3", "'N / 3' is 1365.333333 at N=4096; a whole number is wanted: write ceil(N / 3) or floor(N / 3)"),
    ("-3", "found -3; a whole number of at least 1 is wanted"),
    ("T - 5", "'T - 5' is -4 at T=1; a whole number of at least 1 is wanted"),
    ("T // 2", "'T // 2' is 0 at T=1"),
    ("0", "found 0; a whole number of at least 1 is wanted"),
    ("1" * 1001, "has 1001 characters; a formula has at most 1000"),
    ("-" * 900 + "1", "nested too deeply"),
]


@pytest.mark.parametrize(("formula", "part"), BAD_FORMULAS)
def test_a_bad_formula_says_where_it_stands_and_what_to_write(formula: str, part: str) -> None:
    quoted = formula.replace("'", "''")
    message = refusal('"ceil(N / 128)"', f"'{quoted}'")
    assert message.startswith("mine.yaml:13:11: kernels[0].grid: ")
    assert part in message


# --- the file


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("[T, D]", "[T^2, D]", "5:7: tensors.x[0]: 'T^2' uses ^"),
        ("[D, N]", "[D, 2T]", "6:18: tensors.w.shape[1]: '2T' lacks an operator; write 2*T"),
        ("[T, D]", "[0, D]", "5:7: tensors.x[0]: found 0"),
        ("[T, D]", "[10**20, 10**10]", "5:6: tensors.x: the tensor is too large"),
        ("[T, D]", "[]", "5:6: tensors.x.shape: the list is empty"),
        ("[T, D]", "T*D", "5:6: tensors.x: found 'T*D'; a list of sizes is wanted, such as [T, D]"),
        ("[T, D]", "{shap: [T]}", "5:7: tensors.x.shap: unknown key; did you mean shape"),
        ("dtype: bf16}", "dtype: bf61}", "7:29: tensors.y.dtype: found 'bf61'; did you mean bf16"),
        ("dtype: bf16\n", "dtype: int4\n", "3:8: dtype: found 'int4'; did you mean int8"),
        ("dtype: bf16\n", "dtype: bf16\ndtype: fp8\n", "4:1: dtype: the key is given twice"),
        ("  y:", "  x:", "7:3: tensors.x: the key is given twice"),
        ("[x, w]", "[x, ww]", "10:16: kernels[0].reads[1].tensor: unknown tensor 'ww'; did you mean w"),
        ("[x, w]", "[x, {tensor: v}]", "10:25: kernels[0].reads[1].tensor: unknown tensor 'v'; allowed: x, w, y"),
        ("[x, w]", "[x, {tensr: w}]", "10:17: kernels[0].reads[1].tensr: unknown key; did you mean tensor"),
        ("[x, w]", "[x, {tensor: w, tier: dram}]", "10:34: kernels[0].reads[1].tier: found 'dram'; allowed: hbm"),
        ("[x, w]", "[x, {tensor: w, times: 1/3}]", "10:35: kernels[0].reads[1].times: '1/3' times 16777216"),
        ("[x, w]", "[x, {tensor: w, times: -1}]", "times: '-1' times 16777216 elements is -16777216; at least 0 is"),
        ("[x, w]", "[x, {tensor: w, elements: -1}]", "found -1; a whole number of at least 0 is wanted"),
        ("  x: [T, D]", "\tx: [T, D]", "5:1: not valid YAML: indent with spaces, YAML allows no tabs"),
        ("    writes: [y]", "\twrites: [y]", "11:1: not valid YAML: indent with spaces, YAML allows no tabs"),
        ("[x, w]", "[x, {tensor: w, times: 1, elements: 2}]", "10:38: kernels[0].reads[1].elements: times and"),
        ("vector:", "vectr:", "12:31: kernels[0].work.vectr: unknown key; did you mean vector"),
        ('"4*T*D"', "{op: 3}", "12:40: kernels[0].work.vector.op: unknown key; did you mean ops"),
        ('"4*T*D"', '[1, "2U"]', "12:43: kernels[0].work.vector[1].ops: '2U' has '2U'"),
        ('"4*T*D"', "{ops: 3, executed: 2}", "12:58: kernels[0].work.vector.executed: 2 operations are fewer"),
        ("smem:", "smen:", "14:12: kernels[0].tile.smen: unknown key; did you mean smem"),
        (", threads: 256", "", "14:11: kernels[0].tile.threads: missing; the key is required"),
        ('"2*128*64*2 * 3"', "48 GB/s", "14:18: kernels[0].tile.smem: the unit 'GB/s' does not fit; bytes (B)"),
        ('"2*128*64*2 * 3"', "5 usx", "14:18: kernels[0].tile.smem: the unit 'usx' does not fit"),
        ('"2*128*64*2 * 3"', "48 KB", "14:18: kernels[0].tile.smem: the unit 'KB' is not clear"),
        ('"2*128*64*2 * 3"', "2T", "14:18: kernels[0].tile.smem: '2T' lacks an operator; write 2*T"),
        ("dtype: bf16\n", "dtype: bf16\nmemory: 3 GB/s\n", "4:9: memory: the unit 'GB/s' does not fit"),
        (EXAMPLE[EXAMPLE.index("    reads") :], "", "9:5: kernels[0]: the kernel does nothing; give it reads"),
        ("grid:", "gird:", "13:5: kernels[0].gird: unknown key; did you mean grid"),
        ("name: fused", "nme: fused", "1:1: nme: unknown key; did you mean name"),
        ("fused rmsnorm + linear", "3", "1:7: name: found 3; text is wanted"),
        (EXAMPLE[EXAMPLE.index("kernels:") :], "", "1:1: kernels: missing; the key is required"),
        (EXAMPLE[EXAMPLE.index("kernels:") :], "kernels: []", "8:10: kernels: the list is empty"),
        (EXAMPLE[EXAMPLE.index("kernels:") :], "kernels:", "8:9: kernels: found nothing; a list is wanted"),
        (EXAMPLE[EXAMPLE.index("tensors:") : EXAMPLE.index("kernels:")], "tensors: {}\n", "4:10: tensors: the mapping"),
        (EXAMPLE, "", "mine.yaml: the file is empty"),
        (EXAMPLE, "# only a comment\n", "mine.yaml: the file is empty"),
        (EXAMPLE, "- a\n", "1:1: found a list; a mapping is wanted"),
        (EXAMPLE, "{", "not valid YAML"),
        ("{T: 1,", "{T: 0,", "2:13: params.T: found 0; a whole number of at least 1 is wanted"),
        ("{T: 1,", "{T: 1.5,", "2:13: params.T: found 1.5; a whole number is wanted: write 1 or 2"),
        ("{T: 1,", "{T: 8k,", "2:13: params.T: '8k' has '8k'"),
        ("{T: 1,", "{T: D,", "2:13: params.T: 'D' has the unknown name 'D'; there are no params before it"),
        ("{T: 1,", "{max: 1,", "2:10: params.max: 'max' cannot name a param"),
        ("{T: 1,", "{T t: 1,", "2:10: params.T t: 'T t' cannot name a param"),
        ("{T: 1, D: 4096, N: 4096}", "[T]", "2:9: params: found a list; a mapping is wanted"),
    ],
)
def test_a_broken_file_names_line_and_column(old: str, new: str, part: str) -> None:
    message = refusal(old, new)
    assert message.startswith("mine.yaml:")
    assert part in message


@pytest.mark.parametrize("value", ["8.5", "8kk", "0", "-3", "", "T", 0, 8.5])
def test_a_param_from_the_command_line_is_a_count(value: object) -> None:
    message = refusal("{T: 1,", "{T: 1,", T=value)
    assert message.startswith(f"-p T={value}: ")
    assert "a whole number of at least 1 is wanted, such as 8192, 8k (8192)" in message


def test_a_param_that_the_design_does_not_have() -> None:
    expected = "mine.yaml:2:9: params: -p t=3: the design has no param 't'; did you mean T"
    assert refusal("{T: 1,", "{T: 1,", t=3) == expected
    assert "it has no params" in refusal("params: {T: 1, D: 4096, N: 4096}", "params: {}", X=3)


def test_a_size_that_is_zero_at_the_given_param_is_refused() -> None:
    assert "'T // 4' is 0 at T=3; a whole number of at least 1" in refusal("[T, D]", "[T // 4, D]", T=3)
