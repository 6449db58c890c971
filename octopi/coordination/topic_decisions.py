"""Which topics there are: what the controller decides about creating and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from functools import partial
from typing import Final

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.consistent_hash import HashCircle
from octopi.coordination.decisions import (
    TopicAlterationDecision,
    TopicCreationDecision,
    TopicDeletionDecision,
)
from octopi.coordination.health import Health
from octopi.coordination.journal_entries import (
    Entry,
    PartitionDecided,
    RelaySetDecided,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from octopi.coordination.placement import NO_LOADS, place
from octopi.coordination.rebuild import Rebuild
from octopi.coordination.relay_sets import RelayBrokers, new_set
from octopi.coordination.topic_placement import TopicPlacement, drawn
from octopi.coordination.topic_rules import check_options, chosen_partitions
from octopi.coordination.unserved_topics import UnservedTopics
from octopi.errors import (
    NotReadyError,
    RefusedError,
    Status,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.identifiers import (
    BrokerId,
    Epoch,
    Incarnation,
    PartitionId,
    TopicName,
    topic_name,
)
from octopi.limits import (
    RELAY_AWAY_S,
    RELAY_PARTITIONS_MAX,
    REPLACED_TOPICS_MAX,
    TOPIC_COUNT_MAX,
)
from octopi.model import TopicKind
from octopi.security.quotas import NOBODY, Creator, exceeded
from octopi.wire.messages import PartitionRecord, StreamDefinition, TopicOptions, TopicRecord

NOBODY_AWAY: Final[Mapping[BrokerId, float]] = {}

BY_NAME: Final = TopicPlacement()
"""The name of a topic decides on which partitions it lies."""


class TopicDecisions:
    """Decides about the topics of one cluster."""

    def __init__(
        self,
        state: ClusterState,
        live: Mapping[BrokerId, Incarnation],
        health: Health,
        unserved: UnservedTopics,
        rebuild: Callable[[], Rebuild],
        *,
        replica_count: int,
        draining: Set[BrokerId],
        stopping: Set[BrokerId],
    ) -> None:
        """*live* (broker -> incarnation), *draining* and *stopping* are the caller's, and change.
        *rebuild*: returns what brokers have reported.  *replica_count*: how many replicas a new
        partition gets if there are enough brokers."""
        self._state = state
        self._live = live
        self._health = health
        self._unserved = unserved
        self._rebuild = rebuild
        self._replica_count = replica_count
        self._draining = draining
        self._stopping = stopping
        self._circle: HashCircle | None = None

    def create(
        self,
        name: str,
        topic_id: str,
        *,
        partition_count: int = 1,
        partitions: list[PartitionId] | None = None,
        beside: str = "",
        options: TopicOptions,
        creator: Creator = NOBODY,
        stream: StreamDefinition | None = None,
        kind: str = TopicKind.LOG,
        placement: TopicPlacement = BY_NAME,
    ) -> TopicCreationDecision:
        """Create a topic on partitions whose leaders are live, placing partitions that no broker
        has yet.  *beside*: a topic whose partitions the new one gets, in the same order.
        *stream*: what it is as a stream over HTTP.  *placement*: how partitions are chosen that
        are not named.  A topic of the *kind* relay has one relay partition, chosen by its name if
        it isn't named.

        Raises:
          InvalidTopicError: if *name* is not a legal name.
          UnknownTopicError: if there is no topic *beside*.
          TopicExistsError: if the topic exists.
          NotReadyError: if the topic may exist; see `require`.
          RefusedError: INVALID_OPTION, TOO_MANY, QUOTA_EXCEEDED, or (retryable) NO_BROKER.
        """
        checked = topic_name(name)
        check_options(options, stream, kind)
        if beside:
            partitions = self._partitions_of(beside, partition_count, partitions)
        if self._state.topic(checked) is not None:
            raise TopicExistsError(f"topic {name} exists already")
        self._require_told(checked)
        if self._state.topic_count >= TOPIC_COUNT_MAX:
            raise RefusedError(f"a cluster has at most {TOPIC_COUNT_MAX} topics", Status.TOO_MANY)
        most_topics = creator.topics_max
        if most_topics is not None and self._state.topic_count_of(creator.subject) >= most_topics:
            raise exceeded("topics that it created", most_topics)
        if kind == TopicKind.RELAY:
            is_plain = len(partitions or [0]) == partition_count == 1 and not beside
            if not is_plain or stream is not None:
                raise RefusedError(
                    "a relay topic has one partition, and is no stream over HTTP",
                    Status.INVALID_OPTION,
                )
            return self._create_relayed(checked, topic_id, partitions, options, creator)
        total = self._state.partition_count
        chosen = chosen_partitions(
            partition_count, partitions, total, self._chooser(checked, topic_id, placement)
        )
        placed = self.place(chosen, placement.loads)
        entries: list[Entry] = [PartitionDecided(record) for record in placed]
        deleted = [one for one, removal in self._state.removals.items() if removal.topic == checked]
        replaced = deleted[-REPLACED_TOPICS_MAX:]
        topic = TopicRecord(checked, topic_id, chosen, options, replaces=replaced, stream=stream)
        entries.append(TopicCreated(topic, creator.subject))
        return TopicCreationDecision(topic, entries)

    def _chooser(
        self, name: TopicName, topic_id: str, placement: TopicPlacement
    ) -> Callable[[int], list[PartitionId]]:
        """Chooses the partitions of a new topic."""
        total = self._state.partition_count
        leaders = {one.partition: one.leader for one in self._state.partitions.values()}
        weights = placement.weights(total, leaders)
        if weights is not None:
            return lambda count: drawn(topic_id, count, weights)
        if self._circle is None or self._circle.partition_count != total:
            self._circle = HashCircle(total)
        return partial(self._circle.partitions, name)

    def _create_relayed(
        self,
        name: TopicName,
        topic_id: str,
        partitions: list[PartitionId] | None,
        options: TopicOptions,
        creator: Creator,
    ) -> TopicCreationDecision:
        """Create a topic in memory, in the one relay partition of *partitions*, or in that which
        its name chooses."""
        total = min(self._state.partition_count, RELAY_PARTITIONS_MAX)
        circle = HashCircle(total)
        [partition] = chosen_partitions(1, partitions, total, partial(circle.partitions, name))
        entries: list[Entry] = []
        if partition not in self._state.relay_sets:
            known = self._state.relay_sets
            relays = new_set(partition, self._replica_count, self.relay_brokers(), known)
            entries.append(RelaySetDecided(relays))
        topic = TopicRecord(name, topic_id, [partition], options, kind=TopicKind.RELAY)
        return TopicCreationDecision(topic, [*entries, TopicCreated(topic, creator.subject)])

    def relay_brokers(self, away_s: Mapping[BrokerId, float] = NOBODY_AWAY) -> RelayBrokers:
        """The brokers as relay sets see them.  *away_s*: how long those have been away that are
        (s)."""
        staying = self._live.keys() - self._stopping - self._draining
        willing = {one for one in staying if not self._health.is_troubled(one)} or staying
        long = {one for one, gone_s in away_s.items() if gone_s >= RELAY_AWAY_S}
        return RelayBrokers(
            sorted(willing),
            long | self._state.removed_brokers,
            self._draining & self._live.keys(),
            self._state.machines,
        )

    def _partitions_of(
        self, beside: str, count: int, partitions: list[PartitionId] | None
    ) -> list[PartitionId]:
        """The partitions of the topic *beside*, checked against the *count* and *partitions* that
        the request names."""
        other = self.require(beside)
        if other.is_relay:
            raise RefusedError(f"topic {beside} is in memory", Status.WRONG_KIND)
        wanted = list(other.partitions)
        if partitions is not None or count not in (0, len(wanted)):
            raise RefusedError(
                f"a topic beside {beside} has its {len(wanted)} partitions, no other ones",
                Status.INVALID_OPTION,
            )
        return wanted

    def place(
        self, partitions: list[PartitionId], loads: Mapping[BrokerId, float] = NO_LOADS
    ) -> list[PartitionRecord]:
        """Records for those of *partitions* that have none, spread evenly over live brokers;
        *loads*: see `place`."""
        for partition in partitions:
            record = self._state.partitions.get(partition)
            if record is not None and record.leader not in self._live:
                raise RefusedError(
                    f"partition {partition} lies on broker {record.leader}, which is away",
                    Status.NO_BROKER,
                )
        new = [one for one in partitions if one not in self._state.partitions]
        if new and not self._live:
            raise RefusedError("no broker has joined", Status.NO_BROKER)
        staying = self._live.keys() - self._stopping or self._live.keys()
        willing = staying - self._draining or staying
        # No log can be made on a full disk, so such a broker is taken only if there are too few
        # others.
        well = {one for one in willing if not self._health.is_troubled(one)}
        machines = self._state.machines
        if len(machines.of_all(well)) >= self._replica_count:
            willing = well
        records = self._state.partitions.values()
        placed = place(new, self._replica_count, willing, records, machines, loads)
        for replicas in placed.values():
            replicas.sort(key=self._health.is_troubled)  # a healthy broker leads
        return [
            PartitionRecord(
                partition=partition,
                epoch=Epoch(1),
                version=0,
                leader=replicas[0],
                leader_incarnation=self._live[replicas[0]],
                replicas=replicas,
                in_sync=sorted(replicas),  # all hold all there is: nothing
            )
            for partition, replicas in placed.items()
        ]

    def alter(
        self, name: str, options: TopicOptions, names: Collection[str]
    ) -> TopicAlterationDecision:
        """Give the options *names* of a topic the values that they have in *options*.

        A greater `min_insync` than the number of replicas that are in sync is no fault: producers
        wait until enough replicas are in sync.

        Raises:
          InvalidTopicError, UnknownTopicError, NotReadyError: see `require`.
          RefusedError: INVALID_OPTION, also if `min_insync` gets greater than the number of
              replicas of a partition.
        """
        topic = self.require(name)
        if topic.is_relay:
            raise RefusedError(
                f"topic {name} is in memory: its options can't be altered yet", Status.WRONG_KIND
            )
        altered = attrs.evolve(topic.options, **{one: getattr(options, one) for one in names})
        check_options(altered)
        if altered.min_insync > topic.options.min_insync:
            self._check_min_insync(topic, altered.min_insync)
        if altered == topic.options:
            return TopicAlterationDecision(topic, [])
        # A topic that was reported to a register without a journal may name any generation.
        generation = max(self._state.life.generation, topic.generation)
        topic = attrs.evolve(
            topic, options=altered, generation=generation, version=topic.version + 1
        )
        return TopicAlterationDecision(topic, [TopicAltered(topic)])

    def _check_min_insync(self, topic: TopicRecord, count: int) -> None:
        for partition in topic.log_partitions:
            replicas = self._state.partitions[partition].replicas
            if len(replicas) < count:
                raise RefusedError(
                    f"partition {partition} of topic {topic.topic} has {len(replicas)} replicas, "
                    f"so {count} can't be in sync: messages would wait for ever",
                    Status.INVALID_OPTION,
                )

    def delete(self, name: str) -> TopicDeletionDecision:
        """Delete a topic.

        Raises:
          UnknownTopicError: if there is none.
        """
        return self._deletion(self.require(name))

    def of_id(self, topic_id: str) -> TopicRecord:
        """The topic of that id, whatever its name is; also one that only brokers hold.

        Raises:
          UnknownTopicError: if there is none.
        """
        record = self._state.topic_of_id(topic_id) or self._unserved.of_id(topic_id)
        if record is None:
            raise UnknownTopicError(f"there is no topic with id {topic_id}")
        return record

    def delete_by_id(self, topic_id: str) -> TopicDeletionDecision:
        """Delete a topic, whatever its name is; also one that only brokers hold.

        Raises:
          UnknownTopicError: if there is none.
        """
        record = self.of_id(topic_id)
        unserved = self._unserved.deletion(topic_id)
        return TopicDeletionDecision(record, unserved) if unserved else self._deletion(record)

    def _deletion(self, record: TopicRecord) -> TopicDeletionDecision:
        brokers = {
            broker
            for partition in record.log_partitions
            for broker in (
                self._state.relay_sets[partition].members
                if record.is_relay
                else self._state.partitions[partition].replicas
            )
        }
        if record.topic_id in self._state.unfit_topics:
            brokers = set()  # no broker was told of the topic
        deleted = TopicDeleted(record.topic, record.topic_id, sorted(brokers))
        return TopicDeletionDecision(record, [deleted])

    def require(self, name: str) -> TopicRecord:
        """The topic of that name.

        Raises:
          InvalidTopicError, UnknownTopicError.
          NotReadyError: if the topic may exist: the register's disk was lost, and not all brokers
              have reported yet what they hold.
        """
        checked = topic_name(name)
        record = self._state.topic(checked)
        if record is None:
            self._require_told(checked)
            raise UnknownTopicError(f"there is no topic {name}")
        return record

    def _require_told(self, name: str) -> None:
        """Raise NotReadyError if a broker that has not reported yet may hold a topic of that
        name."""
        away = self._rebuild().away()
        if away or name in self._rebuild().topics:
            raise NotReadyError(
                f"topic {name} may exist: the register's disk was lost, and brokers "
                f"{away or 'that hold it'} have not told yet what they know"
            )
