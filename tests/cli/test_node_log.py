"""What a node logs, for programs and for people, whatever strangers made it say."""

from __future__ import annotations

import contextvars
import json

import pytest

from octopi.cli.config import LogSettings
from octopi.cli.node_log import set_up_log
from octopi.logger import bind, get_logger

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

EVIL = [
    "orders\n2026-01-01 [info] superseded",
    "\x1b[2J\x1b[31mred",
    "\r",
    "a\u2028b",
    "\u202egnp.exe",
    "\x9b2J",
    "\0",
]
"""Line ends, what clears a terminal, and what is read from right to left."""


@pytest.mark.parametrize("text", EVIL)
def test_a_line_for_people_stays_one_line_of_text(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_log(LogSettings(format="console"))
    get_logger("octopi.test").info("topic created", topic=text)
    [line] = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert "topic created" in line


@pytest.mark.parametrize("text", EVIL)
def test_a_line_for_programs_stays_one_object(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_log(LogSettings(format="json"))
    get_logger("octopi.test").info("topic created", topic=text)
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["topic"] == text
    assert line.isprintable()


def fail() -> None:
    bind(role="broker", node="b1")
    try:
        raise ValueError("no such thing\x1b[2J")
    except ValueError:
        get_logger("octopi.x").exception("it broke", topic="orders", place=b"\n", count=3)


def test_a_line_of_json_has_the_event_its_fields_and_what_was_bound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_log(LogSettings(format="json", level="info"))
    contextvars.copy_context().run(fail)
    get_logger("octopi.x").info("it went on")
    broken, went_on = map(json.loads, capsys.readouterr().err.splitlines())
    assert broken["exception"].endswith("ValueError: no such thing\x1b[2J")
    wanted: dict[str, object] = {
        "event": "it broke",
        "level": "error",
        "role": "broker",
        "node": "b1",
    }
    wanted |= {"topic": "orders", "place": "b'\\n'", "count": 3}
    assert broken.items() >= wanted.items()
    assert went_on.keys() == {"event", "level", "timestamp"}


def test_columns_for_people_quote_values_that_are_not_one_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_log(LogSettings(format="console", level="info"))
    contextvars.copy_context().run(fail)
    get_logger("octopi.x").warning("it is slow", why="a disk")
    lines = capsys.readouterr().err.splitlines()
    first, *trace, last = lines
    assert first.endswith("count=3 node=b1 place=b'\\n' role=broker topic=orders")
    assert first.split()[1:4] == ["error", "it", "broke"]
    assert trace[-1] == "ValueError: no such thing\\x1b[2J"
    assert trace[0] == "Traceback (most recent call last):"
    assert last.endswith("why='a disk'")


def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSettings(format="json", level="error"))
    get_logger("octopi.x").warning("it is slow")
    assert capsys.readouterr().err == ""
