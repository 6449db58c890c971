"""What the readers of a broker's logs share: the list of open readings, the fan-out, and long
look-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from octopi.environment import Clock
from octopi.identifiers import PartitionId
from octopi.roles.broker.slow_lookups import SlowLookups
from octopi.roles.broker.tail_broadcast import TailBroadcast
from octopi.storage.time_slices import Slices, in_groups
from octopi.wire.messages import ReadingInfo


class OpenReading(Protocol):
    """An open reading, as `DescribeReadings` lists it."""

    @property
    def topic(self) -> str:
        """The topic that is read."""

    @property
    def log_partition(self) -> PartitionId | None:
        """The partition whose log is read; None: it is a stream in memory."""

    def describe(self) -> ReadingInfo:
        """The state of the reading."""


class Readers:
    """The readers of one broker's logs."""

    def __init__(self, clock: Clock) -> None:
        self.readings: dict[OpenReading, None] = {}
        """The open readings."""
        self.tail_broadcast = TailBroadcast(clock)
        """Sends new records to the readings at the tail of their log."""
        self.slow_lookups = SlowLookups()
        """Bounds the long look-ups."""

    def describe(
        self, topic: str, count_max: int, covers: Callable[[str], bool]
    ) -> Slices[list[ReadingInfo]]:
        """Up to *count_max* open readings: those of *topic*, or, if it is empty, those of all
        topics for which *covers* is true."""
        found: list[ReadingInfo] = []
        for some in in_groups(list(self.readings)):
            found += [
                one.describe() for one in some if topic in {"", one.topic} and covers(one.topic)
            ]
            if len(found) >= count_max:
                break
            yield
        return found[:count_max]
