"""How many times a test is run, and how long a failure is made smaller: what the test asks for
itself, unless the environment asks for something else.

The plugin `pytest_octopi` sets the variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf, isfinite
from time import monotonic
from typing import Final

import attrs

from octopi.testing.errors import MisuseError

SEEDS_VARIABLE: Final = "OCTOPI_TEST_SEEDS"
"""With how many seeds each test is run."""
MINUTES_VARIABLE: Final = "OCTOPI_TEST_MINUTES"
"""For how many minutes each test is run again and again."""
SHRINK_VARIABLE: Final = "OCTOPI_TEST_SHRINK_S"
"""For how many seconds of processor time a failure is made smaller."""


@attrs.frozen
class RunLimit:
    """When a test isn't run again."""

    count: float
    """After so many runs."""
    until: float
    """At this time of the real clock (s)."""

    @classmethod
    def of(cls, count: float, minutes: float | None = None) -> RunLimit:
        """At most *count* runs, and none that begins after *minutes* (None: at any time); what the
        environment says takes the place of both.

        Raises:
          MisuseError: if a variable is no number, or too small.
        """
        seeds = _number(SEEDS_VARIABLE, int)
        wanted = _number(MINUTES_VARIABLE, float)
        if seeds is not None or wanted is not None:
            count, minutes = inf if seeds is None else seeds, wanted
        return cls(count, inf if minutes is None else monotonic() + 60 * minutes)

    def is_over(self, run_count: int) -> bool:
        """Whether the test isn't run again after *run_count* runs; it is run at least once."""
        return run_count >= self.count or (run_count > 0 and monotonic() >= self.until)


def shrink_s_of(wanted: float) -> float:
    """How long a failure is made smaller (s of processor time; 0: not at all), if the test asks for
    *wanted*; what the environment says takes its place.

    Raises:
      MisuseError: if the variable is no number, or negative.
    """
    text = os.environ.get(SHRINK_VARIABLE, "")
    if not text:
        return wanted
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (seconds >= 0 and isfinite(seconds)):
        raise MisuseError(f"{SHRINK_VARIABLE} is {text!r}; it has to be a number of seconds")
    return seconds


def _number(variable: str, kind: Callable[[str], float]) -> float | None:
    text = os.environ.get(variable, "")
    if not text:
        return None
    try:
        number = kind(text)
    except ValueError:
        number = 0
    if not (number > 0 and isfinite(number)):
        what = "a whole number of at least 1" if kind is int else "a number of minutes"
        raise MisuseError(f"{variable} is {text!r}; it has to be {what}")
    return number
