"""The topic of Octopi Lite, whose partitions have the ids 0, 1, 2, ..."""

from __future__ import annotations

import attrs

from octopi.clients.client import Client
from octopi.environment import Clock, Environment
from octopi.identifiers import PartitionId
from octopi.lite.errors import InvalidPartitionIdError
from octopi.operating_system import SystemClock
from octopi.wire.messages import PartitionInfo


def clock_of(environment: Environment | None) -> Clock:
    """The clock by which calls are timed: that of *environment*, or the system's."""
    return SystemClock() if environment is None else environment.clock


@attrs.frozen
class LiteTopic:
    """A topic as Lite sees it: *places* has the partition of the cluster for each id."""

    name: str
    places: tuple[PartitionId, ...]

    @classmethod
    async def mounted(cls, client: Client, name: str, partitions: int) -> LiteTopic:
        """The topic *name*, which is created with so many partitions if it doesn't exist.

        Raises:
          OctopiError: if no node answers in time, or the topic can't be created.
        """
        info = await client.create_topic(name, partitions, exist_ok=True)
        return cls(name, tuple(one.partition for one in info.partitions))

    def place(self, partition_id: int) -> PartitionId:
        """The partition of the cluster with this id.

        Raises:
          InvalidPartitionIdError: if there is none.
        """
        if not 0 <= partition_id < len(self.places):
            raise InvalidPartitionIdError(
                f"topic {self.name} has no partition {partition_id}: its ids are 0 to "
                f"{len(self.places) - 1}"
            )
        return self.places[partition_id]

    async def describe(self, client: Client, partition_id: int) -> PartitionInfo:
        """Where a partition is now.

        Raises:
          InvalidPartitionIdError: if there is no such id.
          OctopiError: if no node answers in time.
        """
        place = self.place(partition_id)
        info = await client.describe_topic(self.name)
        [found] = [one for one in info.partitions if one.partition == place]
        return found
