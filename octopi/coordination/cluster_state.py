"""What the register stores: brokers, partitions and topics.

Which brokers are live is not stored; the register observes it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter

import attrs

from octopi.coordination.generations import under_way
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    BrokerRemoved,
    ClusterFormed,
    Entry,
    EpochAnnounced,
    HandedOver,
    HandOverAnnounced,
    OlderTopicFound,
    PartitionDecided,
    RegisterStarted,
    RelaySetDecided,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from octopi.coordination.machines import Machines
from octopi.coordination.relay_sets import may_follow
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch, PartitionId, id_fault, topic_name_fault
from octopi.limits import (
    BROKER_ID_MAX,
    COUNTED_MAX,
    HAND_OVER_ATTEMPTS_MAX,
    LIST_COUNT_MAX,
)
from octopi.wire.codec import fault_in
from octopi.wire.messages import (
    PartitionRecord,
    RegisterGeneration,
    RelaySetRecord,
    TopicOptions,
    TopicRecord,
)


@attrs.define
class Removal:
    """A deleted topic that some brokers still hold."""

    topic: str
    brokers: set[BrokerId]


class ClusterState:
    """The journal's entries, applied.

    Invariants: a topic's partitions exist and are decided; topic ids are unique; a
    partition's (epoch, version) never goes back, nor do its announced epochs, nor the
    register's generation, nor a topic's (generation, version).
    """

    def __init__(self) -> None:
        self.cluster = ""
        """The cluster's id; empty before a cluster is formed."""
        self.partition_count = 0
        self.secret = ""
        """Known to the register alone, from its journal; see `octopi.coordination.seals`."""
        self.lives: dict[int, RegisterGeneration] = {}
        """The starts of the register, by generation, without gap; the first one formed the cluster
        or took it over."""
        self.brokers: dict[BrokerId, BrokerRegistered] = {}
        self.removed_brokers: set[BrokerId] = set()
        self.partitions: dict[PartitionId, PartitionRecord] = {}
        self.relay_sets: dict[PartitionId, RelaySetRecord] = {}
        """By relay partition, which have numbers of their own."""
        self.removals: dict[str, Removal] = {}
        self.unfit_topics: set[str] = set()
        """Ids of topics that no broker can hold because their names or ids are illegal: an earlier
        register took them from a broker without a check.  They can be deleted by their ids."""
        self.growing: set[str] = set()
        """The topics with a generation under way."""
        self.hand_over_attempts: list[str] = []
        """The last `HAND_OVER_ATTEMPTS_MAX` tries to hand over that brokers were told of, in their
        order."""
        self.handed_over: HandedOver | None = None
        """Nothing is decided after it; None: the cluster has a register."""
        self._announced: dict[PartitionId, Epoch] = {}
        self._topics: dict[str, TopicRecord] = {}
        self._names: list[str] = []
        self._fork_counts: Counter[str] = Counter()
        """Topic -> how many topics are forks of it, or forks of these."""
        self._owners: dict[str, str] = {}
        """Topic -> the subject that created it, where that is known."""
        self._owned: Counter[str] = Counter()

    @property
    def life(self) -> RegisterGeneration:
        """The newest start of the register."""
        return self.lives[max(self.lives)]

    @property
    def was_taken_over(self) -> bool:
        """Whether the register began with an empty journal in a cluster that existed.  Then brokers
        may know decisions that it doesn't."""
        return min(self.lives, default=1) > 1

    def descends_from(self, life: RegisterGeneration) -> bool:
        """Whether *life* is in the history of this register: one of its own starts, or one of those
        that brokers reported when this register took over."""
        return life.generation < min(self.lives) or self.lives.get(life.generation) == life

    def announced_epoch(self, partition: PartitionId) -> Epoch:
        """The highest epoch of *partition* that was announced or decided; 0: none."""
        record = self.partitions.get(partition)
        return max(self._announced.get(partition, NO_EPOCH), record.epoch if record else NO_EPOCH)

    def min_insync(self, partition: PartitionId) -> int:
        """The smallest `min_insync` of the topics on *partition*, 1 if it has no topic."""
        topics = self._topics.values()
        options = (
            one.options for one in topics if partition in one.log_partitions and not one.is_relay
        )
        return min((one.min_insync for one in options), default=1)

    @property
    def machines(self) -> Machines:
        """The machines of the brokers."""
        return Machines({one.broker: one.host for one in self.brokers.values() if one.host})

    @property
    def topic_count(self) -> int:
        """How many topics there are."""
        return len(self._names)

    def topic_count_of(self, owner: str) -> int:
        """How many of the topics *owner* has created."""
        return self._owned[owner]

    def owner(self, name: str) -> str:
        """Who created the topic of that name; empty if that is not known."""
        return self._owners.get(name, "")

    def topic(self, name: str) -> TopicRecord | None:
        """The topic of that name."""
        return self._topics.get(name)

    def has_forks(self, name: str) -> bool:
        """Whether there is a fork of the topic of that name, or of one that was deleted."""
        return self._fork_counts[name] > 0

    def topic_of_id(self, topic_id: str) -> TopicRecord | None:
        """The topic of that id."""
        return next((one for one in self._topics.values() if one.topic_id == topic_id), None)

    def topics_after(self, name: str, count_max: int) -> list[TopicRecord]:
        """Up to *count_max* topics with names greater than *name*, in their order."""
        at = bisect_right(self._names, name)
        return [self._topics[one] for one in self._names[at : at + count_max]]

    def topics_on(self, partitions: set[PartitionId]) -> list[TopicRecord]:
        """The topics that have a log in any of *partitions*, in order of their names."""
        return [
            self._topics[name]
            for name in self._names
            if not partitions.isdisjoint(self._topics[name].log_partitions)
            and not self._topics[name].is_relay
        ]

    def relay_topics_on(self, partition: PartitionId) -> list[TopicRecord]:
        """The topics in a relay partition, in order of their names."""
        found = (self._topics[name] for name in self._names)
        return [one for one in found if one.is_relay and partition in one.partitions]

    def apply(self, entry: Entry) -> None:
        """Take note of *entry*."""
        assert self.handed_over is None, "nothing is decided after the cluster was handed over"
        match entry:
            case HandOverAnnounced(attempt):
                self.hand_over_attempts.append(attempt)
                del self.hand_over_attempts[:-HAND_OVER_ATTEMPTS_MAX]
            case HandedOver():
                self.handed_over = entry
            case ClusterFormed():
                self.cluster = entry.cluster
                self.partition_count = entry.partition_count
                self.secret = entry.secret or self.secret
            case RegisterStarted(life):
                if not self.cluster:
                    self.lives.clear()  # it crashed before it had formed its cluster
                assert not self.lives or life.generation == max(self.lives) + 1
                self.lives[life.generation] = life
            case BrokerRegistered():
                self.brokers[entry.broker] = entry
            case BrokerRemoved(broker):
                self.brokers.pop(broker, None)
                self.removed_brokers.add(broker)
                for topic_id in list(self.removals):
                    self._removed_topic(topic_id, broker)
            case EpochAnnounced(partition, epoch):
                assert epoch >= self.announced_epoch(partition), "epochs are never used again"
                self._announced[partition] = epoch
            case PartitionDecided(record):
                known = self.partitions.get(record.partition)
                assert known is None or (known.epoch, known.version) < (
                    record.epoch,
                    record.version,
                ), "decisions only go forward"
                self.partitions[record.partition] = record
            case TopicCreated(topic, owner):
                former = self._topics.get(topic.topic)
                if former is None:
                    insort(self._names, topic.topic)
                elif former.topic_id != topic.topic_id or owner:
                    self._disown(topic.topic)
                if topic_name_fault(topic.topic) or id_fault(topic.topic_id):
                    self.unfit_topics.add(topic.topic_id)
                if former is not None:
                    self._fork_counts.subtract(_ancestors(former))
                self._fork_counts.update(_ancestors(topic))
                self._keep(topic)
                if owner:
                    self._owners[topic.topic] = owner
                    self._owned[owner] += 1
            case TopicAltered(topic):
                former = self._topics[topic.topic]
                assert former.topic_id == topic.topic_id
                assert former.alteration < topic.alteration, "alterations only go forward"
                self._keep(topic)
            case TopicDeleted():
                self.unfit_topics.discard(entry.topic_id)
                self._fork_counts.subtract(_ancestors(self._topics.pop(entry.topic)))
                self._disown(entry.topic)
                self.growing.discard(entry.topic)
                del self._names[bisect_left(self._names, entry.topic)]
                if entry.brokers:
                    self.removals[entry.topic_id] = Removal(entry.topic, set(entry.brokers))
            case OlderTopicFound():
                empty = Removal(entry.topic, set())
                self.removals.setdefault(entry.topic_id, empty).brokers.add(entry.broker)
            case TopicRemoved():
                self._removed_topic(entry.topic_id, entry.broker)
            case RelaySetDecided(relays):
                before = self.relay_sets.get(relays.partition)
                assert before is None or may_follow(before, relays), "sets only go forward"
                self.relay_sets[relays.partition] = relays

    def _keep(self, topic: TopicRecord) -> None:
        self._topics[topic.topic] = topic
        if under_way(topic) is None:
            self.growing.discard(topic.topic)
        else:
            self.growing.add(topic.topic)

    def _disown(self, topic: str) -> None:
        owner = self._owners.pop(topic, None)
        if owner is not None:
            self._owned[owner] -= 1
            if not self._owned[owner]:
                del self._owned[owner]

    def _removed_topic(self, topic_id: str, broker: BrokerId) -> None:
        removal = self.removals.get(topic_id)
        if removal is not None:
            removal.brokers.discard(broker)
            if not removal.brokers:
                del self.removals[topic_id]

    def entries(self) -> list[Entry]:
        """A snapshot: entries that, applied to an empty state, give this state.

        Removals are written as topics that are created and deleted again.
        """
        entries: list[Entry] = []
        if self.cluster:
            entries.append(ClusterFormed(self.cluster, self.partition_count, self.secret))
        entries += (RegisterStarted(life) for life in self.lives.values())
        entries += self.brokers.values()
        entries += (BrokerRemoved(broker) for broker in sorted(self.removed_brokers))
        entries += (PartitionDecided(record) for record in self.partitions.values())
        entries += (
            EpochAnnounced(partition, epoch)
            for partition, epoch in self._announced.items()
            if epoch > self.partitions[partition].epoch
        )
        entries += (RelaySetDecided(record) for record in self.relay_sets.values())
        entries += self._removal_entries()
        entries += (
            TopicCreated(self._topics[name], self._owners.get(name, "")) for name in self._names
        )
        entries += map(HandOverAnnounced, self.hand_over_attempts)
        if self.handed_over is not None:
            entries.append(self.handed_over)
        return entries

    def _removal_entries(self) -> list[Entry]:
        entries: list[Entry] = []
        for topic_id, removal in self.removals.items():
            record = TopicRecord(removal.topic, topic_id, [], TopicOptions())
            entries.append(TopicCreated(record))
            entries.append(TopicDeleted(removal.topic, topic_id, sorted(removal.brokers)))
        return entries

    def fault(self) -> str:
        """The part of this state that no register decides: an earlier register took it from a
        broker without a check.  Empty: there is none.  The register can't start with such a
        state."""
        if self.lives and max(self.lives) > COUNTED_MAX:
            return f"generation {max(self.lives)} of the register"
        for record in self.partitions.values():
            if why := fault_in(record):
                return f"partition {record.partition}: {why}"
        for partition, epoch in self._announced.items():
            if epoch > COUNTED_MAX:
                return f"epoch {epoch} of partition {partition}"
        for relays in self.relay_sets.values():
            if why := fault_in(relays):
                return f"relay partition {relays.partition}: {why}"
        for broker in self.brokers:
            if not 1 <= broker <= BROKER_ID_MAX:
                return f"the id {broker} of a broker"
        if self.partition_count > LIST_COUNT_MAX:
            return f"{self.partition_count} partitions"
        return ""

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self._names == sorted(self._topics)
        ids = [record.topic_id for record in self._topics.values()]
        assert len(ids) == len(set(ids))
        assert self.removed_brokers.isdisjoint(self.brokers)
        assert self._owned == Counter(self._owners.values())
        assert self._owners.keys() <= self._topics.keys()
        assert self.growing == {name for name, one in self._topics.items() if under_way(one)}
        for record in self._topics.values():
            assert record.partitions
            known = self.relay_sets if record.is_relay else self.partitions
            assert all(partition in known for partition in record.log_partitions)


def _ancestors(topic: TopicRecord) -> list[str]:
    return topic.stream.ancestors if topic.stream is not None else []
