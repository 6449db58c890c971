"""Whether a register can hand its cluster over to the brokers alone, and the record of the cluster
that begins with that."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from octopi.coordination.cluster_state import ClusterState
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId, ClusterId, DirectoryId, PartitionId
from octopi.limits import GROWTH_MEMBERS_MAX, HOMES_MAX, REPLICATED_ENTRY_BYTES_MAX
from octopi.ring.cluster_record import ClusterRecord, Growth, PartitionKind, encode_cluster
from octopi.ring.founders import founder_point
from octopi.wire.ring import RingNode

_ENTRY_MORE_BYTES = 100
"""What an entry has beside the record."""


def record_to_hand_over(
    state: ClusterState,
    replicas: int,
    directories: Mapping[BrokerId, DirectoryId],
    live: Collection[BrokerId],
    drained: Collection[BrokerId],
) -> ClusterRecord:
    """The first record of the cluster without a register.

    *replicas*: how many a partition has, if there are so many brokers.  *directories*: the numbers
    of the acceptors of brokers that are prepared.  *drained*: brokers that are to lead nothing.

    Raises:
      RefusedError: INVALID_OPTION, if something has to be done first; NO_BROKER without a cluster.
      NotReadyError: if the brokers have to finish something.
    """
    if not state.cluster:
        raise RefusedError("no broker has joined", Status.NO_BROKER)
    why = _brokers_fault(state, directories, live) or _content_fault(state)
    if why:
        raise RefusedError(why, Status.INVALID_OPTION)
    if state.removals:
        topic, removal = next((one.topic, one) for one in state.removals.values())
        brokers = ", ".join(map(str, sorted(removal.brokers)))
        raise NotReadyError(f"broker {brokers} has not removed the deleted topic {topic} yet")
    growth = Growth(
        PartitionKind.LOG,
        PartitionId(0),
        state.partition_count,
        replicas,
        tuple(_nodes(state, directories)),
    )
    record = ClusterRecord(
        ClusterId(state.cluster),
        min(state.partition_count, HOMES_MAX),
        (growth,),
        max(*state.brokers, *state.removed_brokers, 0),
        drained=tuple(sorted(drained)),
        gone=tuple(sorted(state.removed_brokers)),
        taken_over=state.partition_count,
    )
    size = len(encode_cluster(record)) + _ENTRY_MORE_BYTES
    if why := record.fault() or (
        f"the record of the cluster has {size} bytes, and an entry of the register "
        f"{REPLICATED_ENTRY_BYTES_MAX} at most: the addresses of the brokers are too long"
        if size > REPLICATED_ENTRY_BYTES_MAX
        else ""
    ):
        raise RefusedError(why, Status.INVALID_OPTION)
    return record


def _brokers_fault(
    state: ClusterState,
    directories: Mapping[BrokerId, DirectoryId],
    live: Collection[BrokerId],
) -> str:
    """Why these brokers can't take over; empty if they can."""
    if len(state.brokers) > GROWTH_MEMBERS_MAX:
        return (
            f"a register hands over to {GROWTH_MEMBERS_MAX} brokers at most, and there are "
            f"{len(state.brokers)}: remove some, and start them again afterwards"
        )
    for broker in sorted(state.brokers):
        if broker not in live:
            return (
                f"broker {broker} is away: start it, or remove it for good (`octopi-node brokers "
                f"remove {broker}`)"
            )
        if broker not in directories:
            return (
                f"broker {broker} is not prepared: start it with --join and the addresses of "
                "brokers beside --register"
            )
    return ""


def _content_fault(state: ClusterState) -> str:
    """Why partitions and topics can't go over; empty if they can."""
    topics = state.topics_after("", state.topic_count)
    if relay := next((one.topic for one in topics if one.is_relay), ""):
        return (
            f"topic {relay} is in memory, and brokers without a register keep no such topics: "
            f"delete it (`octopi-node topics delete {relay}`)"
        )
    if state.unfit_topics:
        topic_id = min(state.unfit_topics)
        return (
            f"topic {topic_id} has no legal name or id: `octopi-node topics delete --id {topic_id}`"
        )
    replaced = {one.broker for one in state.brokers.values() if one.replaced}
    for record in state.partitions.values():
        if not record.in_sync:
            return (
                f"no replica of partition {record.partition} is in sync: wait for its brokers, or "
                f"recover it (`octopi-node partitions recover {record.partition}`)"
            )
        if lost := replaced.intersection(record.lost):
            return (
                f"partition {record.partition} still counts on what broker {min(lost)} has lost: "
                f"have another broker lead it (`octopi-node brokers drain {record.leader}`)"
            )
    return ""


def _nodes(state: ClusterState, directories: Mapping[BrokerId, DirectoryId]) -> list[RingNode]:
    """The brokers, evenly spread on the ring in the order of their ids."""
    brokers, count = sorted(state.brokers), len(state.brokers)
    points = [founder_point(BrokerId(place), count) for place in range(1, count + 1)]
    return [
        RingNode(
            known.broker,
            directories[known.broker],
            point,
            known.host,
            known.address,
            known.incarnation,
        )
        for known, point in zip((state.brokers[one] for one in brokers), points, strict=True)
    ]
