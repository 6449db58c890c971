"""What a block of random faults draws: each time a fault, its host, its moment, and the next delay.

The faults of a test are drawn by chance (`RandomDraws`), or by a search that knows what it has
tried (`octopi.testing.guided_draws`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import Final, Protocol

import attrs

from octopi.simulation.faults.actions import (
    Action,
    Cut,
    DriftClock,
    FillDisk,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    Slow,
    Stop,
)

KINDS: Final = ("kill", "lose power", "stop", "pause", "cut", "isolate", "slow", "fill disk")
"""The kinds of faults that `Cluster.random_faults` draws by default."""

OF_CLOCKS: Final = ("skew", "drift")
"""The kinds of faults of clocks, which a test has to name: few programs depend on clocks."""

ALL_KINDS: Final = (*KINDS, *OF_CLOCKS)
"""All kinds of faults that can be drawn."""

OF_PROCESSES: Final = frozenset({"kill", "lose power", "stop", "pause"})
"""The kinds of faults that hosts of the test itself can't have."""
_OCCURRENCE_MAX: Final = 3


@attrs.frozen
class FaultDraw:
    """A fault that was drawn."""

    kind: str
    action: Action
    host: str
    step: str = ""
    """The text of the step at which it strikes; empty: at once."""
    occurrence: int = 1
    """The how-manieth such step from now on."""


class Drawable(Protocol):
    """What a block of random faults can draw now."""

    kinds: Sequence[str]
    every_s: float
    """The mean time between two draws (s)."""

    def targets(self, kind: str) -> list[str]:
        """The hosts that can have faults of this kind."""

    def hosts(self) -> list[str]:
        """All hosts of the cluster."""

    def steps(self, host: str) -> list[str]:
        """The texts of the steps that *host* has taken in this run."""


class Draws(Protocol):
    """The source of the faults of one run."""

    watches_waits: bool
    """Whether the waits of programs are steps."""

    def delay_s(self, drawable: Drawable) -> float:
        """The time until the next draw (s)."""

    def draw(self, drawable: Drawable) -> FaultDraw | None:
        """A fault; None: none can be drawn now."""

    def struck(self, draw: FaultDraw) -> None:
        """Note that the fault has struck."""


class RandomDraws:
    """Draws each fault by chance, knowing nothing of the others."""

    watches_waits = False

    def __init__(self, randomness: Random) -> None:
        self._randomness = randomness

    def delay_s(self, drawable: Drawable) -> float:
        """See `Draws`."""
        return self._randomness.expovariate(1 / drawable.every_s)

    def draw(self, drawable: Drawable) -> FaultDraw | None:
        """See `Draws`."""
        randomness = self._randomness
        kind = randomness.choice(drawable.kinds)
        targets = drawable.targets(kind)
        if not targets:
            return None
        host = randomness.choice(targets)
        action = drawn_action(kind, randomness, drawable.hosts())
        steps = drawable.steps(host)
        if steps and randomness.random() < 0.5:
            occurrence = randomness.randint(1, _OCCURRENCE_MAX)
            return FaultDraw(kind, action, host, randomness.choice(steps), occurrence)
        return FaultDraw(kind, action, host)

    def struck(self, draw: FaultDraw) -> None:
        """See `Draws`."""


def drawn_action(kind: str, randomness: Random, hosts: Collection[str]) -> Action:
    """A fault of this kind, with everything that can be drawn before it is known where it
    strikes."""
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
        case "skew":
            return JumpClock(randomness.choice((-3600.0, -2.0, 2.0, 3600.0)))
        case "drift":
            return DriftClock(randomness.choice((0.9, 1.1, 2.0)), randomness.uniform(0.5, 5.0))
        case "fill disk":
            return FillDisk(randomness.uniform(0.1, 2.0))
    seconds, one_way = randomness.uniform(0.1, 5.0), randomness.random() < 0.3
    other = randomness.choice(list(hosts))
    return Cut(other, seconds, "out" if one_way else "both")
