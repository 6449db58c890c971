"""A plugin of pytest for tests with `octopi.testing`: how long they search, and how to repeat what
failed.

pytest imports it in every project where Octopi is installed, so it imports nothing of Octopi; the
options reach the tests as environment variables.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

_VARIABLES = {
    "octopi_seeds": "OCTOPI_TEST_SEEDS",
    "octopi_minutes": "OCTOPI_TEST_MINUTES",
    "octopi_shrink": "OCTOPI_TEST_SHRINK_S",
}
"""The variables of `octopi.testing.run_limits`, by option."""
_AGAIN = "again: "
"""How the line begins in which `octopi.testing` says how to repeat a failure."""
_COMMAND = "octopi_command"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("octopi", "tests with the simulated clusters of octopi.testing")
    group.addoption(
        "--octopi-seeds",
        type=_count,
        metavar="N",
        help="run each test that is simulated with N seeds, and each guided one N times",
    )
    group.addoption(
        "--octopi-minutes",
        type=_minutes,
        metavar="M",
        help="run each simulated or guided test again and again for M minutes",
    )
    group.addoption(
        "--octopi-shrink",
        type=_seconds,
        metavar="SECONDS",
        help="make the faults of a failure fewer for that processor time; 0: not at all",
    )


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} seeds are too few: give at least 1")
    return count


def _minutes(text: str) -> float:
    minutes = float(text)
    if not minutes > 0:
        raise argparse.ArgumentTypeError(f"{text} minutes are too few: give more than 0")
    return minutes


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text} seconds are too few: give 0 or more")
    return seconds


def pytest_configure(config: pytest.Config) -> None:
    """Pass the options on to the tests of this process; pytest-xdist gives them to its workers."""
    for option, variable in _VARIABLES.items():
        value = config.getoption(option, None)
        if value is not None:
            before = os.environ.get(variable)
            os.environ[variable] = str(value)
            config.add_cleanup(partial(_restore, variable, before))


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Note in the report of a failed test how to repeat it."""
    outcome = yield
    if call.excinfo is None:
        return
    for note in getattr(call.excinfo.value, "__notes__", ()):
        if note.startswith(_AGAIN):
            setattr(outcome.get_result(), _COMMAND, note.removeprefix(_AGAIN))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the command that repeats each failure, a line each."""
    failed = terminalreporter.stats.get("failed", [])
    commands = [getattr(report, _COMMAND) for report in failed if hasattr(report, _COMMAND)]
    if commands:
        terminalreporter.section("to repeat what failed in simulated clusters")
        for command in commands:
            terminalreporter.write_line(command)
