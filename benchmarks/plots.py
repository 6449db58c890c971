"""Plots as SVG within HTML, of our own: a strip for each system, with a dot for each round.

Positions are percentages of a strip's width, so that a page needs no script to fit a telephone, and
texts stay in HTML, where they wrap and can be read aloud.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import attrs

from benchmarks.pairing import Quartiles, quartiles

_LEFT: Final = 2.0
_RIGHT: Final = 98.0
"""Where the least and the greatest value stand, in percent, so that whole dots are seen."""
_MIDDLE: Final = 12
_HEIGHT: Final = 24
_LOGARITHMIC_FROM: Final = 10.0
"""If the greatest value is this many times the least, an axis from 0 would show only the first."""


@attrs.frozen
class Dot:
    """One round."""

    value: float
    title: str
    """For people who point at it."""
    is_busy: bool


@attrs.frozen
class Axis:
    """Where values stand."""

    low: float
    high: float
    is_logarithmic: bool

    def at(self, value: float) -> float:
        """The place of *value*, in percent of the width."""
        if self.is_logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return _LEFT + share * (_RIGHT - _LEFT)

    def ticks(self) -> list[float]:
        """Round values along the axis: four to seven of them, unless it is very short."""
        if self.is_logarithmic:
            return _logarithmic_ticks(self.low, self.high)
        step = _round_up((self.high - self.low) / 5)
        return [number * step for number in range(int(self.high / step + 1e-9) + 1)]


def axis_of_amounts(values: Sequence[float]) -> Axis:
    """An axis from 0; a logarithmic one if the values differ much."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= _LOGARITHMIC_FROM:
        return Axis(low / 1.15, high * 1.15, True)
    return Axis(0.0, (high or 1.0) * 1.05, False)


def axis_of_factors(values: Sequence[float]) -> Axis:
    """A logarithmic axis on which 1 stands, so that twice as fast and half as fast are as far from
    it."""
    low, high = min(0.8, *values), max(1.25, *values)
    return Axis(low / 1.1, high * 1.1, True)


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [one * 10**decade for decade in decades for one in digits]
        found = [one for one in found if low <= one <= high]
        if len(found) <= 7:
            return found
    return found[:: len(found) // 5]


def _round_up(step: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... from *step* on."""
    decade = 10.0 ** math.floor(math.log10(step))
    return next(one * decade for one in (1, 2, 5, 10) if one * decade >= step - 1e-12)


def strip(
    axis: Axis,
    dots: Sequence[Dot],
    *,
    kind: str,
    lines: Iterable[tuple[float, str]] = (),
) -> str:
    """One strip: the quartiles as a bar, the median as a line, a dot for each round.

    *kind* is the CSS class of the bar and the dots; *lines* are further values and the CSS classes
    of their lines, such as those of goals.
    """
    spread = quartiles(one.value for one in dots)
    parts = [_line(axis.at(tick), 0, _HEIGHT, "grid") for tick in axis.ticks()]
    parts += [_line(axis.at(value), 0, _HEIGHT, name) for value, name in lines]
    parts.append(_bar(axis, spread))
    parts += [
        f'<circle cx="{axis.at(one.value):.2f}%" cy="{_MIDDLE}" r="3.5"'
        f"{' class=busy' if one.is_busy else ''}><title>{escape(one.title)}</title></circle>"
        for one in dots
    ]
    parts.append(_line(axis.at(spread.median), 3, _HEIGHT - 3, "median"))
    return f'<svg class="strip {kind}" height="{_HEIGHT}" aria-hidden="true">{"".join(parts)}</svg>'


def axis_line(axis: Axis, unit: str) -> str:
    """The strip below the others, with the values of the axis."""
    texts = []
    for tick in axis.ticks():
        place = axis.at(tick)
        anchor = "start" if place < 8 else "end" if place > 92 else "middle"
        texts.append(
            f'<text x="{place:.2f}%" y="14" text-anchor="{anchor}">{short(tick)}{unit}</text>'
        )
    return f'<svg class="axis" height="20" aria-hidden="true">{"".join(texts)}</svg>'


def short(value: float) -> str:
    """A number in few characters: 1500000 is ``1.5M``."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def _bar(axis: Axis, spread: Quartiles) -> str:
    left, right = axis.at(spread.lower), axis.at(spread.upper)
    return (
        f'<rect x="{left:.2f}%" width="{max(0.2, right - left):.2f}%" y="{_MIDDLE - 6}" '
        'height="12" rx="2"/>'
    )


def _line(place: float, top: int, bottom: int, name: str) -> str:
    return f'<line class="{name}" x1="{place:.2f}%" x2="{place:.2f}%" y1="{top}" y2="{bottom}"/>'
