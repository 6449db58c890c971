"""What a register hands over to the brokers of its cluster, so that they decide without it
(`docs/decisions/0116-a-register-hands-its-cluster-over-by-one-entry.md`).

It is made of the register's journal, of which `HandedOver` is the last entry.  All brokers make the
same of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import (
    AgreedPartition,
    RegisteredIncarnation,
    encode_partition,
)
from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.consistent_hash import HashCircle
from octopi.coordination.journal_entries import ClusterFormed, Entry
from octopi.identifiers import BrokerId, InstanceId, PartitionId, TopicName
from octopi.limits import RECORD_ACCEPTORS_FIRST
from octopi.model import TopicRecord
from octopi.ring.cluster_record import ClusterRecord, PartitionKind, decode_cluster
from octopi.ring.first_partition import first_partition_value, instance_of, partition_of
from octopi.ring.homes import TAKEN_OVER, Entry as TopicEntry, HomeTopic, TopicState, home_of
from octopi.wire.agreement import NO_BALLOT, AgreedValue, ValueChosen
from octopi.wire.ring import RingNode

CLUSTER: Final = InstanceId(0)
"""The agreed value with the record of the cluster."""


def handed_over_entries(state: ClusterState) -> list[Entry]:
    """What brokers get of the journal of a register that has handed over: all but its secret."""
    return [
        attrs.evolve(one, secret="") if isinstance(one, ClusterFormed) else one
        for one in state.entries()
    ]


class HandOver:
    """The values and topics with which the brokers begin.

    A value that was handed over has change 1.  The one with change 0, which a broker that joins
    later computes (`first_partition_value`), has the same acceptors.  Acceptors count a value that
    was handed over as accepted before all ballots.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        """*entries*: see `handed_over_entries`.

        Raises:
          ValueError: if they are no journal of a register that has handed over.
        """
        state = ClusterState()
        try:
            for entry in entries:
                state.apply(entry)
        except (AssertionError, KeyError) as error:
            raise ValueError(f"the entries contradict each other ({error!r})") from error
        if state.handed_over is None:
            raise ValueError("the last entry is missing")
        self.record: Final[ClusterRecord] = decode_cluster(state.handed_over.record)
        self._state = state
        content = state.handed_over.record
        first = [one.identity for one in self._members[:RECORD_ACCEPTORS_FIRST]]
        first = first[: len(first) - (len(first) + 1) % 2]
        self._cluster = first_value(first, content)
        circle = HashCircle(self.record.home_count)
        self._homes: dict[PartitionId, list[TopicRecord]] = {}
        self._topics: dict[PartitionId, list[TopicRecord]] = {}
        for topic in state.topics_after("", state.topic_count):
            home = home_of(TopicName(topic.topic), circle)
            self._homes.setdefault(home, []).append(topic)
            for partition in topic.partitions:
                self._topics.setdefault(partition, []).append(topic)

    @property
    def _members(self) -> tuple[RingNode, ...]:
        return self.record.growths[0].members

    @property
    def attempt(self) -> str:
        """The try by which it was handed over; empty: it was not announced."""
        return next(reversed(self._state.hand_over_attempts), "")

    @property
    def cluster(self) -> ValueChosen:
        """The record of the cluster."""
        return ValueChosen(CLUSTER, NO_BALLOT, self._cluster)

    def node(self, broker: BrokerId) -> RingNode | None:
        """A broker, as the record names it; None: it is not among those that took over."""
        return next((one for one in self._members if one.broker == broker), None)

    def others(self, broker: BrokerId) -> tuple[RingNode, ...]:
        """All brokers but *broker*."""
        return tuple(one for one in self._members if one.broker != broker)

    def first(self, instance: InstanceId) -> AgreedValue | None:
        """The first value of *instance* that the acceptors of this cluster know; None: there is
        none."""
        if instance == CLUSTER:
            return self._cluster
        partition = partition_of(instance)
        if partition is None:
            return None
        told = self.chosen(partition)
        return first_partition_value(self.record, partition) if told is None else told.value

    def chosen(self, partition: PartitionId) -> ValueChosen | None:
        """What the register had decided about *partition*; None: nothing yet."""
        decided = self._state.partitions.get(partition)
        acceptors = self.record.first_acceptors(PartitionKind.LOG, partition)
        if decided is None or acceptors is None:
            return None
        topics = self._topics.get(partition, ())
        agreed = AgreedPartition(
            attrs.evolve(decided, seal=""),
            self._state.announced_epoch(partition),
            tuple(_incarnations(self._state, decided.replicas)),
            min((one.options.min_insync for one in topics), default=1),
        )
        made = first_value(acceptors, b"").with_content(encode_partition(agreed))
        return ValueChosen(instance_of(partition), NO_BALLOT, made)

    def topic_entries(self, partition: PartitionId) -> list[TopicEntry]:
        """What the log ``~topics`` of *partition* has to say of the topics that were handed over;
        the last entry says that this is all."""
        homes, topics = self._homes.get(partition, ()), self._topics.get(partition, ())
        entries = [self._home_topic(topic).entry for topic in homes]
        entries += (self._home_topic(topic).hosting for topic in topics)
        return [*entries, TAKEN_OVER]

    def _home_topic(self, topic: TopicRecord) -> HomeTopic:
        unsealed = attrs.evolve(topic, seal="")
        return HomeTopic(unsealed, TopicState.READY, self._state.owner(topic.topic))


def first_known(
    instance: InstanceId, record: ClusterRecord | None, hand_over: HandOver | None
) -> AgreedValue | None:
    """The first value of *instance*; None: it is accepted like any other one
    (`octopi.agreement.founding`), or not known yet, and then the acceptor is asked nothing.
    *hand_over*: what a register handed over."""
    if hand_over is not None and (told := hand_over.first(instance)) is not None:
        return told
    partition = partition_of(instance)
    if record is None or partition is None:
        return None
    return first_partition_value(record, partition)


def _incarnations(
    state: ClusterState, brokers: Iterable[BrokerId]
) -> Iterator[RegisteredIncarnation]:
    for broker in sorted(brokers):
        if (known := state.brokers.get(broker)) is not None:
            yield RegisteredIncarnation(broker, known.incarnation, known.nonce)
