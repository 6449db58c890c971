"""Draws faults from the seed: which fault, when, and on which host.

Half of the faults strike at a step of a node, because the state between two steps is the most
fragile, and a fault at a random time hardly ever strikes there.  The possible steps are learned
while they are taken, including those of the test's programs.

Each fault that strikes is noted with its moment, so that the same faults can be planned without
chance (`octopi.testing.shrinking`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

import attrs

from octopi.simulation.faults.actions import Cut
from octopi.simulation.faults.injector import FAULT, SKIPPED
from octopi.simulation.kernel.world import Event, World
from octopi.testing.down_limit import DownLimit
from octopi.testing.errors import MisuseError
from octopi.testing.fault_draws import (
    ALL_KINDS,
    OF_PROCESSES,
    Draws,
    FaultDraw,
    RandomDraws,
)
from octopi.testing.faults import Faults
from octopi.testing.planned_faults import PlannedFault

NOT_STEPS: Final = frozenset(
    {FAULT, SKIPPED, "boot", "exit", "kill", "lose power", "stop", "pause", "resume"}
)
"""Events of the world about processes that aren't steps of these processes."""
_NEAR_COUNT: Final = 4
"""How many steps before a fault are noted."""


@attrs.frozen
class FaultPlan:
    """The faults that take the place of those that blocks of random faults would draw."""

    seed: int
    brokers: int | None = None
    """The number of brokers, if it isn't that of the test."""
    heals: bool = False
    """Whether all is healed at the end of a block."""
    faults: tuple[tuple[int, PlannedFault], ...] = ()
    """Each with the number of its block, from 0, at whose beginning it is planned."""

    def of_block(self, number: int) -> list[PlannedFault]:
        """The faults that are planned at the beginning of a block."""
        return [fault for block, fault in self.faults if block == number]


@attrs.frozen
class StruckFault:
    """A fault that has struck."""

    block: int
    fault: PlannedFault
    near: tuple[tuple[str, int], ...]
    """The last steps of its host before that, the nearest one first, each with its number among the
    same steps since the block began."""


class StepCounter:
    """Counts the steps of hosts since a block of faults began; observes the world's events."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._last: dict[str, deque[tuple[str, int]]] = {}

    def __call__(self, event: Event) -> None:
        """Count a step."""
        if event.life and event.what not in NOT_STEPS:
            key = event.host, event.what
            self.counts[key] += 1
            last = self._last.setdefault(event.host, deque(maxlen=_NEAR_COUNT))
            last.appendleft((event.what, self.counts[key]))

    def near(self, host: str) -> tuple[tuple[str, int], ...]:
        """The last steps of *host*, the nearest one first."""
        return tuple(self._last.get(host, ()))


class FaultsOfRun:
    """The faults in the blocks of one run: planned by *plan*, or drawn from *draws* (None: by
    chance)."""

    def __init__(self, plan: FaultPlan | None = None, draws: Draws | None = None) -> None:
        self.plan = plan
        self.draws = draws
        self.struck: list[StruckFault] = []
        """The faults that have struck, in their order."""
        self._block_count = 0

    def next_block(self) -> int:
        """The number of the block that begins."""
        self._block_count += 1
        return self._block_count - 1


class RandomFaults:
    """Draws faults for *faults* in *world*; observes the world's events."""

    def __init__(
        self,
        faults: Faults,
        world: World,
        kinds: Collection[str],
        every_s: float,
        hosts: Collection[str],
        block: int,
        of_run: FaultsOfRun,
        limit: DownLimit | None = None,
    ) -> None:
        for kind in kinds:
            if kind not in ALL_KINDS:
                raise MisuseError(f"there is no fault {kind!r}; there are {', '.join(ALL_KINDS)}")
        if not kinds:
            raise MisuseError(f"name at least one kind of fault; there are {', '.join(ALL_KINDS)}")
        if every_s <= 0:
            raise MisuseError(f"every_s is {every_s}; it has to be more than 0")
        self._faults = faults
        self._world = world
        self.kinds: Sequence[str] = [kind for kind in kinds if kind != "pause" or faults.can_pause]
        self.every_s = every_s
        self._hosts = hosts
        self._limit = limit
        self._draws = of_run.draws or RandomDraws(world.random("random faults"))
        self._steps: dict[str, dict[str, None]] = {}
        """The texts of the steps that were taken, by host."""
        self._block, self._struck = block, of_run.struck
        self._began_at = world.now
        self._counter = StepCounter()
        self._is_over = False

    def __call__(self, event: Event) -> None:
        """Learn the steps that are taken."""
        self._counter(event)
        if event.life and event.what not in NOT_STEPS:
            self._steps.setdefault(event.host, {})[event.what] = None

    def start(self) -> None:
        """Schedule the first fault."""
        if self.kinds:
            self._world.after(self._draws.delay_s(self), self._strike)

    def end(self) -> None:
        """Draw no more faults."""
        self._is_over = True

    # --- what can be drawn (`octopi.testing.fault_draws.Drawable`) ---------------------------

    def targets(self, kind: str) -> list[str]:
        """The hosts that can have faults of this kind."""
        hosts = self._hosts or self._faults.hosts
        if kind in OF_PROCESSES:
            return [host for host in hosts if self._faults.is_mortal(host)]
        return list(hosts)

    def hosts(self) -> list[str]:
        """All hosts of the cluster."""
        return self._faults.hosts

    def steps(self, host: str) -> list[str]:
        """The texts of the steps that *host* has taken."""
        return list(self._steps.get(host, ()))

    # --- what was drawn ----------------------------------------------------------------------

    def _strike(self) -> None:
        if self._is_over:
            return
        draw = self._draws.draw(self)
        if draw is not None and draw.step:
            act = partial(self._act, draw)
            self._faults.at(
                draw.step, lambda host: act(), who=draw.host, occurrence=draw.occurrence
            )
        elif draw is not None:
            self._act(draw)
        self.start()

    def _act(self, draw: FaultDraw) -> None:
        action, host = draw.action, draw.host
        if self._is_over or (isinstance(action, Cut) and action.peer == host):
            return
        if self._limit is not None and not self._limit.allows(action, host):
            return
        near = self._counter.near(host)
        if self._faults.strike_if_new(action, host):
            if draw.step:
                occurrence = self._counter.counts[host, draw.step]
                fault = PlannedFault(action, host, draw.step, occurrence)
            else:
                fault = PlannedFault(action, host, after_s=self._world.now - self._began_at)
            self._struck.append(StruckFault(self._block, fault, near))
            self._draws.struck(draw)
