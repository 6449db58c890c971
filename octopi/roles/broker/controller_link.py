"""The port between a broker and its controller, which decides who leads and where replicas are.

A broker proposes, accepts and resigns over a `ControllerLink`, and the controller's decisions come
back as calls of `Decisions`.  So neither side knows how the other is reached: the register, over
`octopi.roles.broker.register_link`, is one controller, and there may be others.
"""

from __future__ import annotations

from typing import Protocol

from octopi.errors import StorageError
from octopi.identifiers import BrokerId, Incarnation, PartitionId
from octopi.wire import messages as m
from octopi.wire.messages import PartitionRecord, TopicRecord


class ControllerLink(Protocol):
    """The way from a broker to its controller.

    What is sent while the controller is away is lost; the broker says it again later.
    """

    @property
    def is_joined(self) -> bool:
        """Whether the controller counts the broker in at the moment."""

    def propose(self, change: m.AlterInSync) -> None:
        """Ask for another in-sync set of a partition that this broker leads."""

    def accept(self, acceptance: m.AcceptEpoch) -> None:
        """Promise to follow no leader of an epoch before this one."""

    def resign(self, resignation: m.Resign) -> None:
        """Say that this broker can't go on to lead a partition."""

    def report(self, status: m.BrokerStatus) -> None:
        """Say what troubles this broker has, and which are over."""


class Decisions(Protocol):
    """What a controller may ask of a broker, and have it do."""

    def replica_reports(self) -> list[m.ReplicaReport]:
        """How the broker stands with its partitions, for joining."""

    def decisions(self) -> list[PartitionRecord]:
        """The newest decision about each partition that the broker heard of, for joining."""

    def topics(self) -> list[TopicRecord]:
        """The topics that have logs there, each once, for joining."""

    async def set_identity(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """The broker has this id; harmless if it was told before.

        Raises:
          StorageError: if a replica of it can't begin.
        """

    def joined(self) -> None:
        """The controller knows this incarnation of the broker, and orders all that it has to do."""

    def announced(self, message: m.AnnounceEpoch) -> None:
        """A new epoch of a partition begins."""

    def in_sync_altered(self, message: m.InSyncAltered) -> None:
        """The answer to `ControllerLink.propose`."""

    def brokers_stopping(self, brokers: list[BrokerId]) -> None:
        """These brokers and no others are about to stop."""

    async def prepare_hand_over(self, partition: PartitionId) -> None:
        """Do what has to be done before another broker leads the partition."""

    async def install_partitions(
        self, records: list[PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> list[m.Undone]:
        """Remember decisions, durably, then act on them; return what could not be done."""

    async def install_topics(self, topics: list[TopicRecord]) -> list[m.Undone]:
        """Have a log of each topic in each of its partitions that has a replica here; return what
        could not be done."""

    async def remove_topics(self, topics: list[m.RemovedTopic]) -> list[m.Undone]:
        """Delete the logs of topics; return what could not be done."""

    def disk_refused(self, error: StorageError) -> None:
        """The disk did not take what the link had to store: it is full, or fails."""
