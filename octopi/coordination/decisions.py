"""What the controller decides, as data: persist it first, then tell it.

A decision has entries of the journal.  The caller persists and applies them, all or none, and tells
the decision only when they are durable: to brokers and clients, and to observers as a step.  So
the order "durable before told" is the same for every decision, whatever makes entries durable.
"""

from __future__ import annotations

import attrs

from octopi.coordination.admission import Admission
from octopi.coordination.election import LogLoss
from octopi.coordination.journal_entries import Entry, EpochAnnounced, PartitionDecided
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.wire.messages import InSyncAltered, PartitionRecord, TopicRecord


@attrs.frozen
class ClusterDecision:
    """The cluster or one of its brokers changes, and no broker is told because of that: the cluster
    is formed or gets more partitions, the register starts, a broker is removed for good or has
    removed a deleted topic."""

    entries: list[Entry]


@attrs.frozen
class EpochDecision:
    """An election begins.  Tell the next epoch to the replicas of the partition."""

    partition: PartitionId
    epoch: Epoch

    @property
    def entries(self) -> list[Entry]:
        """What makes it last."""
        return [EpochAnnounced(self.partition, self.epoch)]


@attrs.frozen
class LeaderDecision:
    """An election ends.  Tell the record to all brokers, and the partition's topics to those that
    become replicas by it."""

    before: PartitionRecord
    record: PartitionRecord
    losses: list[LogLoss] | None
    """What is known to be lost by it, if acknowledged records may be lost; None: none are."""
    ordered: bool
    """Whether an operator ordered it."""

    @property
    def entries(self) -> list[Entry]:
        """What makes it last."""
        return [PartitionDecided(self.record)]

    @property
    def joining(self) -> set[BrokerId]:
        """The brokers that become replicas by it."""
        return set(self.record.replicas) - set(self.before.replicas)


@attrs.frozen
class InSyncDecision:
    """A leader's request for another in-sync set is judged.  Tell the answer to the leader, and
    the record to the others if it is another one."""

    answer: InSyncAltered
    """With the record that is in force."""

    @property
    def entries(self) -> list[Entry]:
        """What makes it last."""
        return [PartitionDecided(self.answer.record)] if self.answer.accepted else []


@attrs.frozen
class TopicCreationDecision:
    """A topic exists.  Tell the partitions that are placed for it to all brokers, then the topic to
    those that hold it."""

    topic: TopicRecord
    entries: list[Entry]

    @property
    def placed(self) -> list[PartitionRecord]:
        """The partitions that no broker held before."""
        return [one.record for one in self.entries if isinstance(one, PartitionDecided)]


@attrs.frozen
class TopicDeletionDecision:
    """A topic is gone.  Have the brokers that hold it remove it."""

    topic: TopicRecord
    entries: list[Entry]


Decision = (
    Admission
    | ClusterDecision
    | EpochDecision
    | LeaderDecision
    | InSyncDecision
    | TopicCreationDecision
    | TopicDeletionDecision
)
