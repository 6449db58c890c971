"""What the oracle knows of a cluster besides its rules: the faults that happened, the promises of
replicas, the logs, and the replicas that a fault excuses.

`octopi.simulation.invariants.oracle` has the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from octopi.identifiers import (
    INTERNAL_LOGS,
    RING_LOGS,
    TOPICS_LOG,
    BrokerId,
    Offset,
    PartitionId,
)
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.disk.faults import Fail
from octopi.simulation.disk.group_bytes import GroupJournalBytes
from octopi.simulation.disk.log_bytes import JournalBytes, ReplicaBytes
from octopi.simulation.faults.actions import (
    BitFlip,
    BreakDisk,
    DriftClock,
    FillDisk,
    JumpClock,
    RollBack,
    Wipe,
)
from octopi.simulation.faults.damage import Damage
from octopi.simulation.invariants.committed_log import CommittedLog, agreement
from octopi.simulation.invariants.recoveries import Recoveries
from octopi.simulation.invariants.retirements import Retirements
from octopi.simulation.kernel.world import Event, StepEvent, Violation
from octopi.storage.full_disk import FULL
from octopi.tracing import steps
from octopi.tracing.common import CommitStep, LogStep
from octopi.tracing.durability import PromiseStep
from octopi.wire.messages import PartitionRecord

_NEVER: Final = -2
"""Below every `DecisionView.version`."""


def _says_full(action: BreakDisk) -> bool:
    """Whether calls fail as on a full disk, so that the broker can't tell the difference."""
    how = action.fault.how
    return isinstance(how, Fail) and how.error_number in FULL


def _journal_of(cluster: SimulatedCluster) -> JournalBytes | GroupJournalBytes | None:
    """The journal on the disks of the registers; None: there is no register."""
    if cluster.is_ring:
        return None
    if len(cluster.registers) == 1:
        return JournalBytes(cluster.register.host.disk, DATA_DIRECTORY)
    disks = {one.name: one.host.disk for one in cluster.registers}
    return GroupJournalBytes(disks, DATA_DIRECTORY, lambda: cluster.decided.active)


class ClusterFacts:
    """Observes *cluster*'s world, and knows what a fault excuses."""

    def __init__(
        self, cluster: SimulatedCluster, report: Callable[[Violation], None] | None = None
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._report = report or cluster.world.fail
        self._is_broken = False
        self._view = cluster.decided
        self._logs: dict[str, CommittedLog] = {}
        """The logs by topic id and partition."""
        self._replicas: dict[tuple[str, str, int], ReplicaBytes] = {}
        self._register_journal = _journal_of(cluster)
        self._leaders: dict[tuple[int, int], Event] = {}
        """The step of the first leader, by partition and epoch."""
        self._promised: dict[tuple[str, int], int] = {}
        self._given_up: set[tuple[str, int]] = set()
        """Replicas that are removed together with their promises, so they may begin anew."""
        self._retirements = Retirements(cluster)
        self._filled: set[str] = set()
        """Hosts whose disk is or was full: such a broker need not keep replicas that it gave up."""
        self._flags: dict[tuple[str, int], bool] = {}
        self._data_lost_at: dict[int, int] = {}
        """Broker -> `DecisionView.version` when its data was destroyed last."""
        self._caches_lost_at: dict[tuple[int, int], int] = {}
        """Broker and partition -> the same for page caches that counted."""
        self._caches_lost_in: dict[tuple[int, int], int] = {}
        """Broker and partition -> the incarnation that the register knew then."""
        self._deleted: set[str] = set()
        """The ids of deleted topics."""
        self._deletions: Counter[str] = Counter()
        """How often topics were deleted, by name."""
        self._spoiled: set[str] = set()
        """Hosts with data on their disk that they have not written."""
        self._register_wiped = False
        self._stop_asked_at: dict[str, float] = {}
        """Host -> the time when its process was asked to stop, or continued after a pause in which
        it was asked.  Its tasks run then in any order, so another one may run before the one that
        handles the request.  Processes that are known to have handled it are not listed."""
        self._refuses_in: dict[tuple[str, int], tuple[int, int]] = {}
        """Host and partition -> the epoch and the process in which it leads and has resigned
        because its disk refused records.  Hosts that have taken records since are not listed."""
        self._clocks_differ = False
        """Whether a fault changed the clock of a host, so that ages mean nothing any more."""
        self._accepted_at: dict[tuple[int, int], int] = {}
        """Broker and partition -> `DecisionView.version` when an operator ordered that the broker
        leads with what it has: the loss of data before that is accepted."""
        self._serving_less: set[tuple[str, int]] = set()
        """Hosts and partitions without another replica whose logs are damaged: the records before
        the damage are served until an operator accepts the loss of the rest."""
        self._had_on_device: dict[tuple[str, str, int], int] = {}
        """Host and log -> the end of the committed records on its device when it was damaged."""
        self._cut_to_be: set[tuple[str, str, int]] = set()
        """Hosts and logs with damage whose loss was accepted, and that is not yet removed from the
        log."""
        self._recoveries = Recoveries(cluster)
        self._log_epochs: dict[tuple[str, int], int] = {}
        """Host and partition -> the epoch of the leader that it agreed with last."""

    @property
    def _journal(self) -> JournalBytes | GroupJournalBytes:
        """The journal of the registers, of which the rules about their steps ask."""
        assert self._register_journal is not None
        return self._register_journal

    # --- faults and promises -----------------------------------------------------------

    def _note_fault(self, event: Event) -> None:
        action = event.facts["action"]
        if isinstance(action, DriftClock | JumpClock):
            self._clocks_differ = True
        if isinstance(action, FillDisk) or (isinstance(action, BreakDisk) and _says_full(action)):
            self._filled.add(event.host)
        if isinstance(self._register_journal, GroupJournalBytes):
            self._note_sync_failure(self._register_journal, event)
        if isinstance(action, Wipe | BitFlip | RollBack):
            self._note_loss(event)
        if isinstance(action, Damage) and action.touches_records:
            self._note_loss(event)
            self._note_damage(event.host, action)
        if isinstance(action, Wipe):
            self._register_wiped |= [event.host] == [one.name for one in self._cluster.registers]
        elif isinstance(action, BitFlip | RollBack):
            self._spoiled.add(event.host)
        if isinstance(action, RollBack):
            self._forget_promises(event.host)

    def _note_sync_failure(self, journal: GroupJournalBytes, event: Event) -> None:
        """Note whether the names of files of one of several registers may not be on its device."""
        action = event.facts["action"]
        if isinstance(action, BreakDisk) and action.may_lose_names:
            journal.unsure.add(event.host)
        elif isinstance(action, Wipe):
            journal.unsure.discard(event.host)

    def _note_damage(self, host: str, action: Damage) -> None:
        if self._cluster.nodes[host].kind == "register":
            self._register_wiped = True  # the register gets an empty disk before it serves again
            return
        if not action.is_noticed:
            self._spoiled.add(host)
        broker = self._cluster.broker_of(host)
        for record in self._view.state.partitions.values():
            if record.replicas == [broker]:
                self._serving_less.add((host, record.partition))
        for log in self._live_logs():
            had = min(self._agreed(host, log), self._replica(host, log).durable_end)
            had = log.whole_records_end(Offset(had))
            key = host, log.topic, log.partition
            self._had_on_device[key] = max(had, self._had_on_device.get(key, 0))
        if action.forgets_promises:
            self._forget_promises(host)

    def _note_stop(self, event: Event) -> None:
        self._stop_asked_at[event.host] = event.at

    def _note_resumption(self, event: Event) -> None:
        if event.host in self._stop_asked_at:
            self._stop_asked_at[event.host] = event.at

    def _note_leaving(self, event: StepEvent[steps.E21Stopping]) -> None:
        self._stop_asked_at.pop(event.host, None)

    def _has_heard_stop(self, event: Event) -> bool:
        """Whether the host of *event* must know by now that it is to stop."""
        asked_at = self._stop_asked_at.get(event.host)
        is_asked = self._cluster.nodes[event.host].stop.is_set()
        return is_asked and (asked_at is None or asked_at < event.at)

    def _note_empty_disk(self, event: Event) -> None:
        self._spoiled.discard(event.host)
        self._forget_promises(event.host)

    def _note_deletion(self, event: StepEvent[steps.T5Deleted]) -> None:
        self._forget_topic(event.step.topic, event.step.topic_id)

    def _forget_topic(self, topic: str, topic_id: str) -> None:
        self._deleted.add(topic_id)
        self._deletions[topic] += 1

    def _forget_promises(self, host: str) -> None:
        for key in [key for key in self._promised if key[0] == host]:
            del self._promised[key], self._flags[key]

    def _note_loss(self, event: Event) -> None:
        broker = self._cluster.broker_of(event.host)
        if broker is not None:
            self._data_lost_at[broker] = self._view.version

    def _note_power_loss(self, event: Event) -> None:
        broker = self._cluster.broker_of(event.host)
        list(self._recoveries.found(event))
        for partition in self._view.records:
            # With the sync flag on the device, all data that counts is there, too.
            if broker is not None and not self._flags.get((event.host, partition)):
                self._caches_lost_at[broker, partition] = self._view.version
                if known := self._view.incarnation(broker, partition):
                    self._caches_lost_in[broker, partition] = known

    def _note_flag(self, event: StepEvent[PromiseStep]) -> None:
        key = event.host, event.step.partition
        self._flags[key] = self._flags.get(key, False) and event.step.sync_flag

    def _note_promise(self, event: StepEvent[PromiseStep]) -> None:
        key, promised = (event.host, event.step.partition), event.step.promised
        before = self._promised.get(key, 0)
        self._promised[key] = promised
        self._log_epochs[key] = event.step.log_epoch
        self._flags[key] = event.step.sync_flag
        if promised < before and key in self._given_up:
            self._given_up.discard(key)
        elif promised < before:
            text = f"{event.host} promised epoch {before} of partition {key[1]}, and promises "
            self._break("promise-forgotten", text + f"{promised} now", event)

    def _note_giving_up(self, event: StepEvent[steps.J13Retiring]) -> None:
        partition = event.step.partition
        self._given_up.add((event.host, partition))
        self._retirements.begins(event, self._live_logs(partition))
        if self._cluster.nodes[event.host].host.disk.capacity_bytes is not None:
            self._filled.add(event.host)

    def _check_kept(self, event: StepEvent[steps.J13Retired]) -> None:
        partition = event.step.partition
        missing = self._retirements.missing(event, self._live_logs(partition))
        if missing and event.host not in self._filled:
            text = f"{event.host} gave up its replica of partition {partition}, and doesn't keep "
            self._break("retired-unkept", text + missing, event)

    def _log(self, event: StepEvent[LogStep]) -> CommittedLog:
        step = event.step
        key = f"{step.topic_id}/{step.partition}"
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = CommittedLog(step.topic, step.partition)
        return log

    def _live_logs(self, partition: PartitionId | None = None) -> list[CommittedLog]:
        """The logs of *partition* (None: of all partitions) whose topics were not deleted.  A
        deleted topic that an older copy of a disk brought back still counts as deleted.  Internal
        logs always exist."""
        return [
            log
            for key, log in self._logs.items()
            if partition in {None, log.partition}
            and (topic_id := self._topic_id(log))
            and topic_id not in self._deleted
            and key == f"{topic_id}/{log.partition}"
        ]

    def _topic_id(self, log: CommittedLog) -> str:
        """The id of the log's present topic, or the name of an internal log; empty if there is no
        such topic."""
        if log.topic in RING_LOGS:
            return log.topic
        topic = self._view.state.topic(log.topic)
        return topic.topic_id if topic is not None else ""

    def _replica(self, host: str, log: CommittedLog) -> ReplicaBytes:
        key = host, log.topic, log.partition
        replica = self._replicas.get(key)
        if replica is None:
            disk = self._cluster.nodes[host].host.disk
            replica = self._replicas[key] = ReplicaBytes(
                disk, DATA_DIRECTORY, log.topic, log.partition
            )
        return replica

    def _agreed(self, host: str, log: CommittedLog) -> int:
        """The offset up to which *host* has the committed records.  Only whole records count,
        because records of another leader may begin with the same bytes."""
        replica = self._replica(host, log)
        start = min(replica.start, log.end)
        agreed = agreement(replica.read(start, log.end), log.data[start:])
        return log.whole_records_end(Offset(start + agreed))

    def _log_epoch(self, broker: BrokerId, record: PartitionRecord) -> int:
        return self._log_epochs.get((self._cluster.host_of(broker), record.partition), 0)

    def _has_its_disk(self, broker: BrokerId) -> bool:
        """Whether *broker* has the disk that it began with, with the data that it wrote there."""
        host = self._cluster.host_of(broker)
        return bool(host) and host not in self._spoiled and broker == self._cluster.broker_of(host)

    def _is_excused(self, broker: BrokerId, log: CommittedLog) -> bool:
        """Whether the in-sync set relies on data of *broker* that a fault destroyed."""
        if not self._has_its_disk(broker):
            return True
        known = self._view.incarnation(broker, log.partition)
        lost_in = self._caches_lost_in.get((broker, log.partition))
        if known and known == lost_in and self._counts_cache(log):
            return True  # the next incarnation reverses a decision about an ended one
        lost_at = self._lost_at(broker, log)
        return self._view.was_out_of_sync(log.partition, broker) <= lost_at

    def _lost_at(self, broker: BrokerId, log: CommittedLog) -> int:
        """The `DecisionView.version` when data of it that counted was destroyed last."""
        lost_at = self._data_lost_at.get(broker, _NEVER)
        if lost_at <= self._accepted_at.get((broker, log.partition), _NEVER):
            lost_at = _NEVER
        if self._counts_cache(log):
            lost_at = max(lost_at, self._caches_lost_at.get((broker, log.partition), _NEVER))
        return lost_at

    def _counts_cache(self, log: CommittedLog) -> bool:
        if log.topic == TOPICS_LOG:
            return False
        if log.topic in INTERNAL_LOGS:
            topics = self._view.state.topics_on({log.partition})
            return not all(map(self._view.has_always_flushed, topics))
        topic = self._view.state.topic(log.topic)
        return topic is None or not self._view.has_always_flushed(topic)

    def _taken_out(self, log: CommittedLog, step: CommitStep) -> set[int]:
        """The brokers that lost data and have been removed from the in-sync set.  A leader that
        doesn't know of it may still count what they acknowledged before."""
        record = self._view.state.partitions.get(log.partition)
        known = step.epoch, step.version
        if record is None or (record.epoch, record.version) <= known:
            return set()
        out = set(step.in_sync) - set(record.in_sync)
        return {broker for broker in out if self._lost_at(broker, log) != _NEVER}

    def _break(self, rule: str, text: str, event: Event, *others: Event) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._report(Violation(rule, text, (*others, event)))
