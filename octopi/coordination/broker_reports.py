"""What a register believes of what a broker reports when it joins.

A broker reports the newest decisions that it was sent, the epochs that it promised, and the topics
that it holds.  The register's own journal takes precedence.  The register believes a report of
something that the journal lacks in two cases only:

- A decision or topic carries a valid seal (`octopi.coordination.seals`).  Then this register has
  decided it, and the journal, which lacks it, is an older copy of the register's disk.
- The register began with an empty journal (`ClusterState.was_taken_over`), and the report is about
  a partition that it doesn't know, or about options of a topic that were decided before.  Then
  nothing can be checked, and brokers are trusted.

Everything else is refused with the reason, and changes nothing: the journal is whole, so no
register decided it.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.seals import Seals
from octopi.identifiers import NO_EPOCH, BrokerId, topic_name_fault
from octopi.limits import LIST_COUNT_MAX, TOLD_MAX
from octopi.wire.messages import Inventory, PartitionRecord, ReplicaReport, TopicRecord

_DOUBTS_MAX = 20
"""The number of refused reports of one broker that are logged one by one."""


def fault_of(inventory: Iterable[Inventory]) -> str:
    """The first thing in the pages of *inventory* that no register ever decides; empty: none.

    If it were journaled, every later start would fail.
    """
    for page in inventory:
        for record in page.partitions:
            if why := _fault_of_partition(record):
                return f"partition {record.partition}: {why}"
        for topic in page.topics:
            if why := _fault_of_topic(topic):
                return f"topic {topic.topic!r}: {why}"
        for standing in page.standings:
            if standing.promised > TOLD_MAX:
                return f"partition {standing.partition}: epoch {standing.promised} was promised"
    return ""


def _fault_of_partition(record: PartitionRecord) -> str:
    if record.partition >= LIST_COUNT_MAX:
        return f"a cluster has at most {LIST_COUNT_MAX} partitions"
    if not 1 <= record.epoch <= TOLD_MAX or record.version > TOLD_MAX:
        return f"epoch {record.epoch}, version {record.version}"
    return record.fault()


def _fault_of_topic(topic: TopicRecord) -> str:
    if why := topic_name_fault(topic.topic):
        return why
    if max(topic.log_partitions, default=0) >= LIST_COUNT_MAX:
        return "it names partitions that can't be"
    if max(topic.alteration) > TOLD_MAX:
        return f"generation {topic.generation}, version {topic.version} of its options"
    return topic.fault()


@attrs.define
class AcceptedReport:
    """The part of one broker's report that the register believes."""

    records: list[PartitionRecord] = attrs.field(factory=list)
    standings: list[ReplicaReport] = attrs.field(factory=list)
    topics: list[TopicRecord] = attrs.field(factory=list)
    unserved: list[TopicRecord] = attrs.field(factory=list)
    """Topics that the register never made, or has deleted and forgotten."""
    proofs: list[str] = attrs.field(factory=list)
    """Sealed decisions that the journal lacks, in words."""
    doubts: list[str] = attrs.field(factory=list)
    """What is not believed, in words."""

    def shortened(self) -> list[str]:
        """The first `_DOUBTS_MAX` of `doubts`, and a line with the number of the others."""
        more = len(self.doubts) - _DOUBTS_MAX
        return self.doubts[:_DOUBTS_MAX] + ([f"and {more} more of that kind"] if more > 0 else [])


def believe(
    state: ClusterState, broker: BrokerId, inventory: list[Inventory], *, is_proven: bool
) -> AcceptedReport:
    """What a register with *state* believes of the report of *broker*.  *is_proven*: the broker has
    shown that the id is its own."""
    seals, believed = Seals(state.secret), AcceptedReport()
    replicas = {one.partition: set(one.replicas) for one in state.partitions.values()}
    for record in (one for page in inventory for one in page.partitions):
        known = state.partitions.get(record.partition)
        told = f"partition {record.partition} in epoch {record.epoch}, version {record.version}"
        if known is not None and _number(record) <= _number(known):
            pass
        elif seals.knows_partition(record):
            believed.proofs.append(told)
        elif known is not None or not state.was_taken_over:
            believed.doubts.append(
                f"it reports a decision that this register never took: {told}, led by broker "
                f"{record.leader}"
            )
            continue
        believed.records.append(record)
        replicas.setdefault(record.partition, set()).update(record.replicas)
    for standing in (one for page in inventory for one in page.standings):
        partition, promised = standing.partition, standing.promised
        is_unknown = partition not in state.partitions and state.was_taken_over
        is_replica = is_proven and broker in replicas.get(partition, ())
        if promised > state.announced_epoch(partition) and not (is_unknown or is_replica):
            believed.doubts.append(
                f"it has promised epoch {promised} of partition {partition}, of which it is no "
                f"replica, and this register has announced none beyond "
                f"{state.announced_epoch(partition)}"
            )
            standing = attrs.evolve(standing, promised=NO_EPOCH)
        believed.standings.append(standing)
    for topic in (one for page in inventory for one in page.topics):
        known_topic = state.topic(topic.topic)
        if topic.topic_id in state.removals:
            pass
        elif known_topic is not None:
            if topic.topic_id == known_topic.topic_id and topic.alteration > known_topic.alteration:
                topic = _believe_options(state, seals, topic, known_topic, believed)
        elif seals.knows_topic(topic):
            believed.proofs.append(f"topic {topic.topic}")
        elif not state.was_taken_over or state.partitions.keys() >= set(topic.log_partitions):
            believed.unserved.append(topic)
            believed.doubts.append(
                f"it holds records of topic {topic.topic}, id {topic.topic_id}, which this "
                "register never made, or has deleted: they are kept, but not served"
            )
            continue
        believed.topics.append(topic)
    return believed


def _believe_options(
    state: ClusterState,
    seals: Seals,
    topic: TopicRecord,
    known: TopicRecord,
    believed: AcceptedReport,
) -> TopicRecord:
    """Return *topic*, whose options are newer than those of the topic that is *known*, or *known*
    if that isn't believed."""
    told = f"options of topic {topic.topic}, altered in generation {topic.generation}"
    if seals.knows_topic(topic):
        believed.proofs.append(told)
    elif not state.was_taken_over or topic.generation >= min(state.lives):
        believed.doubts.append(f"it reports what this register never decided: {told}")
        return known
    return topic


def _number(record: PartitionRecord) -> tuple[int, int]:
    return record.epoch, record.version
