"""Sizes, durations and costs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.units import (
    GIB,
    MAX_BYTES,
    MIB,
    format_cost,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("12GiB", 12 * GIB),
        ("512M", 512 * MIB),
        ("1.5 g", 3 * GIB // 2),
        ("2GB", 2_000_000_000),
        ("17", 17),
        ("0B", 0),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "-5g", "NaN", "inf", "1e400", "٣GiB", "10x", "5 5g", "1" * 20 + "T", "0x10"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|more than"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14_400.0), ("90s", 90.0), ("1h30m", 5400.0), ("500ms", 0.5), ("2 d", 172_800.0)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "-4h", "4y", "1h x", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(30 * GIB, "30.0 GiB"), (512 * MIB, "512 MiB"), (5 * MIB // 2, "2.5 MiB"), (17, "17 B")],
)
def test_sizes_are_shown(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (37.2, "37 s"),
        (59.7, "1 min"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
        (-250, "-4 min 10 s"),
        (math.inf, "for ever"),
        (math.nan, "unknown"),
    ],
)
def test_durations_are_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, MAX_BYTES))
def test_a_size_in_bytes_comes_back(size: int) -> None:
    assert parse_size(str(size)) == size


@given(st.floats(0, 1e12))
def test_every_duration_can_be_shown(seconds: float) -> None:
    assert format_duration(seconds)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (None, "–"),
        (0.0, "no price set"),
        (0.00001, "under 0.0001"),
        (0.0042, "0.0042"),
        (12.5, "12.50"),
    ],
)
def test_costs(cost: float | None, text: str) -> None:
    assert format_cost(cost) == text
