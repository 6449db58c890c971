"""Spans of time and sizes, as people write them."""

import click
import pytest

from octopi.cli.byte_size import ByteSize, parse_byte_size
from octopi.cli.duration import Duration, duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("250ms", 0.25),
        ("30s", 30.0),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("7d", 604_800.0),
        ("0", 0.0),
    ],
)
def test_a_span_of_time_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "7 d", "-5m", "1h30m", "5M", "7w", "1e3", "٣s", "7d "])
def test_what_is_no_span_of_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is no span of time; write 500ms, 30s, 5m, 2h or 7d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(604_800.0, "7d"), (5400.0, "90m"), (7200.0, "2h"), (0.0, "0s"), (0.5, "0.5s"), (61.0, "61s")],
)
def test_a_span_of_time_is_written_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1048576", 1_048_576),
        ("17B", 17),
        ("500kB", 500_000),
        ("10GB", 10_000_000_000),
        ("10gb", 10_000_000_000),
        ("16MiB", 16_777_216),
        ("1.5TB", 1_500_000_000_000),
        ("2TiB", 2_199_023_255_552),
        ("0.5KiB", 512),
    ],
)
def test_a_size_has_a_unit_or_is_in_bytes(text: str, size_bytes: int) -> None:
    assert parse_byte_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "10G", "10 GB", "-1", "1e9", "10PB", "1,000", "0x10"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is no size; write bytes such as 1048576, or 500kB"):
        parse_byte_size(text)


def test_a_part_of_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'1\.5' is no whole number of bytes"):
        parse_byte_size("1.5")


def test_options_refuse_values_out_of_their_range_and_name_the_range() -> None:
    with pytest.raises(click.BadParameter, match="8d is not from 1s to 7d"):
        Duration(1, 7 * 86_400).convert("8d", None, None)
    with pytest.raises(click.BadParameter, match="1GB is not from 1 to 1,048,576 bytes"):
        ByteSize(1, 1_048_576).convert("1GB", None, None)
    assert Duration(1, 7 * 86_400).convert("7d", None, None) == 604_800.0
    assert ByteSize(1, 1_048_576).convert("1MiB", None, None) == 1_048_576
