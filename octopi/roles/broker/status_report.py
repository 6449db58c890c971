"""What a broker tells the register about itself: which replicas take no records, how full its
disk is.

Pure: told what is so, it says what the register has yet to hear.
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
        """What is to be told at *now* (monotonic, s), and counts as told then; None: nothing.

        *troubles*: reasons by partition.  A changed text alone is no news: it may have numbers
        that change all the time.
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
        return BrokerStatus(
            told(disk_trouble),
            None if room is None else room.free_bytes,
            None if room is None else room.total_bytes,
            [ReplicaTrouble(one, told(troubles.get(one, ""))) for one in news],
        )
