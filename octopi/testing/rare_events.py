"""What is rare in the runs of a search, and which beginnings of runs are worth repeating.

A *sight* is something that a run shows: a step of a host behind another one, a property with its
value, or the first line of a kind that a node logs.  The fewer runs have shown a sight, the rarer
it is; the beginning of a run up to a rare sight is kept.
"""

from __future__ import annotations

import logging
from collections import Counter
from random import Random
from typing import Final, TypeAlias

import attrs

from octopi.properties import Kind
from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import Event, World
from octopi.testing.guided_draws import Beginning, NotedDraw

Sight: TypeAlias = tuple[str, ...]

_RARE_MAX: Final = 2
"""A sight is rare as long as at most so many runs have shown it."""
_KEPT_MAX: Final = 500
"""At most so many beginnings are kept; the oldest ones are dropped."""
_BACK_MAX: Final = 20
"""A run goes another way at most so many events before the rare sight."""


class Sights:
    """The sights of one run, each with the event at which it was seen first."""

    def __init__(self, world: World) -> None:
        self.first: dict[Sight, tuple[int, float]] = {}
        """The number of that event, and its time (s)."""
        self._world = world
        self._last: dict[str, str] = {}

    def event(self, event: Event) -> None:
        """Observe an event of the world."""
        if event.host:
            self._see("step", event.host, self._last.get(event.host, ""), event.what)
            self._last[event.host] = event.what

    def property(self, kind: Kind, holds: bool, name: str) -> None:
        """Observe a property."""
        self._see("property", kind, name, str(holds))

    def line(self, life: ProcessLife | None, record: logging.LogRecord) -> None:
        """Observe what a node logs."""
        if life is not None:
            self._see("line", life.host.name, str(record.msg))

    def _see(self, *sight: str) -> None:
        if sight not in self.first:
            self.first[sight] = self._world.event_count, self._world.now


@attrs.frozen
class RunSoFar:
    """How a run began: its seed, and where it left the runs before it."""

    seed: int
    turns: tuple[tuple[int, str], ...] = ()
    """The numbers of events from which on it drew otherwise, each with its salt."""
    beginning: Beginning = attrs.field(factory=Beginning)


@attrs.define
class _Kept:
    run: RunSoFar
    sight: Sight
    event: int
    at_s: float
    draws: tuple[NotedDraw, ...]
    used: int = 0


class Corpus:
    """The beginnings of runs that showed something rare."""

    def __init__(self) -> None:
        self.counts: Counter[Sight] = Counter()
        """How many runs have shown each sight."""
        self.kept: list[_Kept] = []

    def add(self, run: RunSoFar, sights: Sights, draws: list[NotedDraw]) -> None:
        """Keep the beginnings of a run up to what was rare in it."""
        self.counts.update(dict.fromkeys(sights.first, 1))
        last_s = draws[-1].at_s if draws else 0.0
        for sight, (event, at_s) in sights.first.items():
            before = tuple(draw for draw in draws if draw.at_event < event)
            # What happens before any fault is the same in each run; and behind the last one there
            # is nothing to vary.
            if before and at_s < last_s and self.counts[sight] <= _RARE_MAX:
                self.kept.append(_Kept(run, sight, event, at_s, before))
        self.kept = [one for one in self.kept if self.counts[one.sight] <= _RARE_MAX][-_KEPT_MAX:]

    def chosen(self, randomness: Random, salt: str) -> RunSoFar | None:
        """The beginning that was repeated least, to go another way shortly before what was rare;
        None: none is kept."""
        if not self.kept:
            return None
        least = min(one.used for one in self.kept)
        kept = randomness.choice([one for one in self.kept if one.used == least])
        kept.used += 1
        event = max(kept.draws[-1].at_event + 1, kept.event - randomness.randint(1, _BACK_MAX))
        turns = tuple(turn for turn in kept.run.turns if turn[0] < event)
        beginning = Beginning(kept.draws, event, kept.at_s)
        return RunSoFar(kept.run.seed, (*turns, (event, salt)), beginning)
