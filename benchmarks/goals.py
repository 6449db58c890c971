"""The project's goals, written as in ``workloads.toml``, and whether a run has met them.

A goal is a line ``[SYSTEM] FIGURE >=|<= NUMBERx OTHER``, such as ``rate >= 7x best`` or ``p50 <=
0.65x nats``.  SYSTEM is ``octopi`` if it isn't named.  FIGURE is ``rate`` (messages a second),
``p50``, ``p99`` (times) or ``cpu`` (the processor time of clients and servers for a message).
OTHER is a system, ``best`` (the peer with the best figure of the round), or another workload of the
same system between quotes: ``cpu <= 1.3x "produce 100 B to 1 topic"``.
"""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

import attrs

Figure = Literal["rate", "p50", "p99", "cpu"]
FIGURES: Final[tuple[Figure, ...]] = get_args(Figure)
BEST: Final = "best"

_LINE: Final = re.compile(
    r"(?:(?P<system>\w+) )?(?P<figure>\w+) (?P<sign>>=|<=) (?P<factor>\d+(?:\.\d+)?)x "
    r'(?P<other>\w+|"[^"]+")'
)


@attrs.frozen
class Goal:
    """One goal of a workload."""

    text: str
    system: str
    figure: Figure
    factor: float
    other: str = ""
    """The system that it is compared with, or `BEST`; empty: *workload* has another workload."""
    workload: str = ""

    @property
    def ahead(self) -> float:
        """The factor by which the system has to be ahead: above 1, it is to be faster, or to take
        less time."""
        return self.factor if self.figure == "rate" else 1 / self.factor


def parse(text: str) -> Goal:
    """Read a goal.

    Raises:
      ValueError: if it isn't written as the module says.
    """
    found = _LINE.fullmatch(text)
    figure = next((one for one in FIGURES if found and found["figure"] == one), None)
    if found is None or figure is None:
        raise ValueError(f"{text!r} is no goal: write it like 'rate >= 7x best'")
    if (found["sign"] == ">=") != (figure == "rate"):
        raise ValueError(f"{text!r} is no goal: more is better for rates, less for everything else")
    other = found["other"]
    return Goal(
        text=text,
        system=found["system"] or "octopi",
        figure=figure,
        factor=float(found["factor"]),
        other="" if other.startswith('"') else other,
        workload=other.strip('"') if other.startswith('"') else "",
    )


def is_less_better(figure: Figure) -> bool:
    """Whether a smaller figure is better: it is so for all but rates."""
    return figure != "rate"
