"""What is found about a design before it is written: each number by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from designs import CHAIN, found, only

from roofcalc.design import findings, load_design, parse_design
from roofcalc.estimate import estimate
from roofcalc.hardware import load

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_waves_idle_sms_and_the_last_wave() -> None:
    # product: (1024 / 128)^2 = 64 blocks on 132 SMs: 68 idle = 51.5 %; 132 x 2 = 264 slots: 64 / 264 = 0.242
    idle = only(CHAIN, "idle SMs", kernel="product")
    assert idle.value == 68 / 132
    assert idle.text == "68 of 132 SMs never get a block (51.5 %)"
    waves = only(CHAIN, "waves", kernel="product")
    assert waves.value == 64 / 264
    assert waves.text == "64 blocks on 132 SMs x 2 = 264 slots: 0.24 waves"
    assert not [f for f in found(CHAIN) if f.kind == "tail" and f.kernel == "product"]
    # add: 300 blocks; 2048 / 1024 = 2 a SM: 264 slots, two waves, 36 in the last; 300 / 528 = 56.8 %
    tail = only(CHAIN, "tail", kernel="add")
    assert tail.value == 36 / 264
    assert tail.text == "the last of 2 waves fills 36 of 264 slots; 56.8 % of all the waves' slots are used"
    full = only(CHAIN, "idle SMs", kernel="add")
    assert (full.value, full.text) == (0, "all 132 SMs get a block")


@pytest.mark.parametrize(
    ("grid", "said"),
    # add: 2 blocks a SM, 264 slots
    [(264, "1 wave"), (528, "2 waves"), (660, "2.5 waves"), (300, "1.14 waves"), (1, "0.0038 waves")],
)
def test_waves_are_counted_in_words_that_fit(grid: int, said: str) -> None:
    assert only(CHAIN.replace("grid: 300", f"grid: {grid}"), "waves", kernel="add").text.endswith(f"slots: {said}")


def test_idle_sms_have_a_roof_of_their_own() -> None:
    # product: 64 of 132 SMs: 2^31 / 989.4e12 x 132 / 64 = 4.48 us against 2.17 us for all of them
    reached = only(CHAIN, "reached SMs", kernel="product")
    assert reached.value == pytest.approx(2**31 / 989.4e12 * 132 / 64)
    assert reached.text == (
        "64 blocks reach 48.5 % of the SMs: the tensor roof of those alone is 4.48 µs, which would bind; "
        "set own_sms: true to count it"
    )
    assert not [f for f in found(CHAIN) if f.kind == "reached SMs" and f.kernel == "add"]
    counted = CHAIN.replace("smem: 96 KiB}", "smem: 96 KiB}\n    own_sms: true")
    assert not [f for f in found(counted) if f.kind == "reached SMs"]
    assert only(counted, "roofs", kernel="product").value == pytest.approx(reached.value)


def test_the_roof_of_the_reached_sms_may_be_another_or_too_low_to_bind() -> None:
    # add on one SM: 2^20 / 66.9e12 = 15.7 ns for 132 SMs, x 132 = 2.07 us; memory takes 4 MiB / 3.35e12 = 1.25 us
    one = only(CHAIN.replace("grid: 300", "grid: 1"), "reached SMs", kernel="add")
    assert one.text.startswith("1 block reaches 0.758 % of the SMs: the vector roof of those alone is 2.07 µs, which")
    assert one.text.endswith("; own_sms does not count it, only the tensor roof")
    # on 66 SMs: twice 15.7 = 31.3 ns
    half = only(CHAIN.replace("grid: 300", "grid: 66"), "reached SMs", kernel="add")
    assert half.text.endswith("alone is 31.3 ns, below the 1.25 µs that binds")


def test_the_shipped_fused_norm_counts_the_sms_that_it_reaches() -> None:
    # one token: 32 tiles of 128 x 128, 2 x 128 x 4096 x 4096 operations executed on 32 of 132 SMs:
    # 4,294,967,296 / 989.4e12 x 132 / 32 = 17.9 us, more than the 10.0 us of w
    for params, roof, time in (({}, "tensor", 17.91e-6), ({"block": 64}, "hbm", 10.02e-6)):
        design = load_design(EXAMPLES / "fused-rmsnorm-linear.yaml", params)
        row = estimate(design.plan, load("h100")).kernels[0]
        assert (row.roof, row.time) == (roof, pytest.approx(time, rel=1e-3))


def test_without_grid_and_tile_it_says_what_is_not_known() -> None:
    text = CHAIN.replace("    grid: 300\n    tile: {threads: 1024, registers: 32}\n", "")
    assert "not known" in only(text, "unknown", kernel="add").text


def test_roofs_and_the_distance_to_the_ridge() -> None:
    # product: 2^31 FLOP / 989.4e12 = 2.17 us; 3 x 2 MiB = 6,291,456 B / 3.35e12 = 1.88 us, / 9.4e12 = 669 ns
    roofs = only(CHAIN, "roofs", kernel="product")
    assert roofs.value == pytest.approx(2**31 / 989.4e12)
    assert roofs.text == "tensor binds with 2.17 µs; hbm 1.88 µs (86.5 % of it), l2 669 ns (30.8 % of it)"
    # 2^31 / 6,291,456 = 341.3 FLOP/B; ridge 989.4 / 3.35 = 295.3; 341.3 / 295.3 = 1.156
    ridge = only(CHAIN, "ridge", kernel="product")
    assert ridge.text == "341 FLOP/B is 1.16 x above the ridge of 295 FLOP/B"
    # n = 512: half the intensity: 170.7, 1.73 x below
    assert "171 FLOP/B is 1.73 x below the ridge" in only(CHAIN, "ridge", kernel="product", n=512).text


def test_traffic_against_the_compulsory() -> None:
    # a, b in, z out: 3 x 2 MiB = 6.29 MB; moved: a b y, y z = 10.5 MB, 5 / 3
    finding = only(CHAIN, "compulsory")
    assert (finding.value, finding.forbids) == (pytest.approx(5 / 3), False)
    assert finding.text == "10.5 MB through memory, 1.67 x the compulsory 6.29 MB (inputs and outputs once)"


def test_traffic_below_the_compulsory_forbids() -> None:
    for entry in ("{tensor: b, times: 1/2}", "{tensor: b, tier: l2}"):
        below = [f for f in found(CHAIN.replace("[a, b]", f"[a, {entry}]")) if f.forbids]
        assert len(below) == 1
        share = "1.05 MB of its 2.1 MB" if "times" in entry else "0 B of its 2.1 MB"
        assert below[0].text.startswith(f"b: {share} are read from memory")
    below = [f for f in found(CHAIN.replace("[z]", "[{tensor: z, tier: l2}]")) if f.forbids]
    assert below[0].text.startswith("z: 0 B of its 2.1 MB are written to memory")


def test_fusing_removes_what_is_written_and_read_back() -> None:
    # y: 2 MiB written, 2 MiB read = 4.19 MB of 10.5 = 40 %. add alone: 4.19e6 / 3.35e12 = 1.25 us, all of it
    # saved, since the fused kernel (6.29 MB) is still bound by the tensor pipe
    finding = only(CHAIN, "fusion")
    assert finding.value == 4_194_304
    assert finding.text == (
        "y is written by product and read back by add: one kernel for both would move 4.19 MB less "
        "(40 % of the traffic) and take 1.25 µs less of 3.42 µs"
    )


def test_what_a_later_kernel_still_reads_must_be_written() -> None:
    more = """\
  - name: again
    reads: [y]
    writes: [w]
    work: {vector: 1}
"""
    text = CHAIN.replace("z: [n, n]}", "z: [n, n], w: [n, n]}") + more
    first = next(f for f in found(text) if f.kind == "fusion")
    assert first.value == 2_097_152  # only add's read of y


def test_a_chain_of_three_as_one_kernel() -> None:
    more = """\
  - name: scale
    reads: [z]
    writes: [w]
    work: {vector: "n**2"}
"""
    text = CHAIN.replace("z: [n, n]}", "z: [n, n], w: [n, n]}") + more
    values = [f.value for f in found(text) if f.kind == "fusion"]
    assert values == [4_194_304, 4_194_304, 8_388_608]  # y; z; both


def test_l2_residency() -> None:
    # a, b, y: 6.29 MB of 52.4 MB
    assert only(CHAIN, "L2", kernel="product").text == "a working set of 6.29 MB fits the 52.4 MB of L2"
    # n = 8192: 3 x 134.2 MB = 402.7 MB, 7.68 x 52,428,800
    assert "403 MB is 7.68 x the 52.4 MB of L2" in only(CHAIN, "L2", kernel="product", n="8k").text


def test_reads_that_l2_could_serve_and_those_that_it_cannot() -> None:
    text = CHAIN.replace("[a, b]", "[a, {tensor: b, times: 8}]")
    again = [f for f in found(text) if f.kind == "L2" and f.kernel == "product"][1]
    # 7 x 2,097,152 B
    assert again.value == 14_680_064
    assert "b (2.1 MB) fits L2 and comes from memory 8 x" in again.text
    text = CHAIN.replace("[a, b]", "[a, b, {tensor: b, times: 7, tier: l2}]")
    assert len([f for f in found(text) if f.kind == "L2" and f.kernel == "product"]) == 1
    cannot = [f for f in found(text, n="8k") if f.kind == "L2" and f.kernel == "product"][1]
    assert "b (134 MB) is read from L2, which holds 52.4 MB" in cannot.text


def test_tensors_that_nothing_touches_and_a_design_without_a_result() -> None:
    text = CHAIN.replace("z: [n, n]}", "z: [n, n], spare: [7]}")
    assert only(text, "unused").text == "spare (14 B) is never read or written"
    text = CHAIN.replace("    writes: [y]\n", "").replace("    writes: [z]\n", "")
    assert "no kernel writes a tensor: there is no result" in [f.text for f in found(text)]


def test_work_that_no_kernel_does_and_work_done_again() -> None:
    # asked: 2 n^3 + 5 tensor operations and n^2 / 2 on the vector pipe; done: 2 n^3 and n^2
    text = f'{CHAIN}work: {{tensor: "2*n**3 + 5", vector: "n**2 / 2"}}\n'
    missing, again = (f for f in found(text) if f.kind == "work")
    assert (missing.value, missing.forbids) == (5, True)
    assert "no kernel does 5 of the 2,147,483,653 tensor operations" in missing.text
    assert (again.value, again.forbids) == (2, False)
    assert not [f for f in found(CHAIN + 'work: {tensor: "2*n**3"}\n') if f.kind == "work"]


def test_a_kernel_without_work_is_named() -> None:
    text = CHAIN.replace('    work: {vector: "n**2"}\n', "")
    assert only(text, "work", kernel="add").text == "does no work: it only moves data"


def test_device_memory_of_inputs_outputs_and_what_is_held_between() -> None:
    # a, b, z and y: 4 x 2 MiB
    finding = only(CHAIN, "memory")
    assert (finding.value, finding.forbids) == (8_388_608, False)
    # n = 128k: 4 x 2^34 x 2 B = 137.4 GB, 57.4 more than 80
    finding = only(CHAIN, "memory", n="128k")
    assert finding.forbids
    assert "137 GB of device memory, 57.4 GB more than the 80 GB" in finding.text


def test_too_few_bytes_in_flight() -> None:
    # 64 blocks x 4 KiB / 350 ns = 749 GB/s, 22.4 % of 3.35 TB/s
    text = CHAIN.replace("smem: 96 KiB}", "smem: 96 KiB}\n    own_sms: true\n    in_flight: 4 KiB")
    finding = only(text, "in flight", kernel="product")
    assert finding.value == pytest.approx(64 * 4096 / 350e-9)
    assert "4 KiB in flight a block let memory reach 749 GB/s, 22.4 % of 3.35 TB/s" in finding.text
    assert not [f for f in found(text.replace("4 KiB", "64 KiB")) if f.kind == "in flight"]


def test_the_smallest_shares_have_no_exponent() -> None:
    # n = 128: 4 x 32,768 B of 80 GB = 0.000164 %; n = 64: a quarter of it
    assert only(CHAIN, "memory", n=128).text == "131 kB of device memory, 0.000164 % of 80 GB"
    small = CHAIN.replace("(n / 128)**2", "1")
    assert only(small, "memory", n=64).text == "32.8 kB of device memory, under 0.0001 % of 80 GB"


def test_every_text_is_one_line() -> None:
    assert all("\n" not in f.text and f.kind and len(f.text) < 300 for f in found(CHAIN))


def test_several_values_of_a_param_have_no_findings() -> None:
    hardware = load("h100")
    design = parse_design(CHAIN, {"n": np.array([1024, 2048])})
    assert findings(design, estimate(design.plan, hardware), hardware) == ()


def test_an_a100_refuses_the_tile_that_an_h100_takes() -> None:
    # (128 + 2 x 128) x 256 x 2 B = 192 KiB, between the 163 KiB of an A100's block and the 227 KiB of an H100's
    design = load_design(EXAMPLES / "refused-tile.yaml")
    by_gpu = {}
    for name in ("a100", "h100"):
        gpu = load(name)
        by_gpu[name] = [f for f in findings(design, estimate(design.plan, gpu), gpu) if f.forbids]
    assert by_gpu["h100"] == []
    assert [f.text for f in by_gpu["a100"]] == [
        "192 KiB of shared memory a block, 29 KiB more than the 163 KiB that this GPU gives a block"
    ]
