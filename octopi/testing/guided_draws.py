"""Draws faults at moments that a search has tried least, and repeats the beginning of a run.

A search keeps one `TriedMoments` for all of its runs.  A moment is a kind of fault, a host and one
of its steps, or no step: at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

import attrs

from octopi.simulation.faults.actions import Kill, LosePower, Stop
from octopi.simulation.kernel.world import World
from octopi.testing.fault_draws import Drawable, FaultDraw, RandomDraws, drawn_action

_AT_ANY_TIME: Final = ""
_BY_CHANCE: Final = 0.2
"""The share of faults that are drawn as if nothing was known."""
_FIRST: Final = 0.6
"""The share of faults at a step that strike at its next occurrence."""
_OCCURRENCE_MAX: Final = 4
_ENDING: Final = frozenset({"kill", "lose power", "stop"})
"""The kinds of faults that end a process; others last, and would overlap in a dense run."""
_AT_ONCE: Final = 0.1
"""The first fault of a run is drawn after this part of the usual delay."""
_DENSE: Final = 0.15
"""In a dense run the delays are this part of the usual ones."""
_RESTART_S: Final = (0.05, 0.3)
"""How long a process is down in a dense run (s)."""
_SOON: Final = 0.25
"""The first fault behind a beginning that is repeated comes after this part of the usual delay."""

Moment = tuple[str, str, str]
"""A kind of fault, a host, and the text of a step."""


def _ending(kinds: Sequence[str]) -> list[str]:
    """Those of *kinds* that end a process."""
    return [kind for kind in kinds if kind in _ENDING]


class TriedMoments:
    """How often faults have struck at which moments, in all runs of a search."""

    def __init__(self) -> None:
        self.struck: Counter[Moment] = Counter()
        self._drawn: Counter[Moment] = Counter()
        self._steps: dict[str, dict[str, None]] = {}

    def learn(self, host: str, steps: list[str]) -> None:
        """Note that *host* takes these steps."""
        known = self._steps.setdefault(host, {})
        for step in steps:
            known[step] = None

    def steps(self, host: str) -> list[str]:
        """The steps of *host* that are known, also from other runs."""
        return list(self._steps.get(host, ()))

    def least(self, moments: list[Moment], randomness: Random) -> Moment:
        """One of *moments* that was tried least; it counts as tried."""
        costs = [self.struck[one] + self._drawn[one] for one in moments]
        least = min(costs)
        chosen = randomness.choice(
            [one for one, cost in zip(moments, costs, strict=True) if cost == least]
        )
        self._drawn[chosen] += 1
        return chosen


@attrs.frozen
class NotedDraw:
    """A draw with the moment at which it was made."""

    at_event: int
    """How many events the run had had then."""
    at_s: float
    """The virtual time (s)."""
    delay_s: float
    """The time since the draw before it (s)."""
    draw: FaultDraw | None


@attrs.frozen
class Beginning:
    """The beginning of a run that is repeated."""

    draws: tuple[NotedDraw, ...] = ()
    until_event: int = 0
    """The event from which on the run goes another way."""
    until_s: float = 0.0
    """When that event happened (s of virtual time)."""


class GuidedDraws:
    """The draws of one run: first those of *beginning*, then new ones.

    *is_dense*: many faults that end processes, which are down only briefly, so that one run tries
    many moments; as always if the test has no such faults.
    """

    watches_waits = True

    def __init__(
        self,
        tried: TriedMoments,
        randomness: Random,
        world: World,
        beginning: Beginning,
        *,
        uses_moments: bool = True,
        is_dense: bool = False,
    ) -> None:
        self._tried = tried
        self._randomness = randomness
        self._by_chance = RandomDraws(randomness)
        self._world = world
        self._beginning = beginning
        self._uses_moments = uses_moments
        self._is_dense = is_dense
        self._waiting: FaultDraw | None = None
        """In a dense run: the fault that waits for its step."""
        self._waits_until = 0.0
        self.noted: list[NotedDraw] = []
        """All draws so far."""
        self._delay_s = 0.0

    def delay_s(self, drawable: Drawable) -> float:
        """See `Draws`."""
        count, kept = len(self.noted), self._beginning.draws
        if count < len(kept):
            self._delay_s = kept[count].delay_s
        else:
            self._delay_s = self._by_chance.delay_s(drawable)
            if count == 0 and self._uses_moments:
                self._delay_s *= _AT_ONCE  # it is only armed then, and strikes at its step
            if self._is_dense and _ending(drawable.kinds):
                self._delay_s *= _DENSE
            if kept and count == len(kept):
                rest_s = max(0.0, self._beginning.until_s - self._world.now)
                self._delay_s = rest_s + _SOON * self._delay_s
        return self._delay_s

    def draw(self, drawable: Drawable) -> FaultDraw | None:
        """See `Draws`."""
        count, kept = len(self.noted), self._beginning.draws
        world = self._world
        if count < len(kept):
            draw = kept[count].draw
        elif self._waiting is not None and world.now < self._waits_until:
            draw = None
        else:
            draw = self._new(drawable)
            if self._is_dense and draw is not None and draw.step and draw.kind in _ENDING:
                # One after the other: of several, those at the first steps would always be first.
                self._waiting, self._waits_until = draw, world.now + drawable.every_s
        self.noted.append(NotedDraw(world.event_count, world.now, self._delay_s, draw))
        return draw

    def struck(self, draw: FaultDraw) -> None:
        """See `Draws`."""
        self._tried.struck[draw.kind, draw.host, draw.step] += 1
        if draw is self._waiting:
            self._waiting = None

    def _new(self, drawable: Drawable) -> FaultDraw | None:
        randomness = self._randomness
        kinds = (self._is_dense and _ending(drawable.kinds)) or drawable.kinds
        targets = {kind: drawable.targets(kind) for kind in kinds}
        for host in dict.fromkeys(host for hosts in targets.values() for host in hosts):
            self._tried.learn(host, drawable.steps(host))
        if not self._uses_moments or randomness.random() < _BY_CHANCE:
            return self._by_chance.draw(drawable)
        moments = [
            (kind, host, step)
            for kind, hosts in targets.items()
            for host in hosts
            for step in (_AT_ANY_TIME, *self._tried.steps(host))
        ]
        if not moments:
            return None
        kind, host, step = self._tried.least(moments, randomness)
        action = drawn_action(kind, randomness, drawable.hosts())
        if self._is_dense and isinstance(action, Kill | LosePower | Stop):
            action = attrs.evolve(action, restart_s=randomness.uniform(*_RESTART_S))
        occurrence = 1
        if step and randomness.random() >= _FIRST:
            occurrence = randomness.randint(2, _OCCURRENCE_MAX)
        return FaultDraw(kind, action, host, step, occurrence)
