"""When brokers were not in sync the last time."""

from __future__ import annotations

from octopi.identifiers import BrokerId, PartitionId
from octopi.wire.messages import PartitionRecord


class InSyncTimes:
    """Notes when brokers come into in-sync sets, by the version of the decisions."""

    def __init__(self) -> None:
        self._out: dict[tuple[PartitionId, BrokerId], int] = {}

    def decided(self, known: PartitionRecord | None, record: PartitionRecord, version: int) -> None:
        """*record* follows *known* (None: it is the first one) in *version*."""
        for broker in record.in_sync:
            if known is None or broker not in known.in_sync:
                self._out[record.partition, broker] = version

    def last_out(self, record: PartitionRecord | None, broker: BrokerId) -> int | None:
        """The version in which *broker* came into the in-sync set of *record*, which is in force;
        -1: it was always in it; None: it is not in it."""
        if record is None or broker not in record.in_sync:
            return None
        return self._out.get((record.partition, broker), -1)
