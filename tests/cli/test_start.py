"""Where consume starts, as people write it."""

from datetime import UTC, datetime

import pytest

from octopi.cli.failures import CommandError
from octopi.cli.start import parse_start
from octopi.clients.starts import Place


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("123456", 123456),
        ("-1", -1),
        ("-250", -250),
        ("@2026-11-21T10:00:00Z", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("@2026-11-21T10:00+02:00", datetime(2026, 11, 21, 8, tzinfo=UTC)),
        ("@1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)),
    ],
)
def test_every_form_has_its_meaning(text: str, meaning: Place) -> None:
    assert parse_start(text) == meaning


def test_a_time_without_zone_is_local() -> None:
    assert parse_start("@2026-11-21T10:00") == datetime(2026, 11, 21, 10).astimezone()


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
def test_what_has_no_meaning_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(CommandError, match="no place to start: use earliest"):
        parse_start(text)
