"""Parses a span of time on the command line: ``30``, ``500ms``, ``30s``, ``5m``, ``2h``, ``7d``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:  # older versions of click don't have generic types
    _FloatType = click.ParamType

_UNITS_S: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TEXT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(ms|[smhd]?)", re.ASCII)


def parse_duration(text: str) -> float:
    """The seconds of the span of time *text*; a number without a unit is seconds.

    Raises:
      ValueError: if it is no span of time; the text says what to write.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no span of time; write 500ms, 30s, 5m, 2h or 7d")
    return float(found[1]) * _UNITS_S[found[2]]


def duration_text(seconds: float) -> str:
    """*seconds* as `parse_duration` reads it, in the largest unit that leaves a whole number."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNITS_S[unit] and seconds % _UNITS_S[unit] == 0:
            return f"{seconds / _UNITS_S[unit]:.0f}{unit}"
    return f"{seconds:g}s"


class Duration(_FloatType):
    """Seconds, also in other units, from *low_s* to *high_s*."""

    name = "duration"

    def __init__(self, low_s: float, high_s: float) -> None:
        self._low_s = low_s
        self._high_s = high_s

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._low_s <= seconds <= self._high_s:
            low, high = duration_text(self._low_s), duration_text(self._high_s)
            self.fail(f"{value} is not from {low} to {high}", param, ctx)
        return seconds
