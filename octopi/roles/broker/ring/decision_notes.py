"""Notes as events what this broker of a ring decides about partitions, and where it leads."""

from __future__ import annotations

from octopi.coordination.agreed_partition import RegisteredIncarnation
from octopi.identifiers import Epoch, PartitionId
from octopi.model import PartitionRecord
from octopi.ring.partition_effects import LeaderDecided
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.noted_events import NotedEvents


class DecisionNotes:
    """The notes of one process."""

    def __init__(
        self, me: RegisteredIncarnation, replicas: ReplicaManager, events: NotedEvents
    ) -> None:
        self._me = me
        self._replicas = replicas
        self._events = events
        self._noted: dict[PartitionId, tuple[Epoch, int]] = {}
        """The newest records by which this process leads: epochs and versions."""

    def in_force(self, record: PartitionRecord) -> None:
        """*record* is in force: who leads by it notes that, as nobody else surely learns of it."""
        if (record.leader, record.leader_incarnation) != (self._me.broker, self._me.incarnation):
            return
        before = self._noted.get(record.partition, (Epoch(1), 0))
        if (record.epoch, record.version) <= before:
            return
        self._noted[record.partition] = record.epoch, record.version
        if record.epoch > before[0]:
            self._events.leader_decided(record)
        else:
            self._events.in_sync_changed(record)

    def decided(self, decided: LeaderDecided) -> None:
        """This broker's election was decided as it proposed: say what may be lost by that."""
        record = decided.record
        if record.recovered_epoch != record.epoch:
            return
        names = {one.topic.topic_id: one.topic.topic for one in self._replicas.store}
        losses = [
            f"{names.get(one.topic_id, one.topic_id)} from {one.kept_end} to {one.known_end}"
            for one in decided.losses
        ]
        self._events.recovered(record, losses, ordered=decided.was_ordered)
