"""Draws faults from the seed: which fault, when, and on which host.

Half of the faults strike at a step of a node, because the state between two steps is the most
fragile, and a fault at a random time hardly ever strikes there.  The possible steps are learned
while they are taken, including those of the test's programs.

Each fault that strikes is noted with its moment, so that the same faults can be planned without
chance (`octopi.testing.shrinking`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from functools import partial
from random import Random
from typing import Final

import attrs

from octopi.simulation.faults.actions import (
    Action,
    Cut,
    FillDisk,
    Kill,
    LosePower,
    Pause,
    Slow,
    Stop,
)
from octopi.simulation.faults.injector import FAULT, SKIPPED
from octopi.simulation.kernel.world import Event, World
from octopi.testing.errors import MisuseError
from octopi.testing.faults import Faults
from octopi.testing.planned_faults import PlannedFault

KINDS: Final = ("kill", "lose power", "stop", "pause", "cut", "isolate", "slow", "fill disk")
"""The kinds of faults that `Cluster.random_faults` draws."""

_OF_PROCESSES: Final = frozenset({"kill", "lose power", "stop", "pause"})
NOT_STEPS: Final = frozenset(
    {FAULT, SKIPPED, "boot", "exit", "kill", "lose power", "stop", "pause", "resume"}
)
"""Events of the world about processes that aren't steps of these processes."""
_OCCURRENCE_MAX: Final = 3
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
    """The faults in the blocks of one run: drawn, or planned by *plan*."""

    def __init__(self, plan: FaultPlan | None = None) -> None:
        self.plan = plan
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
        struck: list[StruckFault],
    ) -> None:
        for kind in kinds:
            if kind not in KINDS:
                raise MisuseError(f"there is no fault {kind!r}; there are {', '.join(KINDS)}")
        if not kinds:
            raise MisuseError(f"name at least one kind of fault; there are {', '.join(KINDS)}")
        if every_s <= 0:
            raise MisuseError(f"every_s is {every_s}; it has to be more than 0")
        self._faults = faults
        self._world = world
        self._kinds = [kind for kind in kinds if kind != "pause" or faults.can_pause]
        self._every_s = every_s
        self._hosts = hosts
        self._randomness: Random = world.random("random faults")
        self._steps: dict[tuple[str, str], None] = {}
        """The host and the step of all steps that were taken."""
        self._block, self._struck = block, struck
        self._began_at = world.now
        self._counter = StepCounter()
        self._is_over = False

    def __call__(self, event: Event) -> None:
        """Learn the steps that are taken."""
        self._counter(event)
        if event.life and event.what not in NOT_STEPS:
            self._steps[event.host, event.what] = None

    def start(self) -> None:
        """Schedule the first fault."""
        if self._kinds:
            self._world.after(self._randomness.expovariate(1 / self._every_s), self._strike)

    def end(self) -> None:
        """Draw no more faults."""
        self._is_over = True

    def _strike(self) -> None:
        if self._is_over:
            return
        randomness = self._randomness
        kind = randomness.choice(self._kinds)
        targets = self._targets(kind)
        if targets:
            host = randomness.choice(targets)
            action = self._drawn(kind)
            steps = [step for one, step in self._steps if one == host]
            if steps and randomness.random() < 0.5:
                occurrence = randomness.randint(1, _OCCURRENCE_MAX)
                step = randomness.choice(steps)
                act = partial(self._act, action, step=step)
                self._faults.at(step, act, who=host, occurrence=occurrence)
            else:
                self._act(action, host)
        self.start()

    def _targets(self, kind: str) -> list[str]:
        hosts = self._hosts or self._faults.hosts
        if kind in _OF_PROCESSES:
            return [host for host in hosts if self._faults.is_mortal(host)]
        return list(hosts)

    def _drawn(self, kind: str) -> Action:
        """The fault, with everything that can be drawn before it is known where it strikes."""
        randomness = self._randomness
        match kind:
            case "kill":
                return Kill(randomness.uniform(0.05, 1.5))
            case "lose power":
                return LosePower(randomness.uniform(0.2, 3.0))
            case "stop":
                return Stop(randomness.uniform(0.05, 1.5))
            case "pause":
                return Pause(randomness.uniform(0.1, 3.0))
            case "isolate":
                return Cut("others", randomness.uniform(0.1, 3.0))
            case "slow":
                latency_s = randomness.choice((0.01, 0.1, 0.5))
                return Slow("others", randomness.uniform(0.5, 3.0), latency_s)
            case "fill disk":
                return FillDisk(randomness.uniform(0.1, 2.0))
        seconds, one_way = randomness.uniform(0.1, 5.0), randomness.random() < 0.3
        other = randomness.choice(self._faults.hosts)
        return Cut(other, seconds, "out" if one_way else "both")

    def _act(self, action: Action, host: str, step: str = "") -> None:
        if self._is_over or (isinstance(action, Cut) and action.peer == host):
            return
        near = self._counter.near(host)
        if self._faults.strike_if_new(action, host):
            if step:
                occurrence = self._counter.counts[host, step]
                fault = PlannedFault(action, host, step, occurrence)
            else:
                fault = PlannedFault(action, host, after_s=self._world.now - self._began_at)
            self._struck.append(StruckFault(self._block, fault, near))
