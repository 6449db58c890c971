"""The decisions of the controller, as data.

A decision has entries for the journal.  The caller makes all of them durable, or none, and applies
them.  Only then does it tell the decision to brokers and clients, and to observers as a step.  So
every decision is durable before it is told.
"""

from __future__ import annotations

import attrs

from octopi.coordination.admission import Admission, UnreportedAdoption
from octopi.coordination.election import LogLoss
from octopi.coordination.journal_entries import (
    Entry,
    EpochAnnounced,
    PartitionDecided,
    RelaySetDecided,
)
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.wire.messages import InSyncAltered, PartitionRecord, RelaySetRecord, TopicRecord


@attrs.frozen
class ClusterDecision:
    """A change of the cluster that no broker has to be told: the cluster is formed or gets more
    partitions, the register starts, a broker is removed for good or has removed a deleted topic."""

    entries: list[Entry]


@attrs.frozen
class EpochDecision:
    """An election begins.  The caller announces the next epoch to the replicas of the partition."""

    partition: PartitionId
    epoch: Epoch

    @property
    def entries(self) -> list[Entry]:
        """What makes it last."""
        return [EpochAnnounced(self.partition, self.epoch)]


@attrs.frozen
class LeaderDecision:
    """An election ends.  The caller sends the record to all brokers, and the partition's topics to
    the brokers that become replicas."""

    before: PartitionRecord
    record: PartitionRecord
    losses: list[LogLoss] | None
    """What is known to be lost if acknowledged records may be lost; None: no loss is possible."""
    ordered: bool
    """Whether an operator ordered it."""

    @property
    def entries(self) -> list[Entry]:
        """What makes it last."""
        return [PartitionDecided(self.record)]

    @property
    def joining(self) -> set[BrokerId]:
        """The brokers that become replicas by this decision."""
        return set(self.record.replicas) - set(self.before.replicas)


@attrs.frozen
class InSyncDecision:
    """The answer to a leader's request to change the in-sync set.  The caller sends the answer to
    the leader and, if the record has changed, the record to the other brokers."""

    answer: InSyncAltered
    """Contains the current record."""

    @property
    def entries(self) -> list[Entry]:
        """What makes it last."""
        return [PartitionDecided(self.answer.record)] if self.answer.accepted else []


@attrs.frozen
class TopicCreationDecision:
    """A topic is created.  The caller sends the partitions that were placed for it to all brokers,
    then the topic to the brokers that hold it."""

    topic: TopicRecord
    entries: list[Entry]

    @property
    def placed(self) -> list[PartitionRecord]:
        """The partitions that no broker held before."""
        return [one.record for one in self.entries if isinstance(one, PartitionDecided)]

    @property
    def relays(self) -> list[RelaySetRecord]:
        """The relay sets that were placed for it."""
        return [one.record for one in self.entries if isinstance(one, RelaySetDecided)]


@attrs.frozen
class TopicAlterationDecision:
    """The options of a topic are altered; without entries, they are as asked already.  The caller
    sends the topic to the brokers that hold it."""

    topic: TopicRecord
    """The topic with its new options."""
    entries: list[Entry]


@attrs.frozen
class GenerationDecision:
    """A topic gets another generation, or its generation under way is in another state.  The caller
    sends the partitions that were placed for it to all brokers, then the topic to those that hold
    it."""

    topic: TopicRecord
    entries: list[Entry]

    @property
    def placed(self) -> list[PartitionRecord]:
        """The partitions that no broker held before."""
        return [one.record for one in self.entries if isinstance(one, PartitionDecided)]


@attrs.frozen
class TopicDeletionDecision:
    """A topic is deleted.  The caller has the brokers that hold it remove it."""

    topic: TopicRecord
    entries: list[Entry]


@attrs.frozen
class RelaySetDecision:
    """A relay partition is to have other members, or they have brought that into force.  The caller
    tells the members, and those that were some before."""

    before: RelaySetRecord | None
    record: RelaySetRecord

    @property
    def entries(self) -> list[Entry]:
        """What makes it last."""
        return [RelaySetDecided(self.record)]


Decision = (
    Admission
    | UnreportedAdoption
    | ClusterDecision
    | EpochDecision
    | LeaderDecision
    | InSyncDecision
    | TopicCreationDecision
    | TopicAlterationDecision
    | GenerationDecision
    | TopicDeletionDecision
    | RelaySetDecision
)
