"""What the register decides: who is a member, who leads, where topics live.

Pure.  A question to it is answered by a `Decision`: journal entries that must be durable
before anyone hears of them.  The caller appends them, then calls `apply`; nothing changes
in between, so decisions are taken one after another.  Liveness is what the caller
observed on the membership connections (`joined`, `left`).
"""

from __future__ import annotations

import attrs

from octopi.errors import RefusedError, Status, TopicExistsError, UnknownTopicError
from octopi.identifiers import topic_name
from octopi.limits import PARTITIONS_PER_TOPIC_MAX, TOPIC_COUNT_MAX
from octopi.membership.cluster_state import ClusterState
from octopi.membership.consistent_hash import HashCircle
from octopi.membership.entries import (
    BrokerRegistered,
    ClusterFormed,
    Entry,
    PartitionDecided,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from octopi.wire.messages import (
    BrokerInfo,
    Inventory,
    PartitionInfo,
    PartitionRecord,
    TopicInfo,
    TopicOptions,
    TopicRecord,
)


@attrs.frozen
class Admission:
    """A broker may join, as soon as the entries are durable."""

    broker: int
    entries: list[Entry]
    conflicts: list[str]
    """What the broker holds and the cluster does not know as its own, in words."""


class Registrar:
    """Decides over a `ClusterState`.

    Invariants: every broker that is live is registered with the incarnation that is live;
    no record appoints an incarnation that was never registered.
    """

    def __init__(self, partition_count: int) -> None:
        """*partition_count* is what a new cluster gets."""
        self.state = ClusterState()
        self._partition_count = partition_count
        self._circle: HashCircle | None = None
        self._live: dict[int, int] = {}
        self._serving: set[int] = set()
        self._turn = 0

    def apply(self, entry: Entry) -> None:
        """Take note of a durable *entry*."""
        self.state.apply(entry)

    # --- brokers ---------------------------------------------------------------------

    def form(self, cluster: str) -> list[Entry]:
        """Begin a new cluster, or take up an old one of which brokers told."""
        assert not self.state.cluster, "a cluster is formed once"
        return [ClusterFormed(cluster, self._partition_count)]

    def admit(
        self,
        *,
        cluster: str,
        broker: int | None,
        incarnation: int,
        address: str,
        inventory: list[Inventory],
    ) -> Admission:
        """A broker asks to join the formed cluster.

        It leads again what it led, in a new epoch if it was restarted.  What it holds and
        the register doesn't know (the register's disk was lost) is taken over.

        Raises:
          RefusedError: WRONG_CLUSTER, DUPLICATE_BROKER or BROKER_FENCED.
        """
        state = self.state
        if cluster not in {"", state.cluster}:
            raise RefusedError(
                f"the broker belongs to cluster {cluster}, this register keeps {state.cluster}",
                Status.WRONG_CLUSTER,
            )
        if broker is None:
            broker = self._next_broker()
        if broker in self._live:
            raise RefusedError(
                f"a live broker has the id {broker} already, at {state.brokers[broker].address}",
                Status.DUPLICATE_BROKER,
            )
        known = state.brokers.get(broker)
        if known is not None and incarnation < known.incarnation:
            raise RefusedError(
                f"broker {broker} was here with incarnation {known.incarnation}; {incarnation} is "
                "an older copy of its data directory",
                Status.BROKER_FENCED,
            )
        entries: list[Entry] = []
        registration = BrokerRegistered(broker, incarnation, address)
        if registration != known:
            entries.append(registration)
        partitions, conflicts = self._take_over(inventory, entries)
        entries += (
            PartitionDecided(_reappointed(record, incarnation))
            for record in partitions.values()
            if record.leader == broker and record.leader_incarnation != incarnation
        )
        return Admission(broker, entries, conflicts)

    def _next_broker(self) -> int:
        """An id that no broker has, nor any that is only known as somebody's replica."""
        replicas = (one for record in self.state.partitions.values() for one in record.replicas)
        return max([0, *self.state.brokers, *replicas]) + 1

    def _take_over(
        self, inventory: list[Inventory], entries: list[Entry]
    ) -> tuple[dict[int, PartitionRecord], list[str]]:
        """Add to *entries* what a broker knows better; return the partitions as they are then."""
        partitions = dict(self.state.partitions)
        conflicts: list[str] = []
        for record in (one for page in inventory for one in page.partitions):
            mine = partitions.get(record.partition)
            if mine is None or (mine.epoch, mine.version) < (record.epoch, record.version):
                partitions[record.partition] = record
                entries.append(PartitionDecided(record))
        last = max(partitions, default=-1)
        if last >= self.state.partition_count:
            entries.append(ClusterFormed(self.state.cluster, last + 1))
        taken: set[str] = set()
        for topic in (one for page in inventory for one in page.topics):
            mine_topic = self.state.topic(topic.topic)
            if mine_topic is None:
                known = topic.topic_id in self.state.removals or topic.topic in taken
                if not known and all(one in partitions for one in topic.partitions):
                    taken.add(topic.topic)
                    entries.append(TopicCreated(topic))
            elif (
                mine_topic.topic_id != topic.topic_id and topic.topic_id not in self.state.removals
            ):
                conflicts.append(
                    f"topic {topic.topic} exists here as {mine_topic.topic_id}, the broker holds "
                    f"records of {topic.topic_id}: they are kept, but not served"
                )
        return partitions, conflicts

    def joined(self, broker: int, incarnation: int) -> None:
        """The membership connection of an admitted broker is up."""
        self._live[broker] = incarnation

    def left(self, broker: int, incarnation: int) -> None:
        """That connection ended."""
        if self._live.get(broker) == incarnation:
            del self._live[broker]
            self._serving.discard(broker)

    def serves(self, broker: int, incarnation: int) -> None:
        """A joined broker has confirmed what it was told: clients may be sent to it."""
        if self._live.get(broker) == incarnation:
            self._serving.add(broker)

    def is_live(self, broker: int) -> bool:
        """Whether the broker's membership connection is up."""
        return broker in self._live

    # --- topics ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        topic_id: str,
        *,
        partition_count: int = 1,
        partitions: list[int] | None = None,
        options: TopicOptions,
    ) -> tuple[TopicRecord, list[Entry]]:
        """Create a topic on partitions whose leaders are live, placing partitions that no
        broker has yet.

        Raises:
          InvalidTopicError: if *name* is none.
          TopicExistsError: if there is such a topic.
          RefusedError: INVALID_OPTION, TOO_MANY, or (retryable) NO_BROKER.
        """
        checked = topic_name(name)
        _check_options(options)
        if self.state.topic(checked) is not None:
            raise TopicExistsError(f"topic {name} exists already")
        if self.state.topic_count >= TOPIC_COUNT_MAX:
            raise RefusedError(f"a cluster has at most {TOPIC_COUNT_MAX} topics", Status.TOO_MANY)
        total = self.state.partition_count
        chosen: list[int]
        if partitions is not None:
            chosen = partitions
            if (
                not chosen
                or len(set(chosen)) < len(chosen)
                or not all(0 <= one < total for one in chosen)
            ):
                raise RefusedError(
                    f"partitions are different numbers from 0 to {total - 1}", Status.INVALID_OPTION
                )
        else:
            most = min(total, PARTITIONS_PER_TOPIC_MAX)
            if not 1 <= partition_count <= most:
                raise RefusedError(
                    f"a topic has 1 to {most} partitions here, not {partition_count}",
                    Status.INVALID_OPTION,
                )
            if self._circle is None or self._circle.partition_count != total:
                self._circle = HashCircle(total)
            chosen = list(self._circle.partitions(checked, partition_count))
        entries: list[Entry] = [PartitionDecided(record) for record in self._place(chosen)]
        topic = TopicRecord(checked, topic_id, chosen, options)
        entries.append(TopicCreated(topic))
        return topic, entries

    def _place(self, partitions: list[int]) -> list[PartitionRecord]:
        """Records for those of *partitions* that have none, leaders spread evenly."""
        led = dict.fromkeys(sorted(self._live), 0)
        for record in self.state.partitions.values():
            if record.leader in led:
                led[record.leader] += 1
        placed: list[PartitionRecord] = []
        for partition in partitions:
            known = self.state.partitions.get(partition)
            if known is not None:
                if known.leader not in self._live:
                    raise RefusedError(
                        f"partition {partition} lies on broker {known.leader}, which is away",
                        Status.NO_BROKER,
                    )
                continue
            if not led:
                raise RefusedError("no broker has joined", Status.NO_BROKER)
            leader = min(led, key=lambda broker: (led[broker], broker))
            led[leader] += 1
            placed.append(
                PartitionRecord(
                    partition=partition,
                    epoch=1,
                    version=0,
                    leader=leader,
                    leader_incarnation=self._live[leader],
                    replicas=[leader],
                    in_sync=[leader],
                )
            )
        return placed

    def delete_topic(self, name: str) -> list[Entry]:
        """Delete a topic.

        Raises:
          UnknownTopicError: if there is none.
        """
        record = self.require_topic(name)
        brokers = {
            broker
            for partition in record.partitions
            for broker in self.state.partitions[partition].replicas
        }
        return [TopicDeleted(record.topic, record.topic_id, sorted(brokers))]

    def removed(self, topic_id: str, broker: int) -> list[Entry]:
        """A broker confirmed that it has removed a deleted topic."""
        return [TopicRemoved(topic_id, broker)]

    def require_topic(self, name: str) -> TopicRecord:
        """The topic of that name.

        Raises:
          InvalidTopicError, UnknownTopicError.
        """
        record = self.state.topic(topic_name(name))
        if record is None:
            raise UnknownTopicError(f"there is no topic {name}")
        return record

    # --- questions -------------------------------------------------------------------

    def describe_topic(self, record: TopicRecord) -> TopicInfo:
        """Where *record*'s partitions are now."""
        return TopicInfo(
            record.topic,
            record.topic_id,
            [self.describe_partition(self.state.partitions[one]) for one in record.partitions],
            record.options,
        )

    def describe_partition(self, record: PartitionRecord) -> PartitionInfo:
        """Where a partition is now; each asker is sent to the next of its readers."""
        leads = (
            record.leader in self._serving
            and self._live[record.leader] == record.leader_incarnation
        )
        readers = [
            self.state.brokers[broker].address
            for broker in record.in_sync
            if broker in self._serving
        ]
        if len(readers) > 1:
            self._turn += 1
            turn = self._turn % len(readers)
            readers = readers[turn:] + readers[:turn]
        return PartitionInfo(
            partition=record.partition,
            epoch=record.epoch,
            leader=record.leader if leads else None,
            leader_address=self.state.brokers[record.leader].address if leads else "",
            replicas=record.replicas,
            in_sync=record.in_sync,
            readers=readers,
        )

    def describe_brokers(self) -> list[BrokerInfo]:
        """All brokers that ever registered, by id."""
        led: dict[int, int] = {}
        for record in self.state.partitions.values():
            led[record.leader] = led.get(record.leader, 0) + 1
        return [
            BrokerInfo(
                broker, known.address, known.incarnation, self.is_live(broker), led.get(broker, 0)
            )
            for broker, known in sorted(self.state.brokers.items())
        ]

    def topics_of(self, broker: int) -> list[TopicRecord]:
        """The topics that *broker* keeps logs for."""
        return self.state.topics_on(
            {one.partition for one in self.state.partitions.values() if broker in one.replicas}
        )

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        self.state.check_invariants()
        assert self._serving <= self._live.keys()
        for broker, incarnation in self._live.items():
            assert self.state.brokers[broker].incarnation == incarnation
        for record in self.state.partitions.values():
            known = self.state.brokers.get(record.leader)
            assert known is None or record.leader_incarnation <= known.incarnation


def _reappointed(record: PartitionRecord, incarnation: int) -> PartitionRecord:
    """The sole replica leads again, in a new epoch."""
    return attrs.evolve(record, epoch=record.epoch + 1, version=0, leader_incarnation=incarnation)


def _check_options(options: TopicOptions) -> None:
    for name, value, least in (
        ("retention_ms", options.retention_ms, 1),
        ("retention_bytes", options.retention_bytes, 1),
        ("segment_bytes", options.segment_bytes, 4096),
    ):
        if value is not None and value < least:
            raise RefusedError(f"{name} is at least {least}, not {value}", Status.INVALID_OPTION)
