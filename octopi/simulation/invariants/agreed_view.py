"""What the brokers of a cluster without a register have decided, derived from their steps.

The record of a partition is decided when its value is chosen
(`octopi.simulation.invariants.chosen_values`), and a topic when what its home says about it is
committed in the log ``~topics``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.agreement.entries import AcceptEntry
from octopi.coordination.agreed_partition import AgreedPartition, decode_partition
from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    EpochAnnounced,
    PartitionDecided,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from octopi.identifiers import (
    TOPICS_LOG,
    BrokerId,
    Incarnation,
    InstanceId,
    Offset,
    PartitionId,
    TopicName,
)
from octopi.replication.internal_log import decode_records
from octopi.ring.cluster_record import ClusterRecord, PartitionKind, decode_cluster
from octopi.ring.first_partition import first_partition_value, instance_of, partition_of
from octopi.ring.homes import TopicsOfPartition, TopicState
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.invariants.chosen_values import ChosenValues, ForkError
from octopi.simulation.invariants.in_sync_times import InSyncTimes
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from octopi.wire.agreement import AgreedValue, BallotPromised, ValueAccepted
from octopi.wire.messages import PartitionRecord, TopicOptions, TopicRecord

_CLUSTER: Final = InstanceId(0)


class AgreedView:
    """The `octopi.simulation.invariants.decision_view.DecisionView` of a world without a
    register."""

    active: Final = ""

    def __init__(self, log_of: Callable[[str, PartitionId], ReplicaBytes]) -> None:
        """*log_of* gives the log ``~topics`` of a host and a partition."""
        self.kinds: Final = {
            steps.A1Began.text,
            steps.A2Storing.text,
            steps.A2Answering.text,
            steps.P6Committed.text,
        }
        self.state = ClusterState()
        self.version = 0
        self.before: dict[PartitionId, PartitionRecord] = {}
        self.options: dict[str, dict[tuple[int, int], TopicOptions]] = {}
        self.fork = ""
        """How the histories of a value differ; empty: they don't."""
        self.news: list[tuple[AgreedPartition, AgreedPartition]] = []
        """What the present event decided about partitions: what was in force, and what is now."""
        self.deleted: list[TopicRecord] = []
        """The topics whose deletion the present event decided."""
        self.record: ClusterRecord | None = None
        """The record of the cluster; None: it is not formed yet."""
        self._log_of = log_of
        self._values: dict[InstanceId, ChosenValues] = {_CLUSTER: ChosenValues()}
        self._agreed: dict[PartitionId, AgreedPartition] = {}
        self._times = InSyncTimes()
        self._read: dict[PartitionId, Offset] = {}
        """Up to where each log ``~topics`` was read."""
        self._homes: dict[PartitionId, TopicsOfPartition] = {}

    def __call__(self, event: Event) -> None:
        """Note *event*."""
        self.news.clear()
        self.deleted.clear()
        match event.about:
            case steps.A1Began(broker):
                self.state.apply(BrokerRegistered(broker, Incarnation(0), "", ""))
            case steps.A2Storing(instance, entries):
                for entry in entries:
                    if isinstance(entry, AcceptEntry):
                        self._propose(instance, entry)
            case steps.A2Answering(instance, BallotPromised() as message):
                if message.value is not None:
                    known = self._values.setdefault(instance, ChosenValues())
                    known.promise(message.ballot, message.accepted, message.value)
            case steps.A2Answering(instance, ValueAccepted() as message):
                self._accept(instance, message)
            case steps.P6Committed() as step if step.topic == TOPICS_LOG:
                self._read_topics(event.host, step.partition, step.highwater)

    # --- agreed values -----------------------------------------------------------------------

    def values(self, instance: InstanceId) -> ChosenValues | None:
        """The history of an agreed value; None: there is no such value yet."""
        return self._values.get(instance)

    def newest_values(self) -> list[AgreedValue]:
        """The newest chosen value of each instance."""
        return [one.newest for one in self._values.values() if one.newest is not None]

    def _propose(self, instance: InstanceId, entry: AcceptEntry) -> None:
        try:
            self._values.setdefault(instance, ChosenValues()).propose(entry.ballot, entry.value)
        except ForkError as error:
            self.fork = f"of value {instance} {error}"

    def _accept(self, instance: InstanceId, message: ValueAccepted) -> None:
        known = self._values.setdefault(instance, ChosenValues())
        try:
            chosen = known.accept(message.ballot, message.acceptor)
        except ForkError as error:
            self.fork = f"of value {instance} {error}"
            return
        partition = partition_of(instance)
        for value in chosen:
            if partition is None:
                self._take_cluster(decode_cluster(value.content))
            else:
                self._decide(decode_partition(value.content))

    def _take_cluster(self, record: ClusterRecord) -> None:
        self.record = record
        for number in range(record.partition_count(PartitionKind.LOG)):
            partition = PartitionId(number)
            first = first_partition_value(record, partition)
            if first is None or partition in self._agreed:
                continue
            self._values[instance_of(partition)] = ChosenValues(first, _may_follow)
            agreed = self._agreed[partition] = decode_partition(first.content)
            self.state.apply(PartitionDecided(agreed.record))
            self.version += 1

    def _decide(self, agreed: AgreedPartition) -> None:
        record = agreed.record
        before = self._agreed[record.partition]
        self._agreed[record.partition] = agreed
        self.news.append((before, agreed))
        if fault := _fault_of(before, agreed):
            self.fork = f"of partition {record.partition} {fault}"
            return
        if agreed.announced > before.announced:
            self.state.apply(EpochAnnounced(record.partition, agreed.announced))
        if record != before.record:
            self._times.decided(before.record, record, self.version)
            self.before[record.partition] = before.record
            self.state.apply(PartitionDecided(record))
        self.version += 1

    @property
    def records(self) -> dict[PartitionId, PartitionRecord]:
        """Those of `state`: nobody forgets one."""
        return self.state.partitions

    @property
    def version_to_be(self) -> int:
        """The `version` when everything is decided for good that is being decided now."""
        return self.version + sum(len(one.pending) for one in self._values.values())

    def to_be(self, partition: PartitionId) -> list[PartitionRecord]:
        """Records of *partition* that are being decided."""
        known = self._values.get(instance_of(partition))
        pending = [] if known is None else known.pending
        return [decode_partition(one.content).record for one in pending]

    def incarnation(self, broker: BrokerId, partition: PartitionId) -> int:
        """The incarnation of *broker* that is registered for *partition*; 0: none is."""
        agreed = self._agreed.get(partition)
        known = None if agreed is None else agreed.incarnation(broker)
        return 0 if known is None else known.incarnation

    def incarnation_to_be(self, broker: BrokerId) -> int:
        """The highest incarnation of *broker* that is registered anywhere; 0: none is."""
        return max((self.incarnation(broker, one) for one in self._agreed), default=0)

    def min_insync(self, partition: PartitionId) -> int:
        """The least number of replicas in sync with which *partition* may be led."""
        agreed = self._agreed.get(partition)
        return 1 if agreed is None else agreed.min_insync

    def was_out_of_sync(self, partition: PartitionId, broker: BrokerId) -> int:
        """The last `version` in which *broker* was not in the partition's in-sync set; -1 if it was
        always in it."""
        at = self._times.last_out(self.state.partitions.get(partition), broker)
        return self.version if at is None else at

    # --- topics ------------------------------------------------------------------------------

    def _read_topics(self, host: str, partition: PartitionId, highwater: Offset) -> None:
        start = self._read.get(partition, Offset(0))
        if highwater <= start:
            return
        log = self._log_of(host, partition)
        start = Offset(max(start, log.start))  # what lies before it is said again behind it
        records = log.read(start, highwater)
        home = self._homes.setdefault(partition, TopicsOfPartition())
        for entry in decode_records(TOPICS_LOG, partition, records, start):
            before = dict(home.topics)
            home.read(entry.key, entry.value)
            for name in before.keys() | home.topics.keys():
                self._note_topic(name, home)
        self._read[partition] = highwater

    def _note_topic(self, name: TopicName, home: TopicsOfPartition) -> None:
        told, known = home.topics.get(name), self.state.topic(name)
        gone = told is None or told.state is TopicState.DELETING
        if known is not None and (gone or (told and told.topic.topic_id != known.topic_id)):
            self.state.apply(TopicDeleted(name, known.topic_id, []))
            self.deleted.append(known)
            known = None
        if told is None or gone:
            return
        topic = told.topic
        self.options.setdefault(topic.topic_id, {})[topic.alteration] = topic.options
        if known is None:
            self.state.apply(TopicCreated(topic))
        elif topic.alteration > known.alteration:
            self.state.apply(TopicAltered(topic))

    def has_always_flushed(self, topic: TopicRecord) -> bool:
        """Whether *topic* was never acknowledged from a page cache."""
        options = [topic.options, *self.options.get(topic.topic_id, {}).values()]
        return all(one.flush_before_ack for one in options)


def _may_follow(before: AgreedValue, after: AgreedValue) -> bool:
    """Whether nothing that only grows is less in the second value about a partition."""
    old, new = decode_partition(before.content), decode_partition(after.content)
    known = {one.broker: one.incarnation for one in new.incarnations}
    if any(known.get(one.broker, 0) < one.incarnation for one in old.incarnations):
        return False
    return not _fault_of(old, new)


def _fault_of(before: AgreedPartition, agreed: AgreedPartition) -> str:
    """Why nobody may decide *agreed* when *before* is in force; empty: it may be decided."""
    old, new = before.record, agreed.record
    if agreed.announced < before.announced:
        return f"epoch {agreed.announced} is announced, and {before.announced} was"
    if new == old:
        return ""
    if (new.epoch, new.version) <= (old.epoch, old.version):
        return f"{new} is decided, and {old} was"
    leaders = [(one.leader, one.leader_incarnation) for one in (old, new)]
    if new.epoch == old.epoch and leaders[0] != leaders[1]:
        return f"two leaders are decided in epoch {new.epoch}: {leaders[0]} and {leaders[1]}"
    if new.epoch > old.epoch and new.epoch != before.announced:
        return f"epoch {new.epoch} is decided, and {before.announced} was announced last"
    return ""
