"""The bound for all streams of a broker together.

Each stream has bounds of its own (`octopi.relay.buffer.BufferBounds`).  A broker with many streams
would still hold any number of bytes.  So when all of them together are beyond `bytes_max`, the
streams that were silent for longest lose their oldest transactions: first down to
`RELAY_BUFFER_BYTES_MIN` each, then all.  Only what was delivered is left out.  While what waits for
a quorum is alone beyond the bound, sequencers put nothing more in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from octopi.limits import RELAY_BUFFER_BYTES_MIN, RELAY_MEMORY_BYTES, RELAY_MEMORY_LOOK_S

_ROOM_SHARE: Final = 16
"""A sixteenth of the bound is made free at once, so that streams are not looked at all the time."""


class HoldingStream(Protocol):
    """A stream that may leave out what is old (`octopi.relay.stream.RelayStream`)."""

    grown_at: float
    """When something was added last (monotonic, s)."""

    @property
    def held_bytes(self) -> int:
        """What it holds."""

    def leave_out(self, wanted_bytes: int, floor_bytes: int) -> int:
        """Leave out what is oldest; return how many bytes that made."""


Holding = TypeVar("Holding", bound=HoldingStream)


class RelayMemory:
    """What the streams of one broker hold, in all of its relay partitions.

    Invariant: `held_bytes` is what they hold, or more.
    """

    def __init__(self, bytes_max: int = RELAY_MEMORY_BYTES) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        """Counted at the last look, and all that came since."""
        self.evicted_bytes = 0
        """What was left out for want of room since the start."""
        self.is_full = False
        """Whether what waits for a quorum has left no room: nothing more is put in order."""
        self._looks_at = 0.0

    def grew(self, size_bytes: int) -> None:
        """Streams hold *size_bytes* more."""
        self.held_bytes += size_bytes

    def is_due(self, now: float) -> bool:
        """Whether room has to be made at *now* (monotonic, s)."""
        return (self.held_bytes > self.bytes_max or self.is_full) and now >= self._looks_at

    def make_room(
        self, streams: Iterable[Holding], fixed_bytes: int, now: float
    ) -> dict[Holding, int]:
        """Leave out what was delivered, until there is room; return how much of which streams
        (bytes).

        *streams*: all those of which something may be left out now; *fixed_bytes*: what others
        hold.
        """
        known = sorted(streams, key=lambda one: one.grown_at)
        held = fixed_bytes + sum(one.held_bytes for one in known)
        wanted = self.bytes_max - self.bytes_max // _ROOM_SHARE
        evicted: dict[Holding, int] = {}
        for floor in (RELAY_BUFFER_BYTES_MIN, 0):
            for stream in known:
                if held <= wanted:
                    break
                if size := stream.leave_out(held - wanted, floor):
                    evicted[stream] = evicted.get(stream, 0) + size
                    held -= size
        self.held_bytes, self.is_full = held, held > self.bytes_max
        self.evicted_bytes += sum(evicted.values())
        if self.is_full:
            self._looks_at = now + RELAY_MEMORY_LOOK_S
        return evicted
