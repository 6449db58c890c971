"""The oracle's rules about elections, about what is decided, and about in-sync sets.

======================= ================================================================
rule                    broken when
======================= ================================================================
two-leaders             (W5) two lives lead in one epoch, or a record appoints nobody
                        that leads
undecided-told          (W5) the register tells what it may forget, or takes that for
                        flushed
epoch-used-again        (W5) the register begins a change with an epoch that a member of
                        the in-sync set has promised before
promise-forgotten       (W5) a broker accepts an epoch that it would forget, or acts in an
                        older one; or it asks to lead alone and would forget that
stopping-proposes       (W5) a broker that heard that it is to stop asks to have fewer in sync: it
                        is to hand over, and those that stay are to lead
refusing-proposes       (W5) a leader whose disk refused records, and has not taken any since, asks
                        to have fewer in sync: another one of them is to lead
in-sync-unasked         (W5, W8) a broker is decided to be in sync that hasn't promised the
                        epoch, or by what another life of it held
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
    """What has to hold of a leadership, from the announced epoch to the leader that begins."""

    def _check_acceptance(self, event: StepEvent[steps.E6Accepting]) -> None:
        epoch, partition = event.step.epoch, event.step.partition
        promised = self._promised.get((event.host, partition), 0)
        if promised < epoch:
            text = f"{event.host} accepts epoch {epoch} of partition {partition}; on its disk is "
            self._break("promise-forgotten", text + f"a promise of {promised}", event)

    def _check_proposal(self, event: StepEvent[steps.E16Proposing]) -> None:
        leader, partition = event.step.leader, event.step.partition
        known = self._view.state.partitions.get(partition)
        if (
            self._has_heard_stop(event)
            and known is not None
            and not set(known.in_sync) <= set(event.step.in_sync)
        ):
            text = f"{event.host} was asked to stop, and asks to have only {event.step.in_sync}"
            text += f" in sync in partition {partition}, instead of {known.in_sync}"
            self._break("stopping-proposes", text, event)
        in_epoch = event.step.epoch, event.step.leader_incarnation
        if (
            self._refuses_in.get((event.host, partition)) == in_epoch
            and known is not None
            and not set(known.in_sync) <= set(event.step.in_sync)
        ):
            text = f"the disk of {event.host}, which leads partition {partition}, refused records, "
            text += f"and it asks to have only {event.step.in_sync} in sync, instead of "
            self._break("refusing-proposes", text + str(known.in_sync), event)
        if event.step.in_sync == [leader] and not self._flags.get((event.host, partition)):
            text = (
                f"{event.host} asks to lead partition {partition} alone; its device doesn't have "
            )
            self._break("promise-forgotten", text + "the sync flag yet", event)

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
                    self._orders.discard(entry.record.partition)  # nothing had to be given up

    def _check_acceptances(self, event: Event, record: PartitionRecord) -> None:
        before = self._view.state.partitions.get(record.partition)
        if before is not None and _leader(before) == _leader(record):
            return  # it leads on, and commits as before: with all that are in sync
        missing = [
            broker
            for broker in record.in_sync
            if self._has_its_disk(broker)
            and self._promised.get((self._cluster.host_of(broker), record.partition), 0)
            < record.epoch
        ]
        # Where more than one has to be in sync, others are waited for rather than left out.
        if missing and self._view.state.min_insync(record.partition) == 1:
            text = f"brokers {missing} are to be in sync in epoch {record.epoch} of partition "
            text += f"{record.partition}, and have not promised it"
            self._break("in-sync-unasked", text, event)

    def _check_joiner(self, event: StepEvent[steps.E17Altering]) -> None:
        asked, record = event.step.asked, event.step.record
        if record is None or not event.step.accepted or asked.joiner_incarnation is None:
            return
        known = self._view.state.partitions.get(asked.partition)
        for broker in set(record.in_sync).difference(known.in_sync if known else ()):
            life = self._view.incarnation_to_be(broker)
            if life != asked.joiner_incarnation:
                text = f"broker {broker} joins the in-sync set of partition {asked.partition} by "
                text += f"what its life {asked.joiner_incarnation} held, and lives life {life}"
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
        """Whether the register, which tells *broker* of *record*, can't forget it any more."""
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
        # Whoever waits for the flush learns of it before the step of its end is told.
        if durable_end < end:
            text = f"the register takes its journal for flushed up to {end}; its device has it to "
            self._break("undecided-told", text + str(durable_end), event)

    def _check_epoch(self, event: StepEvent[steps.E2Announced]) -> None:
        partition, epoch = event.step.partition, event.step.epoch
        record = self._view.state.partitions.get(partition)
        for broker in record.in_sync if record is not None else ():
            host = self._cluster.host_of(broker)
            if self._has_its_disk(broker) and self._promised.get((host, partition), 0) >= epoch:
                text = f"epoch {epoch} of partition {partition} is announced as a new one; {host} "
                self._break("epoch-used-again", text + "has promised it before", event)

    def _check_announced(self, event: StepEvent[steps.E3Announcing]) -> None:
        partition, epoch = event.step.partition, event.step.epoch
        known = self._view.state.announced_epoch(partition)
        if epoch > known and not self._journal.is_durable:
            text = f"the register announces epoch {epoch} of partition {partition} to broker "
            text += f"{event.step.broker}, and that is not on its disk"
            self._break("undecided-told", text, event)

    def _check_role(self, event: StepEvent[EpochStep]) -> None:
        partition, epoch = event.step.partition, event.step.epoch
        promised = self._promised.get((event.host, partition), 0)
        if epoch < promised:
            text = f"{event.host} acts in epoch {epoch} of partition {partition}; it has promised "
            self._break("promise-forgotten", text + str(promised), event)

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
                text = f"{event.host} leads partition {partition}, which nothing was decided about"
                self._break("two-leaders", text, event)
        elif record.epoch > epoch:
            return  # a life that slept: it finds out when it tries to commit
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
        """Whether *host* has all that is committed."""
        if (host, log.topic, log.partition) in self._cut_to_be:
            return
        replica = self._replica(host, log)
        start = min(replica.start, log.end)
        ours, committed = replica.read(start, log.end), log.data[start:]
        if replica.start > log.removed_end:
            text = f"{host} leads or is in sync, and begins {log.name} at {replica.start}; what is "
            text += f"gone from there by its topic's settings ends at {log.removed_end}"
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
        # One that isn't in sync may have the same records from an epoch that lost: what it knows
        # as committed, it keeps.
        is_in_sync = broker in record.in_sync and not self._is_excused(broker, log)
        where = event.host, event.life
        known = max(log.highwater.get(where, 0), log.opened_with.get(where, 0))
        if not (is_in_sync or (end < known and event.host not in self._spoiled)):
            return
        until, commit = next(
            ((until, commit) for until, commit in log.commits if until > end), (0, event)
        )
        if self._replica(event.host, log).read(end, until) == log.data[end:until]:
            text = f"{event.host} cuts {log.name} at {end}; it has what was committed up to "
            self._break("committed-cut", text + str(until), event, commit)


def _leader(record: PartitionRecord) -> tuple[int, int]:
    """Who leads, in which life."""
    return record.leader, record.leader_incarnation
