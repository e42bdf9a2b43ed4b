"""Hardware files: how a GPU is found, and every way in which a file can be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roofcalc.core import RoofcalcError
from roofcalc.hardware import Hardware, figures, load, names
from roofcalc.yamlfile import FileError

BUILT_IN = ("a100", "a100-40gb", "a100-pcie", "b200", "h100", "h100-nvl", "h100-pcie", "h200", "l40s")


# The example of the interface document, word for word: it has no aliases and one source.
EXAMPLE = """\
name: H100 SXM5 80 GB
architecture: hopper
sms: 132
clocks: {tensor: 1830 MHz, fp32: 1980 MHz}
tensor: {bf16: 989.4 TFLOP/s, fp16: 989.4 TFLOP/s, fp8: 1978.9 TFLOP/s, tf32: 494.7 TFLOP/s}   # dense
vector: {fp32: 66.9 TFLOP/s}
exp: 3.865 Top/s
memory:
  hbm: {bandwidth: 3.35 TB/s, capacity: 80 GB, latency: 650 ns}
  l2: {bandwidth: 9.4 TB/s, capacity: 50 MiB}
  smem: {bandwidth: 30.9 TB/s, per_sm: 228 KiB, per_block: 227 KiB, latency: 17 ns}
per_sm: {registers: 65536, threads: 2048, blocks: 32}
launch: {host: 5 us, graph: 2 us, node: 1 us, barrier: 1.1 us}
sources: {tensor.bf16: "NVIDIA H100 data sheet (read)"}
"""


@pytest.fixture(autouse=True)
def _no_user_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOFCALC_HARDWARE", raising=False)


def written(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(name: str, *overrides: str) -> str:
    with pytest.raises(RoofcalcError) as caught:
        load(name, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_dtype_that_the_gpu_lacks() -> None:
    with pytest.raises(
        RoofcalcError, match="a100 has no fp8 on its tensor cores; it has bf16, fp16, tf32, int8"
    ):
        load("a100").rate("tensor", "fp8")


@pytest.mark.parametrize("name", ["h100", "H100", "h100-sxm", "H100_SXM5", "h100_sxm5_80gb"])
def test_a_gpu_is_found_by_name_and_alias_in_any_case(name: str) -> None:
    assert load(name).key == "h100"


def test_an_alias_leads_to_one_gpu_and_hides_no_name() -> None:
    aliases = [alias for name in BUILT_IN for alias in load(name).aliases]
    assert len({*aliases, *BUILT_IN}) == len(aliases) + len(BUILT_IN)
    assert all(load(alias).key in BUILT_IN for alias in aliases)


def test_an_unknown_name_lists_the_near_ones() -> None:
    message = refusal("h10")
    assert "'h10'" in message
    assert "h100" in message
    assert "roofcalc gpus" in message


def test_a_users_file_works_by_path_and_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, EXAMPLE)
    by_path = load(path)
    assert (by_path.key, by_path.name) == ("mine", "H100 SXM5 80 GB")
    assert by_path.memory.hbm.latency == pytest.approx(650e-9)
    assert by_path.sram is None
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("ROOFCALC_HARDWARE", os.pathsep.join([str(empty), str(tmp_path)]))
    assert load("MINE") == by_path
    assert names() == tuple(sorted([*BUILT_IN, "mine"]))


def test_a_users_file_hides_the_built_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, EXAMPLE.replace("3.35 TB/s", "3.2 TB/s"), "h100.yaml")
    written(tmp_path, "name: [broken }", "other.yml")
    monkeypatch.setenv("ROOFCALC_HARDWARE", str(tmp_path))
    assert load("h100").memory.hbm.bandwidth == 3.2e12
    assert load("a100-sxm").key == "a100"  # the search for an alias passes over the broken file
    assert "other.yml:1:15: not valid YAML" in refusal("other")


def test_a_missing_folder_is_named_with_the_unknown_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFCALC_HARDWARE", "/no/such/folder")
    assert load("h100").key == "h100"
    assert "/no/such/folder" in refusal("mine")


# What is replaced in the example, and the error after "mine.yaml:".
BROKEN = [
    (
        "3.35 TB/s",
        "3.35e12",
        "9:20: memory.hbm.bandwidth: '3.35e12' has no unit; bytes per second (B/s) wanted",
    ),
    ("3.35 TB/s", "3.35", "9:20: memory.hbm.bandwidth: '3.35' has no unit; bytes per second (B/s) wanted"),
    (
        "3.35 TB/s",
        "3.35 Tb/s",
        "9:20: memory.hbm.bandwidth: the unit 'Tb/s' does not fit (b is bits, B is bytes)",
    ),
    ("3.35 TB/s", "", "9:20: memory.hbm.bandwidth: found nothing; bytes per second (B/s) wanted"),
    (
        "1.1 us",
        "5 usx",
        "13:56: launch.barrier: the unit 'usx' does not fit; seconds (s) wanted, such as '5 us'",
    ),
    ("650 ns", "1:30", "9:57: memory.hbm.latency: '1:30' is not a number with a unit; seconds"),
    ("650 ns", ".nan", "9:57: memory.hbm.latency: '.nan' is not a number with a unit"),
    ("650 ns", ".inf", "9:57: memory.hbm.latency: '.inf' is not a number with a unit"),
    ("650 ns", "-650 ns", "9:57: memory.hbm.latency: '-650 ns' must be above zero"),
    ("650 ns", "0 ns", "9:57: memory.hbm.latency: '0 ns' must be above zero"),
    ("650 ns", "yes", "9:57: memory.hbm.latency: found the boolean true; seconds"),
    ("228 KiB", "228 KB", "11:40: memory.smem.per_sm: the unit 'KB' is not clear; write '228 kB' (1000)"),
    ("228 KiB", "226 KiB", "11:9: memory.smem: per_block is above per_sm"),
    ("sms: 132", "sms: on", "3:6: sms: found the boolean true; a whole number"),
    ("sms: 132", "sms: 0x84", "3:6: sms: found '0x84'; a whole number"),
    ("sms: 132", "sms: 132\nsms: 114", "4:1: sms: the key is given twice"),
    ("sms: 132\n", "", "1:1: sms: missing; the key is required"),
    ("bandwidth: 3.35", "bandwith: 3.35", "9:9: memory.hbm.bandwith: unknown key; did you mean bandwidth"),
    (
        "latency: 650 ns",
        "latency: 650 ns, latncy: 1 ns",
        "9:65: memory.hbm.latncy: unknown key; did you mean latency",
    ),
    ("tf32: 494.7", "tf33: 494.7", "5:73: tensor.tf33: unknown key; did you mean tf32"),
    (
        "{fp32: 66.9 TFLOP/s}",
        "{}",
        "6:9: vector: the mapping is empty; a mapping is wanted, with keys from fp32",
    ),
    ("{fp32: 66.9 TFLOP/s}", "66.9 TFLOP/s", "6:9: vector: found '66.9 TFLOP/s'; a mapping is wanted"),
    ("hopper", "hoper", "2:15: architecture: found 'hoper'; did you mean hopper"),
    ("name: H100 SXM5 80 GB", "name: 5090", "1:7: name: found 5090; text is wanted"),
    ("name: H100 SXM5 80 GB", "name: H100\naliases: x", "2:10: aliases: found 'x'; a list is wanted"),
    (
        "{tensor.bf16: ",
        "{tensor.bf61: ",
        "14:11: sources.tensor.bf61: no such field; did you mean tensor.bf16",
    ),
    ("{tensor: 1830 MHz, fp32: 1980 MHz}", "*c", "4:9: not valid YAML: found undefined alias"),
    ("exp: 3.865 Top/s", "exp: 3.865 Top/s\nkey: h100", "8:1: key: unknown key"),
    (EXAMPLE, "- 1", "1:1: found a list; a mapping is wanted, with keys from name"),
    (EXAMPLE, "a: &x 1\nb: *x", "2:1: b: an alias (*name) is not supported"),
    (EXAMPLE, "[" * 900 + "]" * 900, " nested too deeply"),
    (EXAMPLE, "? [a]\n: 1", "1:3: a key must be plain text"),
    (EXAMPLE, '"a\\nb": 1', "1:1: 'a\\nb': unknown key"),
    (EXAMPLE, "a: 1\n--- \nb: 2", "2:1: not valid YAML"),
    (EXAMPLE, "a: \x01", " not valid YAML"),
    (EXAMPLE, "# nothing\n", " the file is empty"),
    (EXAMPLE, "", " the file is empty"),
]


@pytest.mark.parametrize(("old", "new", "expected"), BROKEN)
def test_a_broken_file_is_located(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in EXAMPLE
    path = written(tmp_path, EXAMPLE.replace(old, new, 1))
    message = refusal(path)
    assert message.startswith(f"{path}:{expected}"), message


def test_what_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff")
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    assert refusal(str(binary)) == f"{binary}: not UTF-8 text (byte 0xff at offset 6)"
    assert refusal(str(folder)) == f"{folder}: Is a directory"
    assert refusal("no/such.yaml") == "no/such.yaml: No such file or directory"
    with pytest.raises(FileError):
        load("a\0b.yaml")


def test_set_replaces_a_figure_before_the_check() -> None:
    gpu = load("h100", ["memory.hbm.bandwidth=4.8TB/s", "sms = 64"])
    assert (gpu.memory.hbm.bandwidth, gpu.sms) == (4.8e12, 64)
    origin = {figure.path: figure.source for figure in figures(gpu)}
    assert origin["memory.hbm.bandwidth"] == "--set (given)"
    assert origin["memory.hbm.capacity"].endswith("(read)")
    assert load("h100").sms == 132


def test_set_adds_what_a_file_lacks(tmp_path: Path) -> None:
    path = written(tmp_path, EXAMPLE.replace("bandwidth: 3.35 TB/s, ", ""))
    assert "memory.hbm.bandwidth: missing" in refusal(path)
    assert load(path, ["memory.hbm.bandwidth=1 TB/s"]).memory.hbm.bandwidth == 1e12
    assert load("a100", ["tensor.fp8=624 TFLOP/s"]).rate("tensor", "fp8") == 624e12


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "memory.hbm.bandwith=4TB/s",
            "--set memory.hbm.bandwith=4TB/s: no such field; did you mean memory.hbm.bandwidth",
        ),
        (
            "memory.hbm.bandwidth=4.8Tb/s",
            "--set memory.hbm.bandwidth=4.8Tb/s: the unit 'Tb/s' does not fit (b is bits, B is bytes); "
            "bytes per second (B/s) wanted, such as '4.8 TB/s'",
        ),
        ("sms=many", "--set sms=many: found 'many'; a whole number of at least 1 without a unit is wanted"),
        ("sms", "--set sms: FIELD=VALUE is wanted, such as memory.hbm.bandwidth=4.8TB/s"),
        ("sms=", "--set sms=: FIELD=VALUE is wanted, such as memory.hbm.bandwidth=4.8TB/s"),
        ("memory.hbm=1", "--set memory.hbm=1: no such field; did you mean memory.hbm."),
    ],
)
def test_a_wrong_set_is_named(override: str, expected: str) -> None:
    assert refusal("h100", override).startswith(expected)


def test_a_gpu_is_frozen() -> None:
    gpu: Hardware = load("h100")
    with pytest.raises(ValueError, match="frozen"):
        gpu.sms = 1
