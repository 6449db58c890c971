"""Parses a span of time on the command line: ``30``, ``30s``, ``5m``, ``2h``, ``7d``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:  # older versions of click don't have generic types
    _FloatType = click.ParamType

_UNITS_S: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", re.ASCII)


class Duration(_FloatType):
    """Seconds, also in minutes, hours and days, from *low_s* to *high_s*."""

    name = "duration"

    def __init__(self, low_s: float, high_s: float) -> None:
        self._low_s = low_s
        self._high_s = high_s

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = _TEXT.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no span of time; write 30s, 5m, 2h or 7d", param, ctx)
        seconds = float(found[1]) * _UNITS_S[found[2]]
        if not self._low_s <= seconds <= self._high_s:
            self.fail(
                f"{value} is not from {self._low_s:g} to {self._high_s:g} seconds", param, ctx
            )
        return seconds
