"""Where consume starts, as people write it."""

from datetime import UTC, datetime

import pytest

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.start_option import parse_start
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
    "text",
    [
        "",
        "first",
        "-0",
        "-",
        "--1",
        "1.5",
        "+1",
        "@",
        "@yesterday",
        "@-5",
        "9" * 30,
        "@" + "9" * 18,
    ],
)
def test_an_invalid_start_option_is_refused_with_the_possible_forms(text: str) -> None:
    with pytest.raises(CommandError, match="is not a start position: use earliest"):
        parse_start(text)
