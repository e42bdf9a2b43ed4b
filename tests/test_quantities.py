"""Units: what is accepted, what is refused, and what the refusal says."""

from __future__ import annotations

import pytest

from roofcalc.core import RoofcalcError
from roofcalc.quantities import Measure, QuantityError, count, nearest, whole

BANDWIDTH = Measure("B/s", "TB/s")
BYTES = Measure("B", "GB")
SECONDS = Measure("s", "ns")
FLOPS = Measure("FLOP/s", "TFLOP/s")
RATE = Measure("FLOP/s", "TFLOP/s", also="op/s")
CLOCK = Measure("Hz", "MHz")


# k, M, G, T are powers of 1000, Ki, Mi, Gi of 1024 (IEC 80000-13).
@pytest.mark.parametrize(
    ("measure", "text", "value"),
    [
        (BANDWIDTH, "3.35 TB/s", 3_350_000_000_000),
        (BANDWIDTH, "4.8TB/s", 4_800_000_000_000),
        (BANDWIDTH, "864 GB/s", 864_000_000_000),
        (BANDWIDTH, "1 GiB/s", 1_073_741_824),
        (BANDWIDTH, "1.5e3 GB/s", 1_500_000_000_000),
        (BANDWIDTH, "2e12 B/s", 2_000_000_000_000),
        (BYTES, "80 GB", 80_000_000_000),
        (BYTES, "50 MiB", 52_428_800),
        (BYTES, "228 KiB", 233_472),
        (BYTES, "228 kB", 228_000),
        (BYTES, "1.5 KiB", 1536),
        (SECONDS, "650 ns", 6.5e-7),
        (SECONDS, "1.1 us", 1.1e-6),
        (SECONDS, "1.1 \N{MICRO SIGN}s", 1.1e-6),
        (SECONDS, "1.1 \N{GREEK SMALL LETTER MU}s", 1.1e-6),
        (FLOPS, "989.4 TFLOP/s", 989_400_000_000_000),
        (FLOPS, "1 PFLOP/s", 1_000_000_000_000_000),
        (RATE, "624 Top/s", 624_000_000_000_000),
        (CLOCK, "1830 MHz", 1_830_000_000),
        (CLOCK, "1.83 GHz", 1_830_000_000),
    ],
)
def test_a_quantity_is_read_in_base_units(measure: Measure, text: str, value: float) -> None:
    assert measure(text) == pytest.approx(value, rel=1e-15)


def test_bytes_are_whole_numbers() -> None:
    assert isinstance(BYTES("228 KiB"), int)
    with pytest.raises(QuantityError, match="not a whole number of bytes"):
        BYTES("1.0001 kB")


@pytest.mark.parametrize(
    ("measure", "value", "parts"),
    [
        (BANDWIDTH, "3.35e12", ["'3.35e12' has no unit", "bytes per second (B/s)", "'3.35 TB/s'"]),
        (BANDWIDTH, 3.35e12, ["'3.35e12' has no unit", "'3.35 TB/s'"]),
        (BANDWIDTH, 3.35, ["'3.35' has no unit", "'3.35 TB/s'"]),
        (BANDWIDTH, 3350, ["'3350' has no unit", "B/s"]),
        (BANDWIDTH, "3.35 Tb/s", ["'Tb/s'", "b is bits, B is bytes", "'3.35 TB/s'"]),
        (BANDWIDTH, "3.35 tb/s", ["'tb/s'", "'3.35 TB/s'"]),
        (BANDWIDTH, "80 GB", ["'GB'", "bytes per second"]),
        (BANDWIDTH, "3.35 T", ["'T'", "TB/s"]),
        (BANDWIDTH, "3.35 TB /s", ["'TB /s'", "TB/s"]),
        (SECONDS, "5 usx", ["'usx'", "seconds", "'5 us'"]),
        (SECONDS, "5 min", ["'min'", "seconds"]),
        (SECONDS, "5", ["'5' has no unit", "'5 ns'"]),
        (FLOPS, "989 TFLOPS", ["'TFLOPS'", "'989 TFLOP/s'"]),
        (RATE, "624 TOPS", ["'TOPS'", "'624 Top/s'"]),
        (CLOCK, "1830 mhz", ["'mhz'", "'1830 MHz'"]),
        (CLOCK, "1830 MegaHz", ["'MegaHz'", "MHz"]),
        (BYTES, "228 KB", ["'KB' is not clear", "228 kB", "1000", "228 KiB", "1024"]),
        (BYTES, "3 mB", ["'mB'"]),
        (BYTES, "80 GB (read)", ["'GB (read)'"]),
        (BYTES, "3,35 GB", ["'3,35 GB' is not a number with a unit"]),
        (BYTES, True, ["the boolean true", "bytes (B)"]),
        (BYTES, None, ["found nothing", "bytes (B)"]),
        (BYTES, ["80 GB"], ["a list"]),
        (BYTES, {"a": 1}, ["a mapping"]),
        (SECONDS, "1:30", ["'1:30' is not a number with a unit", "seconds"]),
        (SECONDS, "nan s", ["'nan s' is not a number with a unit"]),
        (SECONDS, "inf s", ["'inf s' is not a number with a unit"]),
        (SECONDS, float("nan"), ["'nan' is not a number with a unit"]),
        (SECONDS, "0 ns", ["above zero"]),
        (SECONDS, "-5 ns", ["above zero"]),
        (BYTES, "1e400 GB", ["finite"]),
        (BYTES, "", ["'' is not a number with a unit"]),
    ],
)
def test_a_refusal_says_what_is_meant(measure: Measure, value: object, parts: list[str]) -> None:
    with pytest.raises(QuantityError) as caught:
        measure(value)
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message


def test_a_quantity_error_is_an_input_error_that_pydantic_locates() -> None:
    assert issubclass(QuantityError, RoofcalcError)
    assert issubclass(QuantityError, ValueError)


def test_a_count_is_a_plain_integer() -> None:
    assert whole(132) == 132
    for value in (True, "132", 132.0, 0, -1, None, "132 B"):
        with pytest.raises(QuantityError, match="whole number of at least 1"):
            whole(value)


def test_the_nearest_name_is_told_else_all_of_them() -> None:
    assert nearest("bandwith", ["bandwidth", "capacity"]) == "; did you mean bandwidth"
    assert nearest("zzz", ["bandwidth", "capacity"]) == "; allowed: bandwidth, capacity"


# 8 x 1024, 128 x 1024, 1024^2, 2 x 1024^3
@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("8192", 8192),
        ("8k", 8192),
        ("8K", 8192),
        ("128K", 131072),
        ("1M", 1048576),
        ("2G", 2147483648),
        (7, 7),
        (" 1 ", 1),
        ("007", 7),
    ],
)
def test_a_count_takes_binary_prefixes(value: object, number: int) -> None:
    assert count(value) == number


@pytest.mark.parametrize(
    "value", ["8kk", "8.5", "8.5k", "0", "0k", "-3", "", "k", "8 k", "1e3", "8Ki", "٣", "9" * 5000, 8.5, True, None, -1]
)
def test_what_is_no_count_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(QuantityError, match=r"is no count; a whole number of at least 1 .* 8k \(8192\)") as caught:
        count(value)
    assert len(str(caught.value)) < 200
