"""The port between a broker and its controller, which decides who leads and where replicas are.

A broker proposes, accepts and resigns over a `ControllerLink`, and the controller's decisions come
back as calls of `Decisions`.  So neither side knows how it reaches the other.  The broker joins the
cluster and leaves it over a `MemberLink`, which is a `ControllerLink` as well.  The register, over
`octopi.roles.broker.register_link`, is one controller; there may be others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import trio

from octopi.errors import StorageError
from octopi.identifiers import BrokerId, Incarnation, PartitionId, TopicId
from octopi.replication.effects import Refusal
from octopi.roles.broker.identity import BrokerIdentity
from octopi.wire import messages as m
from octopi.wire.messages import PartitionRecord, RelaySetRecord, TopicRecord


class ControllerLink(Protocol):
    """The way from a broker to its controller.

    What is sent while the controller is away is lost; the broker sends it again later.
    """

    @property
    def is_joined(self) -> bool:
        """Whether the controller counts this broker as a live member now."""

    def fence(self, partition: PartitionId) -> Refusal | None:
        """Why this broker may not serve clients in a partition now, although it leads or follows
        there; None: it may."""

    def propose(self, change: m.AlterInSync) -> None:
        """Propose another in-sync set for a partition that this broker leads."""

    def accept(self, acceptance: m.AcceptEpoch) -> None:
        """Promise to follow no leader of an older epoch."""

    def resign(self, resignation: m.Resign) -> None:
        """Report that this broker can't lead a partition any longer."""

    def report(self, status: m.BrokerStatus) -> None:
        """Report which troubles this broker has, and which are over."""

    def expired(self, topic_id: TopicId) -> None:
        """Report that a topic that this broker leads has expired, so that it gets deleted."""


class MemberLink(ControllerLink, Protocol):
    """The membership of a broker in its cluster, from joining to leaving.  `run` is one task of the
    broker's nursery."""

    @property
    def identity(self) -> BrokerIdentity:
        """The identity of this broker."""

    async def run(self, *, task_status: trio.TaskStatus[BrokerIdentity]) -> None:
        """Stay joined until cancelled, or until `leave`.  ``started`` when joined for the first
        time.

        Raises:
          RefusedError: if the controller refuses this broker for good.
          StorageError: if the disk fails to store this broker's identity.
        """

    async def hand_over(self) -> None:
        """Have the controller move the leaderships of this broker to others, for a limited time.
        Returns when that is done or can't be."""

    async def leave(self) -> None:
        """Say goodbye to the controller, and don't join again."""


class RelayOrders(Protocol):
    """What a register orders about topics in memory."""

    def reported(self) -> tuple[Sequence[RelaySetRecord], Sequence[TopicRecord]]:
        """The relay sets of which this broker is a member, and their topics, for joining."""

    def joined(self) -> None:
        """The register has let this broker in."""

    async def install(
        self,
        identity: BrokerIdentity,
        sets: Sequence[RelaySetRecord],
        topics: Sequence[TopicRecord],
        brokers: Iterable[m.BrokerInfo],
        wished: Iterable[m.WishedSequencer] = (),
    ) -> list[m.Undone]:
        """Store decisions about relay sets and their topics durably, then act on them; return what
        could not be done.  *identity*: this broker's, as the register knows it.  *wished*: who is
        to be the sequencer of partitions; it is not stored."""

    async def remove(self, topics: Iterable[m.RemovedTopic]) -> list[m.Undone]:
        """Forget deleted topics, as far as they are in memory; return what could not be done."""


class Decisions(Protocol):
    """What a controller asks of a broker, and what it orders."""

    def replica_reports(self) -> list[m.ReplicaReport]:
        """The state of each replica of this broker, for joining."""

    def decisions(self) -> list[PartitionRecord]:
        """The newest decision about each partition that this broker was sent, for joining."""

    def topics(self) -> list[TopicRecord]:
        """The topics that have logs on this broker, each once, for joining."""

    async def set_identity(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """Set this broker's id; harmless if it was set before.

        Raises:
          StorageError: if one of its replicas can't begin.
        """

    def joined(self) -> None:
        """The controller has let this incarnation of the broker in, and will send all its
        orders."""

    def announced(self, message: m.AnnounceEpoch) -> None:
        """A new epoch of a partition begins."""

    def in_sync_altered(self, message: m.InSyncAltered) -> None:
        """The answer to `ControllerLink.propose`."""

    def brokers_stopping(self, brokers: list[BrokerId]) -> None:
        """Exactly these brokers are about to stop."""

    async def prepare_hand_over(self, partition: PartitionId) -> None:
        """Do what must be done before another broker leads the partition."""

    async def seal_topic(self, order: m.SealTopic) -> m.TopicSealed:
        """Seal a log that this broker leads.

        Raises:
          RefusedError: if it is not known to be sealed; see `octopi.roles.broker.sealing`.
        """

    async def install_partitions(
        self, records: list[PartitionRecord], brokers: list[m.BrokerInfo]
    ) -> list[m.Undone]:
        """Store the decisions durably, then act on them; return what could not be done."""

    async def install_topics(self, topics: list[TopicRecord]) -> list[m.Undone]:
        """Make a log of each topic in each of its partitions that has a replica on this broker;
        return what could not be done."""

    async def remove_topics(self, topics: list[m.RemovedTopic]) -> list[m.Undone]:
        """Delete the logs of topics; return what could not be done."""

    def disk_refused(self, error: StorageError) -> None:
        """The disk failed to store something for the link: it is full, or has a fault."""
