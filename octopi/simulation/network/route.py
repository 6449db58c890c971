"""A route: how bytes travel from one machine to another, in one direction.

A route decides when data arrives, and whether it arrives at all.  It knows no connections:
`octopi.simulation.network.connection` does what TCP does on a bad route.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from math import log1p
from typing import Final

import attrs

BYTES_PER_S: Final = 1e9
"""The default speed of a route."""

RETRANSMIT_S: Final = 0.2
"""How long a sender waits at first before it sends lost data again (RFC 6298 and Linux's
minimum)."""

RETRANSMIT_S_MAX: Final = 1.0
"""The longest time that a sender waits before it tries again.  Real senders wait up to two minutes,
which would only make runs longer."""


class Spread(Enum):
    """The distribution of what a delay has beyond its minimum."""

    UNIFORM = "uniform"
    """Uniform between 0 and the jitter."""
    EXPONENTIAL = "exponential"
    """Exponential, with the jitter as its mean."""


class Mishap(Enum):
    """What can go wrong on one connection, in one direction, at one byte."""

    RESET = "reset"
    """Both ends learn that the connection is broken."""
    FINISH = "finish"
    """The bytes end there, as if the sender had closed."""
    SILENCE = "silence"
    """Nothing arrives any more, and neither end is told."""
    CORRUPT = "corrupt"
    """A bit of the byte flips on the way."""


@attrs.frozen
class Trap:
    """A mishap that will strike one connection."""

    mishap: Mishap
    after_bytes: int
    """The number of bytes that still arrive before it."""


@attrs.frozen(eq=False)
class Blockade:
    """Keeps everything on a route from arriving, until it is lifted."""

    loses: bool
    """Whether packets are lost, as on a broken cable; otherwise they are only late."""


@attrs.define(eq=False)
class Route:
    """One direction between two machines.  The fields may be changed at any time; a change holds
    for what is sent from then on."""

    source: str
    target: str
    randomness: Callable[[], float]
    """Draws numbers in [0, 1) for this route alone."""
    latency_s: float
    """The shortest time that a delivery takes."""
    jitter_s: float
    spread: Spread = Spread.UNIFORM
    loss_chance: float = 0.0
    """The probability that a packet is lost.  What TCP sends again arrives later."""
    bytes_per_s: float = BYTES_PER_S
    segment_bytes: int | None = None
    """The size of the pieces in which a stream's bytes arrive; None: it is drawn."""
    traps: deque[Trap] = attrs.Factory(deque)
    """The mishaps of the next connections, one for each."""
    blockades: list[Blockade] = attrs.Factory(list)
    packets: list[Callable[[], None]] = attrs.Factory(list)
    """The arrivals of single packets that a blockade holds and doesn't lose."""
    stalled: list[Callable[[], None]] = attrs.Factory(list)
    """The functions with which blocked connections continue."""
    _blocked_at: float = 0.0
    _busy_until: float = 0.0

    @property
    def is_cut(self) -> bool:
        """Whether packets are lost now."""
        return any(blockade.loses for blockade in self.blockades)

    def arrival(self, now: float, size_bytes: int) -> float:
        """Draw the time at which data that is sent *now* arrives."""
        # The bytes of all connections share the route, so they leave one after the other.
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
        """Let nothing arrive from *now* on, until *blockade* is lifted."""
        if not self.blockades:
            self._blocked_at = now
        self.blockades.append(blockade)
        if blockade.loses:
            self.packets.clear()

    def lift(self, blockade: Blockade, now: float) -> list[tuple[float, Callable[[], None]]]:
        """Lift *blockade*, if it is there.  Return the functions to call, each with its time."""
        if blockade not in self.blockades:
            return []
        self.blockades.remove(blockade)
        if self.blockades:
            return []
        packets, self.packets = self.packets, []
        stalled, self.stalled = self.stalled, []
        # Senders repeated their packets at growing intervals, so the next repetition may be late.
        wait_s = min(max(now - self._blocked_at, RETRANSMIT_S), RETRANSMIT_S_MAX)
        if not blockade.loses:
            wait_s = 0.0
        return [(now, come) for come in packets] + [
            (now + wait_s * self.randomness(), come) for come in stalled
        ]
