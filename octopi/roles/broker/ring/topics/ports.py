"""What the topics of a led partition need of the broker around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from octopi.environment import Clock
from octopi.identifiers import BrokerId, PartitionId
from octopi.replication.effects import Answer
from octopi.ring.homes import Entry
from octopi.roles.broker.subscriptions.ports import LoadedStates
from octopi.roles.noted_events import NotedEvents
from octopi.wire import messages as m


class TopicLogs(Protocol):
    """The logs ``~topics`` of this broker's replicas."""

    async def load(self, partition: PartitionId) -> LoadedStates:
        """See `octopi.roles.broker.internal_logs.InternalLogs.load`."""

    def append_all(
        self,
        partition: PartitionId,
        entries: Sequence[tuple[str, Mapping[str, Any] | None]],
        done: Answer,
    ) -> None:
        """See `octopi.roles.broker.internal_logs.InternalLogs.append_all`."""


class TopicCluster(Protocol):
    """The cluster, as the topics of one partition see it."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    def events(self) -> NotedEvents:
        """What the broker decides and sees."""

    @property
    def partition_count(self) -> int:
        """The number of partitions for logs."""

    def replicas(self, partition: PartitionId) -> Collection[BrokerId]:
        """The replicas of a partition."""

    def handed_over(self, partition: PartitionId) -> Sequence[Entry] | None:
        """What the log ``~topics`` of *partition* has to say if a register handed the partition
        over, the last one of which says that this is all; None: none did.

        Raises:
          NotReadyError: if that is not known here.
        """

    def require_open(self, partition: PartitionId) -> None:
        """Refuse requests about topics while the cluster is handed over to registers.

        Raises:
          NotReadyError: if it is.
        """

    def new_id(self) -> str:
        """The id of a new topic."""

    def next_number(self) -> int:
        """Counts the orders of this broker's process, from 1."""

    async def order(self, order: m.HostTopic) -> None:
        """Have the leader of a partition carry *order* out.

        Raises:
          OctopiError: if it is not known to be carried out.
        """
