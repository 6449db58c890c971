"""What the oracle knows of a cluster besides its rules: the faults that befell it, what replicas
promised, which logs there are, and whom a fault excuses.

`octopi.simulation.invariants.oracle` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.identifiers import INTERNAL_LOGS, BrokerId, Offset, PartitionId
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.disk.faults import Fail
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
"""Before any `RegisterView.version`."""


def _says_full(action: BreakDisk) -> bool:
    """Whether calls fail as those to a full disk do: the broker can't tell it from one."""
    how = action.fault.how
    return isinstance(how, Fail) and how.error_number in FULL


class ClusterFacts:
    """Observes *cluster*'s world, and knows what of it is excused."""

    def __init__(
        self, cluster: SimulatedCluster, report: Callable[[Violation], None] | None = None
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._report = report or cluster.world.fail
        self._is_broken = False
        self._view = cluster.register_view
        self._logs: dict[str, CommittedLog] = {}
        """By topic id and partition."""
        self._replicas: dict[tuple[str, str, int], ReplicaBytes] = {}
        self._journal = JournalBytes(cluster.register.host.disk, DATA_DIRECTORY)
        self._leaders: dict[tuple[int, int], Event] = {}
        """Who led first, by partition and epoch."""
        self._promised: dict[tuple[str, int], int] = {}
        self._given_up: set[tuple[str, int]] = set()
        """Replicas that are removed with what they promised: they may begin anew."""
        self._retirements = Retirements(cluster)
        self._filled: set[str] = set()
        """Hosts whose disk was full, or is: such a broker keeps nothing that it gave up."""
        self._flags: dict[tuple[str, int], bool] = {}
        self._data_lost_at: dict[int, int] = {}
        """Broker -> `RegisterView.version` when data was taken from it last."""
        self._caches_lost_at: dict[tuple[int, int], int] = {}
        """Broker and partition -> the same, of page caches that counted."""
        self._caches_lost_in: dict[tuple[int, int], int] = {}
        """Broker and partition -> the incarnation that the register knew then."""
        self._deleted: set[str] = set()
        """Topic ids."""
        self._spoiled: set[str] = set()
        """Hosts whose disk holds what they never wrote there."""
        self._register_wiped = False
        self._stop_asked_at: dict[str, float] = {}
        """Host -> the moment at which its process was asked to stop, or went on after a pause in
        which it was asked: its tasks take their turns then, and the one that hears of it may not be
        the first.  Without those that are known to have heard."""
        self._refuses_in: dict[tuple[str, int], tuple[int, int]] = {}
        """Host and partition -> the epoch and life in which it leads and resigned, because its disk
        refused records.  Without those that have taken records since."""
        self._clocks_differ = False
        """Whether a fault changed the clock of a host: ages mean nothing any more."""
        self._accepted_at: dict[tuple[int, int], int] = {}
        """Broker and partition -> `RegisterView.version` when it was ordered that the broker leads
        with what it has: what was taken from it before that is given up."""
        self._serving_less: set[tuple[str, int]] = set()
        """Hosts and partitions that have no other replica, and whose logs are damaged: what lies
        before the damage is served until an operator gives up the rest."""
        self._had_on_device: dict[tuple[str, str, int], int] = {}
        """Host and log -> up to where its device had what was committed when it was damaged."""
        self._cut_to_be: set[tuple[str, str, int]] = set()
        """Hosts and logs whose damage was given up, and is not taken out of the log yet."""
        self._recoveries = Recoveries(cluster)
        self._log_epochs: dict[tuple[str, int], int] = {}
        """Host and partition -> the epoch of the leader that it agreed with last."""

    # --- what the world is like --------------------------------------------------------

    def _note_fault(self, event: Event) -> None:
        action = event.facts["action"]
        if isinstance(action, DriftClock | JumpClock):
            self._clocks_differ = True
        if isinstance(action, FillDisk) or (isinstance(action, BreakDisk) and _says_full(action)):
            self._filled.add(event.host)
        if isinstance(action, Wipe | BitFlip | RollBack):
            self._note_loss(event)
        if isinstance(action, Damage) and action.touches_records:
            self._note_loss(event)
            self._note_damage(event.host, action)
        if isinstance(action, Wipe):
            self._register_wiped |= self._cluster.nodes[event.host].kind == "register"
        elif isinstance(action, BitFlip | RollBack):
            self._spoiled.add(event.host)
        if isinstance(action, RollBack):
            self._forget_promises(event.host)

    def _note_damage(self, host: str, action: Damage) -> None:
        if self._cluster.nodes[host].kind == "register":
            self._register_wiped = True  # it gets an empty disk before it serves again
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
        """Whether the host of *event* knows by now that it is to stop."""
        asked_at = self._stop_asked_at.get(event.host)
        is_asked = self._cluster.nodes[event.host].stop.is_set()
        return is_asked and (asked_at is None or asked_at < event.at)

    def _note_empty_disk(self, event: Event) -> None:
        self._spoiled.discard(event.host)
        self._forget_promises(event.host)

    def _note_deletion(self, event: StepEvent[steps.T5Deleted]) -> None:
        self._deleted.add(event.step.topic_id)

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
            # With the flag on the device, all that counts is there, too.
            if broker is not None and not self._flags.get((event.host, partition)):
                self._caches_lost_at[broker, partition] = self._view.version
                if (known := self._view.state.brokers.get(broker)) is not None:
                    self._caches_lost_in[broker, partition] = known.incarnation

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
        """The logs of *partition* (None: of all) whose topics weren't deleted, nor brought back
        after that by a disk that is as it was before; internal logs always are there."""
        return [
            log
            for key, log in self._logs.items()
            if partition in {None, log.partition}
            and (topic_id := self._topic_id(log))
            and topic_id not in self._deleted
            and key == f"{topic_id}/{log.partition}"
        ]

    def _topic_id(self, log: CommittedLog) -> str:
        """That of the log's topic as it is now, or the name of an internal log; empty: there is no
        such topic."""
        if log.topic in INTERNAL_LOGS:
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
        """Up to where *host* has what is committed: whole records, as those of another leader may
        begin with the same bytes."""
        replica = self._replica(host, log)
        start = min(replica.start, log.end)
        agreed = agreement(replica.read(start, log.end), log.data[start:])
        return log.whole_records_end(Offset(start + agreed))

    def _log_epoch(self, broker: BrokerId, record: PartitionRecord) -> int:
        return self._log_epochs.get((self._cluster.host_of(broker), record.partition), 0)

    def _has_its_disk(self, broker: BrokerId) -> bool:
        """Whether *broker* has the disk that it began with, and what it wrote there."""
        host = self._cluster.host_of(broker)
        return bool(host) and host not in self._spoiled and broker == self._cluster.broker_of(host)

    def _is_excused(self, broker: BrokerId, log: CommittedLog) -> bool:
        """Whether the in-sync set counts on data that a fault took from *broker*."""
        if not self._has_its_disk(broker):
            return True
        known = self._view.state.brokers.get(broker)
        lost_in = self._caches_lost_in.get((broker, log.partition))
        if known is not None and known.incarnation == lost_in and self._counts_cache(log):
            return True  # what is decided about a life that is over, its next one undoes
        lost_at = self._lost_at(broker, log)
        return self._view.was_out_of_sync(log.partition, broker) <= lost_at

    def _lost_at(self, broker: BrokerId, log: CommittedLog) -> int:
        """The `RegisterView.version` when something that counted was taken from it last."""
        lost_at = self._data_lost_at.get(broker, _NEVER)
        if lost_at <= self._accepted_at.get((broker, log.partition), _NEVER):
            lost_at = _NEVER
        if self._counts_cache(log):
            lost_at = max(lost_at, self._caches_lost_at.get((broker, log.partition), _NEVER))
        return lost_at

    def _counts_cache(self, log: CommittedLog) -> bool:
        if log.topic in INTERNAL_LOGS:
            topics = self._view.state.topics_on({log.partition})
            return not all(one.options.flush_before_ack for one in topics)
        topic = self._view.state.topic(log.topic)
        return topic is None or not topic.options.flush_before_ack

    def _taken_out(self, log: CommittedLog, step: CommitStep) -> set[int]:
        """Who lost what it held and is out of the in-sync set by now: a leader that has not heard
        so may go on to count what it acknowledged before."""
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
