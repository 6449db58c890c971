"""The oracle's rules about elections, about what is decided, and about in-sync sets.

======================= ================================================================
rule                    broken when
======================= ================================================================
two-leaders             (W5) two processes lead in one epoch, or one leads that the register
                        did not appoint
undecided-told          (W5) the register tells brokers what is not on its device, or counts it
                        as flushed
epoch-used-again        (W5) the register begins an election with an epoch that a member of
                        the in-sync set has promised before
promise-forgotten       (W5) a broker accepts an epoch whose promise is not on its device, or acts
                        in an older epoch than it promised; or it proposes to lead alone before
                        the sync flag is on its device
stopping-proposes       (W5) a broker that heard that it shall stop proposes to remove a member of
                        the in-sync set: it must hand over, and the other members may have to lead
refusing-proposes       (W5) a leader whose disk refused records, and has not taken any since,
                        proposes to remove a member of the in-sync set: another one has to lead
in-sync-unasked         (W5, W8) the register decides that a broker is in sync that hasn't promised
                        the epoch, or because of what another incarnation of it held
======================= ================================================================
"""

from __future__ import annotations

from collections.abc import Iterable

from octopi.coordination.journal_entries import PartitionDecided
from octopi.identifiers import BrokerId, Offset
from octopi.simulation.invariants.committed_log import CommittedLog, agreement
from octopi.simulation.invariants.succession import Succession
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.tracing import steps
from octopi.tracing.common import EpochStep
from octopi.wire.messages import PartitionRecord


class ElectionRules(Succession):
    """The rules about a leadership, from the announcement of its epoch until the leader begins."""

    def _check_acceptance(self, event: StepEvent[steps.E6Accepting]) -> None:
        epoch, partition = event.step.epoch, event.step.partition
        promised = self._promised.get((event.host, partition), 0)
        if promised < epoch:
            text = f"{event.host} accepts epoch {epoch} of partition {partition}; its disk has "
            self._break("promise-forgotten", text + f"a promise of epoch {promised}", event)

    def _check_proposal(self, event: StepEvent[steps.E16Proposing]) -> None:
        leader, partition = event.step.leader, event.step.partition
        known = self._view.state.partitions.get(partition)
        if (
            self._has_heard_stop(event)
            and known is not None
            and not set(known.in_sync) <= set(event.step.in_sync)
        ):
            text = f"{event.host} was asked to stop, and proposes the in-sync set "
            text += f"{event.step.in_sync} of partition {partition}, instead of {known.in_sync}"
            self._break("stopping-proposes", text, event)
        in_epoch = event.step.epoch, event.step.leader_incarnation
        if (
            self._refuses_in.get((event.host, partition)) == in_epoch
            and known is not None
            and not set(known.in_sync) <= set(event.step.in_sync)
        ):
            text = f"the disk of {event.host}, which leads partition {partition}, refused records, "
            text += f"and it proposes the in-sync set {event.step.in_sync}, instead of "
            self._break("refusing-proposes", text + str(known.in_sync), event)
        if event.step.in_sync == [leader] and not self._flags.get((event.host, partition)):
            text = f"{event.host} proposes to lead partition {partition} alone; its device lacks "
            self._break("promise-forgotten", text + "the sync flag", event)

    def _note_resignation(self, event: StepEvent[steps.E19Resigning]) -> None:
        in_epoch = event.step.epoch, event.step.leader_incarnation
        self._refuses_in[event.host, event.step.partition] = in_epoch

    def _note_append(self, event: StepEvent[steps.P2Appended]) -> None:
        self._refuses_in.pop((event.host, event.step.partition), None)

    def _check_decision(self, event: StepEvent[steps.E8Decided]) -> None:
        self._note_recovery(event)
        for entry in event.step.entries:
            if isinstance(entry, PartitionDecided):
                self._check_acceptances(event, entry.record)
                self._check_record(event, entry.record)
                if not event.step.losses:
                    self._orders.discard(entry.record.partition)  # no records had to be given up

    def _check_acceptances(self, event: Event, record: PartitionRecord) -> None:
        before = self._record_before(record)
        if before is not record and _leader(before) == _leader(record):
            return  # the leader goes on, and commits with all in-sync replicas as before
        if record.recovered_epoch == record.epoch:
            return  # the leader is alone in sync; if it begins empty, it has nothing to promise
        missing = [
            broker
            for broker in record.in_sync
            if self._has_its_disk(broker)
            and self._promised.get((self._cluster.host_of(broker), record.partition), 0)
            < record.epoch
        ]
        # If more than one has to be in sync, these may stay: the leader waits for them to follow.
        if missing and self._view.min_insync(record.partition) == 1:
            text = f"brokers {missing} are decided to be in sync in epoch {record.epoch} of "
            text += f"partition {record.partition}, and have not promised it"
            self._break("in-sync-unasked", text, event)

    def _check_joiner(self, event: StepEvent[steps.E17Altering]) -> None:
        asked, record = event.step.asked, event.step.record
        if record is None or not event.step.accepted or asked.joiner_incarnation is None:
            return
        known = self._view.state.partitions.get(asked.partition)
        for broker in set(record.in_sync).difference(known.in_sync if known else ()):
            life = self._view.incarnation_to_be(broker)
            if life != asked.joiner_incarnation:
                text = f"broker {broker} joins the in-sync set of partition {asked.partition} for "
                text += f"what its incarnation {asked.joiner_incarnation} held; it is {life} now"
                self._break("in-sync-unasked", text, event)

    def _check_altered(self, event: StepEvent[steps.E17Altered]) -> None:
        record = event.step.record
        if event.step.accepted and record is not None:
            self._require_durable(event, record, event.step.asked.leader)
            self._check_record(event, record)

    def _check_record(self, event: Event, record: PartitionRecord) -> None:
        for log in self._live_logs(record.partition):
            self._require_complete(event, log, record.in_sync)

    def _check_told(self, event: StepEvent[steps.E9Telling]) -> None:
        for record in event.step.records:
            self._require_durable(event, record, event.step.broker)

    def _require_durable(self, event: Event, record: PartitionRecord, broker: BrokerId) -> None:
        """Check that *record*, of which the register tells *broker*, is on the register's disk."""
        known = self._view.state.partitions.get(record.partition)
        told = record.epoch, record.version
        if known is not None and told <= (known.epoch, known.version):
            return
        if not self._journal.is_durable:
            text = f"the register tells broker {broker} a decision about partition "
            text += f"{record.partition} that is not on its disk"
            self._break("undecided-told", text, event)

    def _check_journal(self, event: StepEvent[steps.R3Flushed]) -> None:
        durable_end, end = self._journal.durable_end, event.step.log_end
        # Tasks that wait for the flush go on before this step is traced.
        if durable_end < end:
            text = f"the register counts its journal as flushed up to {end}; its device has it to "
            self._break("undecided-told", text + str(durable_end), event)

    def _check_epoch(self, event: StepEvent[steps.E2Announced]) -> None:
        partition, epoch = event.step.partition, event.step.epoch
        record = self._view.state.partitions.get(partition)
        for broker in record.in_sync if record is not None else ():
            host = self._cluster.host_of(broker)
            if self._has_its_disk(broker) and self._promised.get((host, partition), 0) >= epoch:
                text = f"epoch {epoch} of partition {partition} is announced as new; {host} "
                self._break("epoch-used-again", text + "has promised it before", event)

    def _check_announced(self, event: StepEvent[steps.E3Announcing]) -> None:
        partition, epoch = event.step.partition, event.step.epoch
        known = self._view.state.announced_epoch(partition)
        if epoch > known and not self._journal.is_durable:
            text = f"the register announces epoch {epoch} of partition {partition} to broker "
            text += f"{event.step.broker}, and the epoch is not on its disk"
            self._break("undecided-told", text, event)

    def _check_role(self, event: StepEvent[EpochStep]) -> None:
        partition, epoch = event.step.partition, event.step.epoch
        promised = self._promised.get((event.host, partition), 0)
        if epoch < promised:
            text = f"{event.host} acts in epoch {epoch} of partition {partition}; it has promised "
            self._break("promise-forgotten", text + f"epoch {promised}", event)

    def _check_leader(self, event: StepEvent[steps.E11Leading]) -> None:
        partition, epoch = event.step.partition, event.step.epoch
        self._check_role(event)
        first = self._leaders.setdefault((partition, epoch), event)
        if (first.host, first.life) != (event.host, event.life):
            text = f"{first.host} and {event.host} lead partition {partition} in epoch {epoch}"
            self._break("two-leaders", text, event, first)
            return
        record = self._view.state.partitions.get(partition)
        if record is None:
            if not self._register_wiped:
                text = f"{event.host} leads partition {partition}, about which nothing is decided"
                self._break("two-leaders", text, event)
        elif record.epoch > epoch:
            return  # a process that was paused: it learns this when it tries to commit
        elif record.epoch == epoch and self._cluster.host_of(record.leader) != event.host:
            text = f"{event.host} leads partition {partition} in epoch {epoch}; the register "
            self._break("two-leaders", text + f"appointed broker {record.leader}", event)
        for log in self._live_logs(partition):
            if (
                event.host not in self._spoiled
                and (event.host, partition) not in self._serving_less
            ):
                self._require_held(event, log, event.host)

    def _require_complete(
        self, event: Event, log: CommittedLog, brokers: Iterable[BrokerId]
    ) -> None:
        for broker in brokers:
            if not self._is_excused(broker, log):
                self._require_held(event, log, self._cluster.host_of(broker))

    def _require_held(self, event: Event, log: CommittedLog, host: str) -> None:
        """Check that *host* has all committed records of *log*."""
        if (host, log.topic, log.partition) in self._cut_to_be:
            return
        replica = self._replica(host, log)
        start = min(replica.start, log.end)
        ours, committed = replica.read(start, log.end), log.data[start:]
        if replica.start > log.removed_end:
            text = f"{host} leads or is in sync, and has {log.name} from {replica.start} on; it "
            text += f"must keep the records from {log.removed_end} on"
            self._break("removed-too-early", text, event)
        elif ours != committed:
            at = start + agreement(ours, committed)
            text = f"{host} leads or is in sync, and of {log.name} it lacks what is committed "
            text += f"from {at} to {log.end}"
            self._break("incomplete-leader", text, event, *log.committed_by(Offset(at)))

    def _check_cut(self, event: StepEvent[steps.E13Truncating]) -> None:
        log, end = self._log(event), event.step.end
        record = self._view.state.partitions.get(log.partition)
        broker = self._cluster.broker_of(event.host)
        if end >= log.end or record is None or broker is None:
            return
        # A replica that isn't in sync may cut such records: it may have them from an epoch that was
        # replaced before it committed them.  But it must keep what it knows as committed.
        is_in_sync = broker in record.in_sync and not self._is_excused(broker, log)
        where = event.host, event.life
        known = max(log.highwater.get(where, 0), log.opened_with.get(where, 0))
        if not (is_in_sync or (end < known and event.host not in self._spoiled)):
            return
        until, commit = next(
            ((until, commit) for until, commit in log.commits if until > end), (0, event)
        )
        if self._replica(event.host, log).read(end, until) == log.data[end:until]:
            text = f"{event.host} cuts {log.name} at {end}; it has the committed records up to "
            self._break("committed-cut", text + str(until), event, commit)


def _leader(record: PartitionRecord) -> tuple[int, int]:
    """The leader and its incarnation."""
    return record.leader, record.leader_incarnation
