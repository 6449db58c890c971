"""What all clients of one run share: the history, the time, and the complaints."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from octopi.clients.client import Client, connect
from octopi.clients.producing.receipts import Receipt
from octopi.environment import Environment
from octopi.errors import DeliveryError, OctopiError, RefusedError, Status
from octopi.identifiers import PartitionId, TopicId
from octopi.roles.broker.log_files import log_directory
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.faults.actions import goes_unnoticed
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.history.events import (
    Acknowledged,
    Delivered,
    Event,
    History,
    Invoked,
    LogName,
    LossTold,
)
from octopi.simulation.history.outcomes import outcome_of
from octopi.simulation.invariants.recoveries import Recoveries
from octopi.simulation.invariants.relay_view import MemoryLoss
from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import Event as WorldEvent
from octopi.wire.messages import PartitionRecord
from sim.run.plan import Plan
from sim.run.too_few import RunningBrokers

RELAY_QUORUM_MIN: Final = 2
"""So many relays have to write what is acknowledged, at least: a set has three of them, or two."""


class ClientLog:
    """The history and complaints of the clients of *cluster* in one run of *plan*."""

    def __init__(self, cluster: SimulatedCluster, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.history = History()
        self.complaints: list[str] = []
        """Errors that clients got and that no fault excuses."""
        self.logs: list[LogName] = []
        """The logs of the topics that all clients use."""
        self.streams: list[LogName] = []
        """The same of topics in memory, with the numbers of relay partitions."""
        self.is_memory_lost = False
        """Whether so many relays were lost that what producers had sent may be forgotten."""
        self.stream_ids: dict[str, LogName] = {}
        """The topics in memory by their ids."""
        self.topics_made = trio.Event()
        """Set when `logs` has all of them."""
        self.all_well = trio.Event()
        """Set when everything is healed, and all brokers serve again."""
        self.disks_fail: Callable[[], bool] = lambda: False
        """Whether any disk has failed so far."""
        self.unfit: set[str] = set()
        """Hosts that get new disks as soon as others hold what is on the old ones."""
        self.acknowledged_end: dict[LogName, int] = {}
        """The end of the newest acknowledged message of each log, even if it was lost since."""
        self.removed_end: dict[LogName, int] = {}
        """Records before it were removed by retention from some replica, or given up by an
        operator's order, so they need not exist any more."""
        self.flushed_end: dict[LogName, int] = {}
        """The end of each log when everything was on the devices; what lies before it can't be lost
        by a power failure."""
        self.unnoticed_count = 0
        """How many disks were changed in a way that their broker can't detect.  While it leads
        without what was committed, messages that were settled come again, also as dead letters."""
        cluster.world.observe(self._note_fault, {FAULT})
        cluster.relays.losses.append(self._see_memory_loss)
        self._recoveries = Recoveries(cluster)
        self._running = RunningBrokers(cluster, plan.latency_s)
        self._sent_at: dict[bytes, float] = {}
        self._client_count = 0
        if plan.loses_all or plan.loses_last:
            cluster.world.observe(self._see_recovery, Recoveries.kinds)
        if plan.retention_bytes is not None or plan.retention_ms is not None:
            for node in cluster.nodes.values():
                node.host.effect_observers.append(self._see_effect)

    @property
    def now(self) -> float:
        """The virtual time in seconds, with which events are noted."""
        return self.cluster.world.now

    @property
    def may_repeat(self) -> bool:
        """Whether messages that were confirmed may come again, to members with claims that were
        given before: a log is lost, or a broker leads without what was committed."""
        return self.plan.may_lose or self.unnoticed_count > 0

    @property
    def topics(self) -> list[str]:
        """The names of the topics that all clients use."""
        return [f"topic-{number}" for number in range(1, self.plan.workload.topics + 1)]

    @property
    def relay_topics(self) -> list[str]:
        """The names of the topics in memory that all clients use."""
        return [f"memory-{number}" for number in range(1, self.plan.workload.relay_topics + 1)]

    def may_forget_before(self, stream: LogName) -> int:
        """What lies before this offset of a stream may be overwritten."""
        count = self.plan.workload.relay_buffer_count
        ids = [one for one, known in self.stream_ids.items() if known == stream]
        facts = self.cluster.relays.partitions.get(stream.partition)
        if count is None or facts is None or not ids:
            return 0
        return facts.stream(TopicId(ids[0])).kept_from(count)

    def _see_memory_loss(self, loss: MemoryLoss) -> None:
        """Note what a new timeline lacks, if the promise allows that: otherwise it counts as
        lost."""
        stream = self.stream_ids.get(loss.topic_id)
        if stream is not None and not loss.is_covered:
            self.is_memory_lost = True
            self.note(LossTold(self.now, stream, loss.kept_end, loss.epoch))

    def _note_fault(self, event: WorldEvent) -> None:
        self.unnoticed_count += goes_unnoticed(event.facts["action"])

    def _see_effect(self, life: ProcessLife, operation: str, edge: str, path: str) -> None:
        """Note the start of a log when a segment was removed from its beginning.  The step at the
        end of retention (`octopi.tracing.durability.D4Retired`) would be too late: the broker may
        be killed between two segments, or its disk may fail there."""
        if (operation, edge) != ("remove", "after") or not path.endswith(".log"):
            return
        for log in self.logs:
            directory = log_directory(DATA_DIRECTORY, PartitionId(log.partition), log.topic)
            if path.startswith(f"{directory}/"):
                held = ReplicaBytes(life.host.disk, DATA_DIRECTORY, log.topic, log.partition)
                start = held.start if held.segments() else 0  # it may have to begin anew
                self.removed_end[log] = max(self.removed_end.get(log, 0), start)

    def _see_recovery(self, event: WorldEvent) -> None:
        """Note which records the register says may be lost.  Records that were flushed before they
        were acknowledged can only be lost by an operator's order."""
        is_flushed = self.plan.flush_before_ack and not self.plan.loses_last
        for record in self._recoveries.found(event):
            for log in self.logs:
                if log.partition == record.partition and not is_flushed:
                    end = max(self._kept_end(log, record), self.flushed_end.get(log, 0))
                    self.note(LossTold(self.now, log, end, record.epoch))

                if log.partition == record.partition and self.plan.loses_last:
                    start = self._held(log, record).start
                    self.removed_end[log] = max(self.removed_end.get(log, 0), start)

    def _held(self, log: LogName, record: PartitionRecord) -> ReplicaBytes:
        """The files of *log* on the disk of the leader in *record*."""
        disk = self.cluster.nodes[self.cluster.host_of(record.leader)].host.disk
        return ReplicaBytes(disk, DATA_DIRECTORY, log.topic, log.partition)

    def _kept_end(self, log: LogName, record: PartitionRecord) -> int:
        """The offset up to which the leader in *record* holds what clients know of *log*."""
        held = self._held(log, record)
        end = held.end
        topic = self.cluster.decided.state.topic(log.topic)
        said = self._recoveries.accepted(record).get(record.leader)
        if said is not None and topic is not None and topic.topic_id in said.damaged:
            end = min(end, said.ends[topic.topic_id])  # the rest is set aside
        if not self.plan.loses_last:
            return end
        # A leader that was not in sync may have other records than those that were acknowledged.
        # Consumers that read before its start are told.
        others = (
            one.offset
            for one in self.history.events
            if isinstance(one, Acknowledged | Delivered)
            and one.log == log
            and held.start <= one.offset
            and one.next_offset <= end
            and one.value not in held.read(one.offset, one.next_offset)
        )
        return min(others, default=end)

    def note(self, event: Event) -> None:
        """Note *event* in the history."""
        self.history.note(event)
        if isinstance(event, Invoked):
            self._sent_at[event.value] = event.at
        elif isinstance(event, Acknowledged):
            needed = RELAY_QUORUM_MIN if event.log in self.streams else 0
            if what := self._running.complaint(self._sent_at[event.value], event, needed):
                self.complaints.append(what)
            known_end = self.acknowledged_end.get(event.log, 0)
            self.acknowledged_end[event.log] = max(event.next_offset, known_end)

    def settled(self, value: bytes, outcome: Receipt | OctopiError) -> None:
        """Note the *outcome* of sending the message with *value*."""
        self.note(outcome_of(self.now, value, outcome))

    def complain(self, who: str, error: OctopiError) -> None:
        """Note that *who* got *error*, which only a failing disk excuses: a register whose disk
        fails may have carried out a request that it refused, and refuses a repetition."""
        is_of_disks = isinstance(error, RefusedError) and error.meaning.after_disk_failure
        if self.disks_fail() and is_of_disks:
            return
        self.complaints.append(f"{who} was told at {self.now:.6f} s: {error!r}")

    def complain_of_haste(self, who: str, error: DeliveryError) -> None:
        """Note that *who*, a producer, gave a message up before its time-out.  It may do so if the
        outcome can't be known any more: because a disk failed, a power failure took only the last
        records of a batch, or retention has removed the records that it repeated."""
        cause = error.__cause__
        unknowable = {Status.SEQUENCE_GAP}
        if self.plan.loses_all or self.plan.loses_last:
            unknowable.add(Status.UNKNOWN_PRODUCER)  # all that the log had of it may be lost
        if self.plan.workload.named_producers:
            # Its epoch was over, and the answer with the next one was lost.
            unknowable.add(Status.PRODUCER_FENCED)
        if self.is_memory_lost:
            unknowable |= {Status.UNKNOWN_PRODUCER, Status.RECEIPT_FORGOTTEN}
        if any(self.removed_end.values()):
            unknowable.add(Status.RECEIPT_FORGOTTEN)
        is_unknowable = isinstance(cause, RefusedError) and cause.status in unknowable
        if not is_unknowable and not self.disks_fail():
            self.complaints.append(f"{who} gave up early, at {self.now:.6f} s: {error!r}")

    def connected(self, environment: Environment) -> AbstractAsyncContextManager[Client]:
        """A client of the cluster, for a block, that was told the nodes that the plan says."""
        return connect(self._servers(), environment=environment)

    def forwarded(self, environment: Environment) -> AbstractAsyncContextManager[Client]:
        """A client whose messages brokers pass on, for a block."""
        brokers = self._shuffled_brokers()
        return connect(brokers, environment=environment, on_wrong_node="forward")

    def _servers(self) -> list[str]:
        cluster, entrances = self.cluster, self.plan.workload.entrances
        if entrances == "register":
            return cluster.addresses
        brokers = self._shuffled_brokers()
        return brokers if entrances == "brokers" else [brokers[0], *cluster.addresses]

    def _shuffled_brokers(self) -> list[str]:
        cluster = self.cluster
        self._client_count += 1
        # A broker that is cut off for good answers nobody.
        names = [one.name for one in cluster.brokers if one.name != self.plan.cut_off]
        brokers = [cluster.address_of(name) for name in names]
        cluster.world.random("entrances", self._client_count).shuffle(brokers)
        return brokers
