"""What a register has made durable, derived from the trace of its steps.

A register that loses power forgets what it had decided and not flushed, so an entry counts here
only once it is on the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    Entry,
    PartitionDecided,
    TopicAltered,
    TopicCreated,
)
from octopi.identifiers import BrokerId, PartitionId
from octopi.simulation.invariants.in_sync_times import InSyncTimes
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from octopi.wire.messages import PartitionRecord, TopicOptions, TopicRecord


class RegisterView:
    """The `octopi.simulation.invariants.decision_view.DecisionView` of a world with one register,
    or with several that agree on a journal.

    Of several, one is active, and reads the journal when it begins to be.  What it appends after
    another one has read the journal is not decided, so its steps don't count any more.
    """

    def __init__(self, registers: Sequence[str]) -> None:
        """*registers* are the names of their hosts."""
        self._registers = registers
        self.active = ""
        """The host of the one that read the journal last."""
        self.kinds: Final = {
            steps.R1Read.text,
            steps.R2Appended.text,
            steps.R3Flushing.text,
            steps.R3Flushed.text,
            "wipe",
        }
        self.state = ClusterState()
        """The state that its journal leads to."""
        self.version = 0
        """The number of changes of `state`."""
        self.before: dict[PartitionId, PartitionRecord] = {}
        """For each partition the record before the one in `state`."""
        self.options: dict[str, dict[tuple[int, int], TopicOptions]] = {}
        """For each topic, by its id, all options that it ever had, by their alterations
        (`TopicRecord.alteration`).  Options count here before they are on the device."""
        self._times = InSyncTimes()
        self._known_before: dict[PartitionId, PartitionRecord] = {}
        """The partitions that the register knew when it lost its disk."""
        self._appended: deque[Entry] = deque()
        self._flushing: dict[int, int] = {}
        """For each flush in progress, by the end of the journal when it began: the number of
        entries that it covers, of all that this process has appended."""
        self._appended_count = 0

    def __call__(self, event: Event) -> None:
        """Note *event*."""
        match event.about:
            case steps.R2Appended() | steps.R3Flushing() | steps.R3Flushed() if (
                event.host != self.active
            ):
                pass
            case steps.R2Appended(entries):
                self._appended.extend(entries)
                self._note_options(entries)
                self._appended_count += len(entries)
            case steps.R3Flushing(log_end):
                self._flushing[log_end] = self._appended_count
            case steps.R3Flushed(log_end):
                flushed_count = self._flushing[log_end]
                still = self._appended_count - flushed_count
                while len(self._appended) > still:
                    self._apply(self._appended.popleft())
            case _ if event.what == "wipe" and [event.host] == self._registers:
                self._known_before |= self.state.partitions
                self.state = ClusterState()
                self.version += 1
            case steps.R1Read(entries):
                self.active = event.host
                if len(self._registers) > 1 and not entries:
                    self._known_before |= self.state.partitions  # all have lost their disks
                self.state = ClusterState()
                self._appended.clear()
                self._flushing.clear()
                self._appended_count = 0
                self._note_options(entries)
                for entry in entries:  # the known ones, and perhaps a few more
                    self.state.apply(entry)
                self.version += 1

    @property
    def records(self) -> dict[PartitionId, PartitionRecord]:
        """The newest record of each partition, including those that the register lost with its disk
        and has not learned again yet."""
        return self._known_before | self.state.partitions

    @property
    def version_to_be(self) -> int:
        """The `version` when all decisions are on the device."""
        return self.version + len(self._appended)

    def incarnation(self, broker: BrokerId, partition: PartitionId) -> int:  # any
        """The registered incarnation of *broker*; 0: none is."""
        known = self.state.brokers.get(broker)
        return known.incarnation if known else 0

    def min_insync(self, partition: PartitionId) -> int:
        """The smallest that a topic in *partition* asks for."""
        return self.state.min_insync(partition)

    def incarnation_to_be(self, broker: BrokerId) -> int:
        """The registered incarnation of *broker* when all decisions are on the device; 0 if there
        is none."""
        known = self.state.brokers.get(broker)
        lives = [
            one.incarnation
            for one in self._appended
            if isinstance(one, BrokerRegistered) and one.broker == broker
        ]
        return lives[-1] if lives else known.incarnation if known else 0

    def to_be(self, partition: PartitionId) -> list[PartitionRecord]:
        """Records of *partition* that are decided and not on the device yet."""
        entries = [one for one in self._appended if isinstance(one, PartitionDecided)]
        return [one.record for one in entries if one.record.partition == partition]

    def was_out_of_sync(self, partition: PartitionId, broker: BrokerId) -> int:
        """The last `version` in which *broker* was not in the partition's in-sync set; -1 if it was
        always in it."""
        record = self.state.partitions.get(partition) or self._known_before.get(partition)
        at = self._times.last_out(record, broker)
        return self.version if at is None else at

    def has_always_flushed(self, topic: TopicRecord) -> bool:
        """Whether *topic* was never acknowledged from a page cache."""
        options = [topic.options, *self.options.get(topic.topic_id, {}).values()]
        return all(one.flush_before_ack for one in options)

    def _note_options(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, TopicCreated | TopicAltered):
                topic = entry.record
                self.options.setdefault(topic.topic_id, {})[topic.alteration] = topic.options

    def _apply(self, entry: Entry) -> None:
        if isinstance(entry, PartitionDecided):
            known = self.state.partitions.get(entry.record.partition)
            # A partition that the register learns of again is not a new one.
            before = known or self._known_before.get(entry.record.partition)
            self._times.decided(before, entry.record, self.version)
            if known is not None:
                self.before[known.partition] = known
        self.state.apply(entry)
        self.version += 1
