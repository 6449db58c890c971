"""What an attack is, what it is measured by, and the table of all results.

To add an attack: write a module with ``ATTACKS``, a list of `Attack`, and name the module in
`tests.attack.__main__`.  An attack starts the nodes that it needs in the directory that it is
given, does its harm, and returns `Figure`s, each with the bound that it has to keep.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import attrs


@attrs.frozen
class Figure:
    """One measured number and the most that it may be."""

    name: str
    """What was measured, such as ``p99 of producers``."""
    value: float
    unit: str
    """``ms``, ``MiB``, or what was counted."""
    at_most: float
    note: str = ""
    """For people to read: what else belongs to the figure."""

    @property
    def is_met(self) -> bool:
        """Whether the figure keeps its bound."""
        return self.value <= self.at_most


@attrs.frozen
class Attack:
    """One attack on running nodes."""

    name: str
    """Short, for the command line and the table."""
    summary: str
    """Who does what, in one line."""
    run: Callable[[Path], Awaitable[list[Figure]]]
    """Called with an empty directory for the nodes' files."""
    timeout_s: float = 60.0
    """After this the attack counts as failed."""
    planned_s: float = 10.0
    """How long it takes on two cores that have nothing else to do; with the start of nodes."""


@attrs.frozen
class Result:
    """How one attack went."""

    attack: str
    figures: list[Figure]
    fault: str = ""
    """Why there are no figures; empty: there are."""

    @property
    def is_met(self) -> bool:
        """Whether it was measured, and all figures keep their bounds."""
        return not self.fault and bool(self.figures) and all(one.is_met for one in self.figures)


def table(results: Iterable[Result]) -> str:
    """All results, one figure a line."""
    rows = [("attack", "figure", "measured", "goal", "")]
    for result in results:
        if result.fault or not result.figures:
            rows.append((result.attack, result.fault or "nothing was measured", "", "", "MISSED"))
        for one in result.figures:
            measured = f"{one.value:,.4g} {one.unit}" + (f" ({one.note})" if one.note else "")
            goal = f"<= {one.at_most:,.4g} {one.unit}"
            rows.append(
                (result.attack, one.name, measured, goal, "met" if one.is_met else "MISSED")
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which *share* of *values* lie; of none: infinity, as nothing was served."""
    ordered = sorted(values)
    if not ordered:
        return float("inf")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
