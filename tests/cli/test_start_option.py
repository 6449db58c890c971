"""Where consume starts, as people write it."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.start_option import parse_message_id, parse_start
from octopi.clients.consuming.start_position import Start, last
from octopi.position import Position


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("123456", 123456),
        ("-1", last(1)),
        ("-250", last(250)),
        ("@2026-11-21T10:00:00Z", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("@2026-01-01T00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("@2026-11-21T10:00+02:00", datetime(2026, 11, 21, 8, tzinfo=UTC)),
        (
            "v1:orders@5f0c2a1b5f0c2a1b:0=1234~7-1200.6-800",
            Position.parse("v1:orders@5f0c2a1b5f0c2a1b:0=1234~7-1200.6-800"),
        ),
        ("@1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)),
    ],
)
def test_every_form_of_the_start_option_has_its_meaning(text: str, meaning: Start) -> None:
    assert parse_start(text) == meaning


def test_a_time_without_zone_is_local() -> None:
    assert parse_start("@2026-11-21T10:00") == datetime(2026, 11, 21, 10).astimezone()


def test_a_damaged_position_is_refused() -> None:
    with pytest.raises(CommandError, match="is no position") as caught:
        parse_start("v1:orders")
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("@-5m", timedelta(minutes=5)),
        ("@-90", timedelta(seconds=90)),
        ("@-250ms", timedelta(milliseconds=250)),
        ("@-7d", timedelta(days=7)),
    ],
)
def test_a_span_of_time_is_counted_back_from_now(text: str, before: timedelta) -> None:
    earliest = datetime.now(UTC) - before
    start = parse_start(text)
    assert isinstance(start, datetime)
    assert earliest <= start <= datetime.now(UTC) - before


@pytest.mark.parametrize("text", ["", "first", "-0", "-", "--1", "1.5", "+1", "-5m", "9" * 30])
def test_an_invalid_start_option_is_refused_with_the_possible_forms(text: str) -> None:
    with pytest.raises(CommandError, match="is not a start position: use earliest"):
        parse_start(text)


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("@2030", "a number is milliseconds since 1970 and has 13 digits, this one has 4"),
        ("@20300101", "this one has 8"),
        ("@1700000000", "this one has 10"),
        ("@" + "9" * 18, "this one has 18"),
        ("@", "'' is no time"),
        ("@yesterday", "'yesterday' is no time"),
        ("@2026-13-01", "'2026-13-01' is no time"),
        ("@٢٠٣٠", "'٢٠٣٠' is no time"),
        ("@0001-01-01T00:00+23:00", "is no time"),
        ("@-", "how long before now, and '' is no span of time"),
        ("@-5x", "how long before now, and '5x' is no span of time"),
        ("@-999999999d", "how long before now"),
    ],
)
def test_what_is_no_time_is_refused_with_how_it_was_read(text: str, reading: str) -> None:
    with pytest.raises(CommandError, match=re.escape(reading)) as caught:
        parse_start(text)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "write @2026-01-31T12:00" in str(caught.value)


def test_an_id_of_a_message_has_32_hexadecimal_digits() -> None:
    assert parse_message_id("00" * 15 + "aF") == bytes(15) + b"\xaf"
    for wrong in ("", "00" * 15, "00" * 17, "0x" + "00" * 15, "g" * 32):
        with pytest.raises(CommandError, match="32 hexadecimal digits"):
            parse_message_id(wrong)
