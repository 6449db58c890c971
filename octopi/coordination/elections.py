"""The register's decisions about the records of partitions.

Each answer is a decision (`octopi.coordination.decisions`), which must be durable before it is
told.  `octopi.coordination.election` describes one election, `octopi.coordination.in_sync_changes`
the changes of the in-sync set.  This module connects them with brokers, incarnations and topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.decisions import EpochDecision, InSyncDecision, LeaderDecision
from octopi.coordination.election import NO_GOAL, Election, ElectionGoal, LogLoss, is_sound
from octopi.coordination.health import Health
from octopi.coordination.in_sync_changes import alter, newest_set
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    Entry,
    EpochAnnounced,
    PartitionDecided,
)
from octopi.errors import NotReadyError
from octopi.identifiers import INTERNAL_LOGS, BrokerId, Epoch, Incarnation, PartitionId
from octopi.wire.messages import (
    AcceptEpoch,
    AlterInSync,
    AnnounceEpoch,
    InSyncAltered,
    PartitionRecord,
)


class Elections:
    """The leaders and in-sync sets of all partitions.

    Invariant: a change is under way for exactly the partitions whose announced epoch is not
    decided.
    """

    def __init__(
        self,
        state: ClusterState,
        live: Mapping[BrokerId, Incarnation],
        is_doubted: Callable[[PartitionId], bool] = lambda partition: False,
        *,
        health: Health | None = None,
    ) -> None:
        """*live* is the caller's: broker -> incarnation.  *is_doubted* says for which partitions
        the record may not be the newest; nothing is decided about these.  *health* says which
        replicas take records; None: all do."""
        self._state = state
        self._live = live
        self._is_doubted = is_doubted
        self._health = health
        self.changes: dict[PartitionId, Election] = {}

    def apply(self, entry: Entry) -> None:
        """Apply an *entry* of the journal that was applied to the state already."""
        match entry:
            case BrokerRegistered(broker):
                # It was restarted: acceptances of its earlier incarnation no longer count.
                for one in self.changes.values():
                    one.forget(broker)
            case EpochAnnounced(partition, epoch):
                if epoch > self._state.partitions[partition].epoch:
                    self.changes[partition] = Election(epoch)
            case PartitionDecided(record):
                change = self.changes.get(record.partition)
                if change is not None and change.epoch <= record.epoch:
                    del self.changes[record.partition]

    # --- changing the leader ---------------------------------------------------------

    def leaderless(self) -> list[PartitionId]:
        """Partitions with several replicas whose leader is gone or whose in-sync set is empty, and
        for which no election is under way."""
        return sorted(
            record.partition
            for record in self._state.partitions.values()
            if len(record.replicas) > 1
            and (not record.in_sync or self._live.get(record.leader) != record.leader_incarnation)
            and record.partition not in self.changes
            and not self._is_doubted(record.partition)
        )

    def stranded(self) -> list[PartitionId]:
        """Partitions whose leader is live but takes no records while another in-sync replica does,
        and for which no election is under way."""
        health = self._health
        if health is None:
            return []
        return sorted(
            record.partition
            for record in self._state.partitions.values()
            if self._live.get(record.leader) == record.leader_incarnation
            and health.trouble(record.leader, record.partition)
            and self.has_successor(record.partition)
            and record.partition not in self.changes
            and not self._is_doubted(record.partition)
        )

    def has_successor(self, partition: PartitionId) -> bool:
        """Whether another in-sync replica than the leader's takes records."""
        record = self._state.partitions[partition]
        return any(
            one != record.leader and one in self._live and self._serves(one, partition)
            for one in record.in_sync
        )

    def _serves(self, broker: BrokerId, partition: PartitionId) -> bool:
        return self._health is None or self._health.serves(broker, partition)

    def begin(self, partition: PartitionId) -> EpochDecision:
        """Begin an election, or begin it again.  The caller then sends `announcement` to the
        replicas.

        Raises:
          NotReadyError: while the partition's record is not known to be the newest.
        """
        if self._is_doubted(partition):
            raise NotReadyError(
                f"partition {partition}: a broker was told something newer than this register "
                "knows, and not all of its replicas have reported since"
            )
        return EpochDecision(partition, Epoch(self._state.announced_epoch(partition) + 1))

    def announcement(self, partition: PartitionId) -> AnnounceEpoch | None:
        """The message to the replicas, also to those that join later; None: no election is under
        way."""
        change = self.changes.get(partition)
        return AnnounceEpoch(partition, change.epoch) if change is not None else None

    def accept(self, message: AcceptEpoch) -> AcceptEpoch | None:
        """A replica accepted, or sent a further page of its acceptance.  Return the whole
        acceptance once it is complete and counts.  It counts if the sender is a replica, with the
        registered incarnation."""
        change = self.changes.get(message.partition)
        known = self._state.brokers.get(message.broker)
        if change is None or known is None or known.incarnation != message.incarnation:
            return None
        if message.broker not in self._state.partitions[message.partition].replicas:
            return None
        return change.accept(message)

    def is_complete(self, partition: PartitionId, *, expects_all: bool = False) -> bool:
        """Whether no acceptance is missing; *expects_all*: also none of brokers that are away."""
        change = self.changes.get(partition)
        record = self._state.partitions[partition]
        expected = record.replicas if expects_all else self._live
        return change is not None and change.is_complete(record, expected)

    def has_former_leader(self, partition: PartitionId) -> bool:
        """Whether the last leader has accepted, in the incarnation in which it led."""
        change, record = self.changes.get(partition), self._state.partitions[partition]
        accept = change.accepts.get(record.leader) if change is not None else None
        return accept is not None and accept.incarnation == record.leader_incarnation

    def decidable(self) -> list[PartitionId]:
        """Partitions whose election can be decided as soon as a live in-sync replica has
        accepted."""
        partitions = self._state.partitions
        return [one for one in self.changes if self._live.keys() & partitions[one].in_sync]

    def conclude(
        self, partition: PartitionId, *, goal: ElectionGoal = NO_GOAL, ordered: bool = False
    ) -> LeaderDecision | None:
        """Decide the leader if that is possible now; None: it isn't.

        *ordered*: an operator gives up the records that only replicas hold that are away or
        damaged.
        """
        change = self.changes.get(partition)
        if change is None or not change.accepts or self._is_doubted(partition):
            return None
        record = self._state.partitions[partition]
        missing = change.missing(record, self._live)
        if missing and not ordered:
            return None
        leaderships = Counter(one.leader for one in self._state.partitions.values())
        topics = self.log_ids(partition)
        if record.in_sync and not missing:
            decided = change.decide(
                record,
                self._live.keys(),
                leaderships,
                topics=topics,
                min_insync=self._state.min_insync(partition),
                goal=goal,
                serves=lambda broker: self._serves(broker, partition),
            )
            if not ordered or (decided is not None and is_sound(change.accepts[decided.leader])):
                return self._decision(decided, ordered=ordered)
        brokers = self._state.brokers.values()
        decided = change.recover(
            record,
            self._live.keys(),
            leaderships,
            topics=topics,
            replaced={one.broker for one in brokers if one.replaced},
            ordered=ordered,
        )
        return self._decision(decided, ordered=ordered)

    def begin_empty(self, partition: PartitionId, broker: BrokerId) -> LeaderDecision | None:
        """Conclude the election of a partition that has no replica left: the partition begins
        again, empty, in a new epoch, on the live *broker* as its only replica.  If a former replica
        comes back, it is no longer a replica.

        None if no election is under way, if a broker with a replica is live, or if the partition's
        record may not be the newest.
        """
        change, record = self.changes.get(partition), self._state.partitions[partition]
        if change is None or self._is_doubted(partition) or self._live.keys() & record.replicas:
            return None
        begun = attrs.evolve(
            record,
            epoch=change.epoch,
            version=0,
            leader=broker,
            leader_incarnation=self._live[broker],
            replicas=[broker],
            in_sync=[broker],
            lost=[],
            recovered_epoch=change.epoch,
        )
        return self._decision(begun, ordered=True)

    def _decision(self, record: PartitionRecord | None, *, ordered: bool) -> LeaderDecision | None:
        if record is None:
            return None
        before = self._state.partitions[record.partition]
        is_loss = record.recovered_epoch > before.recovered_epoch
        return LeaderDecision(before, record, self.losses(record) if is_loss else None, ordered)

    def log_ids(self, partition: PartitionId) -> list[str]:
        """The ids of the logs in *partition*: those of its topics, and the internal logs."""
        return [*(one.topic_id for one in self._state.topics_on({partition})), *INTERNAL_LOGS]

    def losses(self, decided: PartitionRecord) -> list[LogLoss]:
        """The known losses if the record *decided* concludes the election."""
        change = self.changes[decided.partition]
        return change.losses(decided.leader, self.log_ids(decided.partition))

    def waits_for(self, partition: PartitionId) -> list[BrokerId]:
        """The brokers that must come back before a partition without a leader gets one, unless an
        operator orders an election without them.  If the list is empty, the partition has a leader
        or will soon have one, or it is stuck (`is_stuck`)."""
        change, record = self.changes.get(partition), self._state.partitions[partition]
        if change is not None:
            return change.missing(record, self._live)
        members = newest_set(record)
        away = sorted(members - self._live.keys())
        return away if not record.in_sync or len(away) == len(members) else []

    def is_stuck(self, partition: PartitionId) -> bool:
        """Whether waiting doesn't help: all replicas that were in sync until they lost data have
        accepted, and each lacks something that it had on its device."""
        change, record = self.changes.get(partition), self._state.partitions[partition]
        return (
            change is not None
            and not record.in_sync
            and not change.missing(record, self._live)
            and self.conclude(partition) is None
        )

    # --- changing the in-sync set ----------------------------------------------------

    def alter(self, request: AlterInSync) -> InSyncDecision | None:
        """Decide about a leader's request.  None, so no answer is sent, if the partition isn't
        known yet or its record may not be the newest."""
        record = self._state.partitions.get(request.partition)
        if record is None or self._is_doubted(request.partition):
            return None
        incarnations = {one.broker: one.incarnation for one in self._state.brokers.values()}
        altered = alter(record, request, incarnations)
        if isinstance(altered, str):
            return InSyncDecision(InSyncAltered(request, False, record))
        return InSyncDecision(InSyncAltered(request, True, altered))

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for partition, record in self._state.partitions.items():
            announced = self._state.announced_epoch(partition)
            change = self.changes.get(partition)
            assert (change is not None) == (announced > record.epoch)
            assert change is None or change.epoch == announced
