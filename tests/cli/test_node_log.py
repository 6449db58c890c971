"""What a node logs, whatever strangers made it say."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from octopi.cli.config import LogSettings
from octopi.cli.node_log import set_up_log
from octopi.logger import get_logger

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


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, octopi = logging.getLogger(), logging.getLogger("octopi")
    handlers, levels = list(root.handlers), (root.level, octopi.level)
    root.handlers = []  # so that setting up does not close those of pytest
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(levels[0])
        octopi.setLevel(levels[1])


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
