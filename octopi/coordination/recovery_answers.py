"""What an operator is told of a partition that has to be recovered: by a register, and by brokers
without one."""

from __future__ import annotations

from collections.abc import Collection

from octopi.coordination.election import Election, is_sound
from octopi.identifiers import NO_EPOCH, BrokerId
from octopi.wire import messages as m


def led_answer(request: int, record: m.PartitionRecord) -> m.PartitionRecovery:
    """The answer if the partition has a leader, and nothing was ordered."""
    return m.PartitionRecovery(
        request,
        record.partition,
        leader=record.leader,
        epoch=record.epoch,
        recovered=False,
        candidate=record.leader,
        waits_for=[],
        replicas=[],
        lost=[],
        lost_log_count=0,
    )


def holding(
    broker: BrokerId,
    election: Election,
    topic_ids: Collection[str],
    *,
    is_live: bool,
    was_in_sync: bool,
    has_its_disk: bool = True,
) -> m.ReplicaHolding:
    """What a replica has, as it said when it accepted the epoch of *election*.  *topic_ids*: the
    topics whose logs count for what is missing."""
    accepted = election.accepts.get(broker)
    if accepted is None:
        return m.ReplicaHolding(broker, is_live, was_in_sync, False, False, NO_EPOCH, 0, 0, 0)
    missing = election.losses(broker, topic_ids)
    return m.ReplicaHolding(
        broker,
        is_live,
        was_in_sync,
        answered=True,
        sound=is_sound(accepted) and has_its_disk,
        log_epoch=accepted.log_epoch,
        log_count=len(accepted.ends),
        held_bytes=sum(log.end for log in accepted.ends),
        missing_bytes=sum(one.known_end - one.kept_end for one in missing),
    )
