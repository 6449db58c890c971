"""A route: how bytes travel from one machine to another, in one direction.

In charge of when what is sent arrives, and of whether it arrives at all.  Knows no
connections: what TCP makes of a bad route is the business of `connection`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from math import log1p
from typing import Final

import attrs

BYTES_PER_S: Final = 1e9
"""How fast a route is, if nothing else is said."""

RETRANSMIT_S: Final = 0.2
"""A sender sends again what was lost after this, at first (RFC 6298 and Linux's minimum)."""

RETRANSMIT_S_MAX: Final = 1.0
"""The longest that a sender waits before it tries again.  Real ones wait up to two minutes,
which would only make runs longer."""


class Spread(Enum):
    """How much longer than its least a delay is."""

    UNIFORM = "uniform"
    """Anything up to the jitter."""
    EXPONENTIAL = "exponential"
    """The jitter on average, seldom many times that."""


class Mishap(Enum):
    """What can befall one connection, in one direction, at one byte."""

    RESET = "reset"
    """Both ends learn that the connection is gone."""
    FINISH = "finish"
    """The bytes end there, as if the sender had closed."""
    SILENCE = "silence"
    """Nothing arrives any more, and nobody is told."""
    CORRUPT = "corrupt"
    """The byte changes on its way."""


@attrs.frozen
class Trap:
    """A mishap that waits for a connection."""

    mishap: Mishap
    after_bytes: int
    """How many bytes still arrive well."""


@attrs.frozen(eq=False)
class Blockade:
    """Keeps all that is on a route from arriving, until it is lifted."""

    loses: bool
    """Whether packets are lost, as on a broken cable, and not only late."""


@attrs.define(eq=False)
class Route:
    """One direction between two machines.  The fields may be changed at any time, and hold
    for what is sent from then on."""

    source: str
    target: str
    randomness: Callable[[], float]
    """Draws in [0, 1), of this route alone."""
    latency_s: float
    """What every delivery takes at least."""
    jitter_s: float
    spread: Spread = Spread.UNIFORM
    loss_chance: float = 0.0
    """How likely a packet is lost.  What TCP sends again arrives, only later."""
    bytes_per_s: float = BYTES_PER_S
    segment_bytes: int | None = None
    """Size of the pieces in which a stream's bytes arrive; None draws it."""
    traps: deque[Trap] = attrs.Factory(deque)
    """For the next connections, one for each."""
    blockades: list[Blockade] = attrs.Factory(list)
    packets: list[Callable[[], None]] = attrs.Factory(list)
    """Single packets that a blockade holds, and does not lose."""
    stalled: list[Callable[[], None]] = attrs.Factory(list)
    """How connections go on that a blockade keeps from it."""
    _blocked_at: float = 0.0
    _busy_until: float = 0.0

    @property
    def is_cut(self) -> bool:
        """Whether packets are lost now."""
        return any(blockade.loses for blockade in self.blockades)

    def arrival(self, now: float, size_bytes: int) -> float:
        """Draw when what is sent *now* arrives."""
        # One after the other: the bytes of all connections share the route.
        start = self._busy_until if self._busy_until > now else now
        self._busy_until = start + size_bytes / self.bytes_per_s
        drawn = self.randomness()
        if self.spread is Spread.EXPONENTIAL:
            drawn = -log1p(-drawn)
        when = self._busy_until + self.latency_s + self.jitter_s * drawn
        return when if self.loss_chance == 0.0 else when + self._repeats_s()

    def _repeats_s(self) -> float:
        wait_s, after_s = 0.0, RETRANSMIT_S
        while after_s <= RETRANSMIT_S_MAX and self.randomness() < self.loss_chance:
            wait_s += after_s
            after_s *= 2
        return wait_s

    def block(self, blockade: Blockade, now: float) -> None:
        """Let nothing arrive from *now* on."""
        if not self.blockades:
            self._blocked_at = now
        self.blockades.append(blockade)
        if blockade.loses:
            self.packets.clear()

    def lift(self, blockade: Blockade, now: float) -> list[tuple[float, Callable[[], None]]]:
        """Take *blockade* away, if it is there.  Return what goes on now, and when."""
        if blockade not in self.blockades:
            return []
        self.blockades.remove(blockade)
        if self.blockades:
            return []
        packets, self.packets = self.packets, []
        stalled, self.stalled = self.stalled, []
        # Senders have tried again and again, at longer and longer intervals.
        wait_s = min(max(now - self._blocked_at, RETRANSMIT_S), RETRANSMIT_S_MAX)
        if not blockade.loses:
            wait_s = 0.0
        return [(now, come) for come in packets] + [
            (now + wait_s * self.randomness(), come) for come in stalled
        ]
