"""What a broker reports to the register about itself: replicas that take no records, and the space
on its disk.

This module does no I/O: from the present state it decides what the register doesn't know yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Final

from octopi.environment import DiskSpace
from octopi.identifiers import PartitionId
from octopi.limits import STATUS_INTERVAL_S
from octopi.transport.failures import told
from octopi.wire.messages import BrokerStatus, ReplicaTrouble

_REPLICAS_MAX: Final = 1_000


def status_of(
    disk_trouble: str, room: DiskSpace | None, troubles: Mapping[PartitionId, str]
) -> BrokerStatus:
    """All that is to be told, whatever was told before."""
    return BrokerStatus(
        told(disk_trouble),
        None if room is None else room.free_bytes,
        None if room is None else room.total_bytes,
        [ReplicaTrouble(one, told(why)) for one, why in islice(troubles.items(), _REPLICAS_MAX)],
    )


class StatusReport:
    """What the register was told on one membership connection."""

    def __init__(self) -> None:
        self._disk_trouble = ""
        self._room: DiskSpace | None = None
        self._troubles: dict[PartitionId, str] = {}
        self._told_at = -math.inf

    def news(
        self,
        now: float,
        disk_trouble: str,
        room: DiskSpace | None,
        troubles: Mapping[PartitionId, str],
    ) -> BrokerStatus | None:
        """The report that is due at *now* (monotonic, s), which then counts as sent; None: nothing
        is due.

        *troubles*: reasons by partition.  A reason that only changes its text is not reported
        again, because the text may contain numbers that change all the time.
        """
        differing = sorted(
            partition
            for partition in troubles.keys() | self._troubles.keys()
            if bool(troubles.get(partition)) != bool(self._troubles.get(partition))
        )
        is_due = room != self._room and now - self._told_at >= STATUS_INTERVAL_S
        if not (differing or is_due or bool(disk_trouble) != bool(self._disk_trouble)):
            return None
        news = list(islice(differing, _REPLICAS_MAX))
        for partition in news:
            self._troubles[partition] = troubles.get(partition, "")
        self._disk_trouble, self._room, self._told_at = disk_trouble, room, now
        return status_of(disk_trouble, room, {one: troubles.get(one, "") for one in news})
