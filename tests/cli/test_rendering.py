"""Tables, sizes and rates."""

import pytest

from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted, print_table, size, span


def test_columns_are_aligned_and_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "N"], [["a", 1], ["longer name", 1000], ["", None]])
    assert capsys.readouterr().out == (
        "NAME            N\na               1\nlonger name  1000\n-               -\n"
    )


def test_an_empty_table_still_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "N"], [])
    assert capsys.readouterr().out == "NAME  N\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (914_081, "914.1 kB"),
        (999_960, "1.0 MB"),
        (31_053_850, "31.1 MB"),
        (5e18, "5,000.0 PB"),
    ],
)
def test_sizes_are_for_people(count: float, text: str) -> None:
    assert size(count) == text


def test_a_count_of_one_is_singular() -> None:
    assert (counted(1, "log"), counted(0, "log"), counted(2000, "log")) == (
        "1 log",
        "0 logs",
        "2,000 logs",
    )


def test_the_summary_of_a_meter_is_one_line() -> None:
    meter = RateMeter()
    with meter.shown("producing"):  # no terminal here: nothing is shown
        meter.add(2, 3_000_000)
    meter.stop()
    assert meter.summary().startswith("2 messages, 3.0 MB, ")
    assert meter.summary().endswith("/s")
    assert meter.summary() == meter.summary()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 0 min"),
        (11_100, "3 h 5 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (800_000, "9 d"),
    ],
)
def test_a_span_of_time_is_readable(seconds: float, text: str) -> None:
    assert span(seconds) == text
