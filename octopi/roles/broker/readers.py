"""What the readers of a broker's logs share: the open readings, the fan-out, long look-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from octopi.environment import Clock
from octopi.roles.broker.slow_lookups import SlowLookups
from octopi.roles.broker.tail_broadcast import TailBroadcast
from octopi.storage.time_slices import Slices, in_groups
from octopi.wire.messages import ReadingInfo


class OpenReading(Protocol):
    """An open reading, for people to look at."""

    @property
    def topic(self) -> str:
        """Of which topic it is."""

    def describe(self) -> ReadingInfo:
        """How it stands."""


class Readers:
    """All who read from the logs of one broker."""

    def __init__(self, clock: Clock) -> None:
        self.readings: dict[OpenReading, None] = {}
        """All that are open."""
        self.tail_broadcast = TailBroadcast(clock)
        """Serves those that have all of their log."""
        self.slow_lookups = SlowLookups()
        """Long look-ups."""

    def describe(
        self, topic: str, count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[ReadingInfo]]:
        """Up to *count_max* open readings, of *topic* or (empty) of all that *covers* is true
        of."""
        found: list[ReadingInfo] = []
        for some in in_groups(list(self.readings)):
            found += [
                one.describe() for one in some if topic in {"", one.topic} and covers(one.topic)
            ]
            if len(found) >= count_max:
                break
            yield
        return found[:count_max]
