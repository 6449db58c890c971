"""Draws faults from the seed: which fault, when, and on which host.

Half of the faults strike at a step of a node, because the state between two steps is the most
fragile, and a fault at a random time hardly ever strikes there.  The possible steps are learned
while they are taken, including those of the test's programs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import Final

from octopi.simulation.faults.injector import FAULT, SKIPPED
from octopi.simulation.kernel.world import Event, World
from octopi.testing.errors import MisuseError
from octopi.testing.faults import Faults

KINDS: Final = ("kill", "lose power", "stop", "pause", "cut", "isolate", "slow", "fill disk")
"""The kinds of faults that `Cluster.random_faults` draws."""

_OF_PROCESSES: Final = frozenset({"kill", "lose power", "stop", "pause"})
_NOT_STEPS: Final = frozenset(
    {FAULT, SKIPPED, "boot", "exit", "kill", "lose power", "stop", "pause", "resume"}
)
"""Events of the world about processes that aren't steps of these processes."""
_OCCURRENCE_MAX: Final = 3


class RandomFaults:
    """Draws faults for *faults* in *world*; observes the world's events."""

    def __init__(
        self,
        faults: Faults,
        world: World,
        kinds: Collection[str],
        every_s: float,
        hosts: Collection[str],
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
        self._is_over = False

    def __call__(self, event: Event) -> None:
        """Learn the steps that are taken."""
        if event.life and event.what not in _NOT_STEPS:
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
            act = partial(self._act, kind, self._drawn(kind))
            steps = [step for one, step in self._steps if one == host]
            if steps and randomness.random() < 0.5:
                occurrence = randomness.randint(1, _OCCURRENCE_MAX)
                self._faults.at(randomness.choice(steps), act, who=host, occurrence=occurrence)
            else:
                act(host)
        self.start()

    def _targets(self, kind: str) -> list[str]:
        hosts = self._hosts or self._faults.hosts
        if kind in _OF_PROCESSES:
            return [host for host in hosts if self._faults.is_mortal(host)]
        return list(hosts)

    def _drawn(self, kind: str) -> Callable[[str], object]:
        """The fault, with everything that can be drawn before it is known where it strikes."""
        faults, randomness = self._faults, self._randomness
        match kind:
            case "kill":
                return partial(faults.kill, restart_s=randomness.uniform(0.05, 1.5))
            case "lose power":
                return partial(faults.lose_power, restart_s=randomness.uniform(0.2, 3.0))
            case "stop":
                return partial(faults.stop, restart_s=randomness.uniform(0.05, 1.5))
            case "pause":
                return partial(faults.pause, seconds=randomness.uniform(0.1, 3.0))
            case "isolate":
                return partial(faults.isolate, seconds=randomness.uniform(0.1, 3.0))
            case "slow":
                latency_s = randomness.choice((0.01, 0.1, 0.5))
                return partial(
                    faults.slow, latency_s=latency_s, seconds=randomness.uniform(0.5, 3.0)
                )
            case "fill disk":
                return partial(faults.fill_disk, seconds=randomness.uniform(0.1, 2.0))
        seconds, one_way = randomness.uniform(0.1, 5.0), randomness.random() < 0.3
        other = randomness.choice(faults.hosts)
        return lambda host: (
            host != other and faults.cut(host, other, seconds=seconds, one_way=one_way)
        )

    def _act(self, kind: str, act: Callable[[str], object], host: str) -> None:
        if not self._is_over:
            act(host)
