"""How a partition's in-sync set changes.

The set decides which replicas may lead, so only two things change it: a request of the leader, if
the epoch and version in it are still the current ones (compare and set), and the register's
knowledge that the log of a member is not intact any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from octopi.identifiers import BrokerId, Epoch, Incarnation
from octopi.wire.messages import AlterInSync, PartitionRecord


def alter(
    record: PartitionRecord, request: AlterInSync, incarnations: Mapping[BrokerId, Incarnation]
) -> PartitionRecord | str:
    """The next record if *request* is valid, otherwise the reason why it is refused.

    *incarnations*: the registered incarnation of each broker.  Epochs, versions and incarnations
    only grow, so a refused request stays refused when it is repeated.
    """
    if request.epoch != record.epoch:
        return f"the epoch is {record.epoch}"
    if (request.leader, request.leader_incarnation) != (record.leader, record.leader_incarnation):
        return f"broker {record.leader}, incarnation {record.leader_incarnation}, leads"
    if request.version != record.version:
        return f"the version is {record.version}"
    before, after = set(record.in_sync), set(request.in_sync)
    joining = after - before
    if len(before ^ after) != 1 or record.leader not in after:
        return "one broker joins or leaves, and the leader stays"
    for broker in joining:
        if broker not in record.replicas:
            return f"broker {broker} is no replica"
        if incarnations.get(broker) != request.joiner_incarnation:
            return f"broker {broker} was restarted: its log may be shorter now"
    return _with_in_sync(record, after, set(record.lost) - after)


def without(record: PartitionRecord, broker: BrokerId) -> PartitionRecord:
    """The next record when *broker*'s logs are not intact."""
    return _with_in_sync(record, set(record.in_sync) - {broker}, {*record.lost, broker})


def newest_set(record: PartitionRecord) -> set[BrokerId]:
    """The brokers among which is one that holds all committed records, if any broker does: the
    in-sync set, or, if that is empty, the brokers that were in sync until they lost data."""
    return set(record.in_sync or record.lost or record.replicas)


def _with_in_sync(
    record: PartitionRecord, in_sync: set[BrokerId], lost: set[BrokerId]
) -> PartitionRecord:
    return attrs.evolve(
        record, version=record.version + 1, in_sync=sorted(in_sync), lost=sorted(lost)
    )


def reappointed(record: PartitionRecord, incarnation: Incarnation, epoch: Epoch) -> PartitionRecord:
    """The sole replica leads again, in a new epoch, with what it has."""
    return attrs.evolve(
        record,
        epoch=epoch,
        version=0,
        leader_incarnation=incarnation,
        in_sync=record.replicas,
        lost=[],
    )
