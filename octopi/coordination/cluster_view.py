"""What a register tells of its cluster: where topics and partitions are, and how brokers are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.elections import Elections
from octopi.coordination.health import Health
from octopi.coordination.journal_entries import BrokerRegistered
from octopi.coordination.relay_sequencers import RelaySequencers
from octopi.generation_record import GenerationState
from octopi.identifiers import (
    BrokerId,
    Incarnation,
    Offset,
    PartitionId,
    id_fault,
    topic_name_fault,
)
from octopi.wire.messages import (
    BrokerInfo,
    GenerationInfo,
    PartitionInfo,
    PartitionRecord,
    RelaySetRecord,
    RemovedTopic,
    TopicInfo,
    TopicRecord,
)


def generations_told(record: TopicRecord) -> list[GenerationInfo]:
    """The generations of a topic as clients are told of them: those that are or were in force, if
    there are several."""
    known = [
        GenerationInfo(one.number, list(one.partitions), [Offset(end) for end in one.sealed])
        for one in record.generations
        if one.state == GenerationState.IN_FORCE
    ]
    return known if len(known) > 1 else []


class ClusterView:
    """The state, elections and health of a cluster, as clients and brokers are told of them."""

    def __init__(
        self,
        state: ClusterState,
        live: Mapping[BrokerId, Incarnation],
        elections: Elections,
        health: Health,
        sequencers: RelaySequencers,
    ) -> None:
        """*live* is the caller's: broker -> incarnation."""
        self._state = state
        self._live = live
        self._elections = elections
        self._health = health
        self._sequencers = sequencers
        self._turns: Counter[PartitionId] = Counter()
        self._relay_turns: Counter[PartitionId] = Counter()

    def topic(self, record: TopicRecord) -> TopicInfo:
        """Where *record*'s partitions are now."""
        known = generations_told(record)
        sealed = {one for old in known for one in old.partitions} - {*record.partitions}
        return TopicInfo(
            record.topic,
            record.topic_id,
            [self._place(record, one) for one in record.partitions],
            record.options,
            record.kind,
            known,
            [self._place(record, one) for one in sorted(sealed)],
        )

    def _place(self, record: TopicRecord, partition: PartitionId) -> PartitionInfo:
        if record.is_relay:
            return self.relays(self._state.relay_sets[partition])
        return self.partition(self._state.partitions[partition])

    def relays(self, record: RelaySetRecord) -> PartitionInfo:
        """Where a relay partition is now: its sequencer is its leader.  While nobody has said that
        it is the sequencer, any member takes what is produced."""
        partition = record.partition
        live = [one for one in record.members if one in self._live]
        epoch, leader = self._sequencers.of(partition)
        if leader not in live and len(live) > len(record.members) // 2:
            leader = live[0]
        has_leader = leader is not None and leader in live
        readers = [self._state.brokers[one].address for one in live]
        if readers:
            self._relay_turns[partition] += 1
            turn = (partition + self._relay_turns[partition]) % len(readers)
            readers = readers[turn:] + readers[:turn]
        return PartitionInfo(
            partition=partition,
            epoch=epoch,
            leader=leader if has_leader else None,
            leader_address=self._state.brokers[leader].address if leader in live else "",
            replicas=record.members,
            in_sync=live,
            readers=readers,
        )

    def partition(self, record: PartitionRecord) -> PartitionInfo:
        """Where a partition is now; successive calls name its readers in turn."""
        partition, health = record.partition, self._health
        leads = (
            health.is_led_to(record.leader, partition)
            and partition not in self._elections.changes
            and self._live[record.leader] == record.leader_incarnation
        )
        reachable = [one for one in record.in_sync if health.is_led_to(one, partition)]
        # A replica that takes no records falls behind, but reading there is better than nowhere.
        serving = [one for one in reachable if health.serves(one, partition)] or reachable
        readers = [self._state.brokers[broker].address for broker in serving]
        if len(readers) > 1:
            # Each partition has its own turn.  With one turn for all, a topic with as many
            # partitions as there are readers would give each partition the same reader every time.
            self._turns[record.partition] += 1
            turn = (record.partition + self._turns[record.partition]) % len(readers)
            readers = readers[turn:] + readers[:turn]
        return PartitionInfo(
            partition=record.partition,
            epoch=record.epoch,
            leader=record.leader if leads else None,
            leader_address=self._state.brokers[record.leader].address if leads else "",
            replicas=record.replicas,
            in_sync=record.in_sync,
            readers=readers,
            waits_for=[] if leads else self._elections.waits_for(record.partition),
            is_stuck=not leads and self._elections.is_stuck(record.partition),
            recovered_epoch=record.recovered_epoch,
            troubles=health.troubles(partition, record.replicas),
        )

    def brokers(self) -> list[BrokerInfo]:
        """All brokers that ever registered, by id."""
        led: dict[BrokerId, int] = {}
        for record in self._state.partitions.values():
            led[record.leader] = led.get(record.leader, 0) + 1
        return [
            self._describe_broker(known, led.get(broker, 0))
            for broker, known in sorted(self._state.brokers.items())
        ]

    def _describe_broker(self, known: BrokerRegistered, partitions_led: int) -> BrokerInfo:
        status = self._health.status(known.broker)
        return BrokerInfo(
            known.broker,
            known.address,
            known.incarnation,
            known.broker in self._live,
            partitions_led,
            disk_free_bytes=None if status is None else status.disk_free_bytes,
            disk_total_bytes=None if status is None else status.disk_total_bytes,
            disk_trouble=self._health.disk_trouble(known.broker),
            host=known.host,
        )

    def removals_of(self, broker: BrokerId) -> list[RemovedTopic]:
        """The deleted topics whose removal *broker* has not confirmed."""
        return [
            RemovedTopic(removal.topic, topic_id)
            for topic_id, removal in self._state.removals.items()
            if broker in removal.brokers
            and not (id_fault(topic_id) or topic_name_fault(removal.topic))
        ]

    def relay_sets_of(self, broker: BrokerId) -> list[RelaySetRecord]:
        """The relay sets of which *broker* is a member."""
        return [one for one in self._state.relay_sets.values() if broker in one.members]

    def topics_of(self, broker: BrokerId) -> list[TopicRecord]:
        """The topics that *broker* keeps logs for."""
        return self._state.topics_on(
            {one.partition for one in self._state.partitions.values() if broker in one.replicas}
        )

    def outdated(self, broker: BrokerId, reported: Iterable[TopicRecord]) -> list[TopicRecord]:
        """The topics that *broker* keeps logs for, and that it *reported* with other options or
        generations."""
        known = {one.topic_id: one for one in reported}
        return [
            one
            for one in self.topics_of(broker)
            if (theirs := known.get(one.topic_id)) is not None
            and (theirs.options != one.options or theirs.generations != one.generations)
        ]

    def tellable(self, topics: list[TopicRecord]) -> list[TopicRecord]:
        """Those of *topics* that brokers can hold."""
        unfit = self._state.unfit_topics
        return [one for one in topics if one.topic_id not in unfit] if unfit else topics
