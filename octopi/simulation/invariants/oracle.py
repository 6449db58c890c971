"""Checks the invariants of a cluster at the moment at which they would be broken.

The oracle observes the named steps (`octopi.tracing.steps`) and reads the hosts' disks itself; of a
node's own view it uses only the fields of steps.  For each log it keeps the records that were ever
committed, and the commits.  Everything else is compared with these: replicas, receipts, deliveries,
and the choice of leaders.

If a fault destroyed data of a host, the host is excused as far as the protocol excuses it: until
the host has left the in-sync set and come back (`docs/protocol.md`).

Systems other than the log have rules of their own, each in its module
(`octopi.simulation.invariants.systems`).  Rules about elections, decisions and in-sync sets are in
`octopi.simulation.invariants.elections`.  The others are listed here, with the numbers of the
invariants that they check:

======================= ================================================================
rule                    broken when
======================= ================================================================
acknowledged-unheld     (W1) records are committed that a member of the in-sync set, or
                        of one proposed, doesn't hold; or on too few replicas; or, by a
                        leader that is alone, that its device doesn't hold
promised-unheld         (W1) a follower acknowledges what it doesn't hold, or, with the
                        sync flag or if its topic asks for it, what its device doesn't
highwater-back          (W2) a highwater mark goes back in one life, or passes the end
                        of the log
committed-differs       (W3) replicas have different records below their highwater marks
committed-cut           (W4) a member of the in-sync set cuts committed records off; or any
                        replica cuts off what it knows as committed
incomplete-leader       (W6, W8) a leader, or a member of a decided in-sync set, lacks
                        committed records
uncommitted-seen        a consumer or follower is told more than is committed
receipt-wrong           (W10) a producer is told of records that aren't committed, or
                        that are others than its own; or its newest batches are forgotten
committed-twice         (W11) one sequence of a producer is committed twice, or a gap
former-life-stored      a record of a named producer is committed behind the beginning of a later
                        life of it; or two lives are told one epoch; or one is told
                        whose fence isn't committed
invalid-committed       bytes are committed that are no records
removed-too-early       retention removes what the settings of its topic keep, or what is not
                        committed, or what a subscription needs that it has to wait for; or a
                        replica begins behind what may be gone
start-forgotten         a leader tells a follower to begin where its log has no records any more
retired-unkept          a broker gives a replica up, and its records are not on its disk any
                        more, which was never full
credit-passed           a consumer is sent more than its credit, but for the rest of one record
lost-too-much           a leader begins with what it has, and was not in sync last; or another
                        one that was has more, or is behind in fewer logs; or what is lost had
                        to be on the device; or one leads by an operator's order, and a better
                        one is left
lost-unasked            a leader begins with what it has, though a member of the last in-sync set
                        may come back whole, or all lack what was on their devices: that takes an
                        operator's order
lost-untold             what a leader lacks that begins with what it has isn't told, as far as the
                        replicas know it
======================= ================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from octopi.errors import Status
from octopi.identifiers import (
    SUBSCRIPTIONS_LOG,
    TOPICS_LOG,
    BrokerId,
    Offset,
    PartitionId,
    ProducerId,
    TopicId,
)
from octopi.limits import RECENT_BATCHES_COUNT
from octopi.record import scan
from octopi.replication.producer_fences import fence_id, fence_key
from octopi.roles.broker.subscriptions.letters import is_letter_producer
from octopi.simulation.cluster import STOP, WIPE, SimulatedCluster
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.invariants.agreed_elections import AgreedElections
from octopi.simulation.invariants.committed_log import CommittedLog, agreement
from octopi.simulation.invariants.producer_lives import ProducerLives
from octopi.simulation.invariants.recoveries import ORDERED
from octopi.simulation.invariants.retention_rules import CommittedMarks, removed_wrongly
from octopi.simulation.invariants.systems import SYSTEMS
from octopi.simulation.invariants.topic_options import OptionsInForce
from octopi.simulation.kernel.host import KILL, LOSE_POWER, RESUME
from octopi.simulation.kernel.world import Event, StepEvent, Violation
from octopi.simulation.step_handlers import StepHandlers
from octopi.tracing import steps
from octopi.tracing.common import CommitStep, LogStep, MarkStep
from octopi.wire.messages import TopicRecord


class Oracle(AgreedElections):
    """An observer of *cluster*'s world.  At the first broken rule it gives up the run; or, with
    *report*, it calls that and checks nothing more."""

    def __init__(
        self, cluster: SimulatedCluster, report: Callable[[Violation], None] | None = None
    ) -> None:
        super().__init__(cluster, report)
        self._options = OptionsInForce(cluster)
        self._marks: dict[PartitionId, CommittedMarks] = {}
        self._lives = ProducerLives()
        self._handlers = StepHandlers()
        on, on_word = self._handlers.on, self._handlers.on_word
        on_word(self._note_fault, FAULT)
        on_word(self._note_removed, KILL)
        on_word(self._note_lost_power, LOSE_POWER)
        on_word(self._note_order, ORDERED)
        on(self._note_recovery, steps.J5Admitted, steps.E7Counted)
        on(self._note_set_aside, steps.D6SetAside)
        on_word(self._note_empty_disk, WIPE)
        on_word(self._note_stop, STOP)
        on_word(self._note_resumption, RESUME)
        on(self._note_leaving, steps.E21Stopping)
        on(self._note_flag, steps.D2Promising)
        on(self._note_promise, steps.D2Promised)
        on(self._check_promise, steps.P4Acknowledging)
        on(self._check_commit, steps.P6Committing)
        on(self._commit, steps.P6Committed)
        on(self._check_receipt, steps.P7Acknowledging)
        on(self._check_following, steps.P8Following)
        on(self._check_refusal, steps.P9Refusing)
        on(self._check_journal, steps.R3Flushed)
        on(self._check_epoch, steps.E2Announced)
        on(self._check_announced, steps.E3Announcing)
        on(self._check_acceptance, steps.E6Accepting)
        on(self._check_decision, steps.E8Decided)
        on(self._check_told, steps.E9Telling)
        on(self._check_leader, steps.E11Leading)
        on(self._check_role, steps.E12Following)
        on(self._check_cut, steps.E13Truncating)
        on(self._check_restart, steps.E14Restarted)
        on(self._check_retention, steps.D4Retired)
        on(self._check_begin, steps.J9Compared)
        on(self._note_opening, steps.D5Recovered)
        on(self._note_deletion, steps.T5Deleted)
        on(self._forget_highwater, steps.T7Removed)
        on(self._check_proposal, steps.E16Proposing)
        on(self._note_resignation, steps.E19Resigning)
        on(self._note_append, steps.P2Appended)
        on(self._note_giving_up, steps.J13Retiring)
        on(self._check_kept, steps.J13Retired)
        on(self._check_joiner, steps.E17Altering)
        on(self._check_altered, steps.E17Altered)
        on(self._check_delivery, steps.C10Delivering)
        on(self._note_life, steps.C15Began)
        self._systems = [make(cluster, self._break) for make in SYSTEMS]
        self._handlers.add(self._agreed_handlers())
        self._handlers.add(self._options.handlers)
        for system in self._systems:
            self._handlers.add(system.handlers)

    @property
    def kinds(self) -> Iterable[str]:
        """The kinds of events that the oracle handles."""
        return self._handlers.kinds

    def __call__(self, event: Event) -> None:
        """Check *event* against the rules."""
        handler = self._handlers.of(event)
        if handler is not None and not self._is_broken and self._world.failure is None:
            handler(event)

    def at_rest(self) -> None:
        """Check, when everything is healed and the cluster is at rest, that every in-sync replica
        has all committed records."""
        event = self._world.note("at rest")
        for log in self._live_logs():
            record = self._view.state.partitions.get(log.partition)
            if record is not None:
                self._require_complete(event, log, record.in_sync)
        for system in self._systems:
            system.at_rest(event)

    # --- producing ---------------------------------------------------------------------

    def _check_promise(self, event: StepEvent[steps.P4Acknowledging]) -> None:
        log, end = self._log(event), event.step.end
        replica = self._replica(event.host, log)
        if replica.end < end:
            text = f"{event.host} acknowledges {log.name} up to {end}, and has it to "
            self._break("promised-unheld", text + str(replica.end), event)
        elif replica.durable_end < end and (why := self._why_durable(event)):
            text = f"{event.host} acknowledges {log.name} up to {end} with {why}, and its device "
            self._break("promised-unheld", f"{text}has it to {replica.durable_end}", event)

    def _why_durable(self, event: StepEvent[steps.P4Acknowledging]) -> str:
        """Why only what is on the device may be acknowledged; empty if the memory suffices."""
        if self._flags.get((event.host, event.step.partition)):
            return "its sync flag set"
        topic = self._view.state.topic(event.step.topic)
        if topic is None or topic.topic_id != event.step.topic_id:
            return ""  # it is deleted
        asked = all(one.flush_before_ack for one in self._options.of(event.host, topic))
        return "a topic that asks for a flush" if asked else ""

    def _check_commit(self, event: StepEvent[steps.P6Committing]) -> None:
        log, step = self._log(event), event.step
        highwater, members = step.highwater, step.in_sync
        self._check_highwater(event, log)
        leader = self._replica(event.host, log)
        if highwater <= log.end:
            return  # it was committed before, and the replicas that had to have it then have it
        counted = {*members, *(step.proposed or ())}
        out = self._taken_out(log, step)
        ours = leader.read(log.end, highwater)
        for broker in sorted(counted):
            host = self._cluster.host_of(broker)
            if host == event.host or broker in out or self._is_excused(broker, log):
                continue
            theirs = self._replica(host, log).read(log.end, highwater)
            if theirs != ours:
                text = f"{event.host} commits {log.name} up to {highwater}, and {host}, "
                text += "which counts as in sync, "
                text += "has other records there" if theirs else "has nothing there"
                self._break("acknowledged-unheld", text, event)
                return
        record = self._view.state.partitions.get(log.partition)
        topic = self._view.state.topic(log.topic)
        options = [] if topic is None else self._options.of(event.host, topic)
        if options and len(members) < min(one.min_insync for one in options):
            text = f"{log.name} is committed with {members} in sync, fewer than its topic asks for"
            self._break("acknowledged-unheld", text, event)
        alone = len(counted) == 1 and record is not None and len(record.replicas) > 1
        flushed = bool(options) and all(one.flush_before_ack for one in options)
        if alone and leader.durable_end < highwater:
            text = f"{event.host} leads {log.name} alone and commits up to {highwater}; its "
            text += f"device has it to {leader.durable_end}"
            self._break("acknowledged-unheld", text, event)
        elif log.topic == TOPICS_LOG:
            self._check_flushed(event, log, sorted(counted - out))
        elif topic is not None and flushed:
            asked = [
                broker
                for broker in sorted(counted - out)
                if all(one.flush_before_ack for one in self._options.of_broker(broker, topic))
            ]
            self._check_flushed(event, log, asked)

    def _check_flushed(
        self, event: StepEvent[CommitStep], log: CommittedLog, counted: list[BrokerId]
    ) -> None:
        for broker in counted:
            host = self._cluster.host_of(broker)
            durable_end = self._replica(host, log).durable_end
            if durable_end < event.step.highwater and not self._is_excused(broker, log):
                text = f"{log.name} is committed up to {event.step.highwater} and has to be "
                text += f"on the devices first; that of {host} has it to {durable_end}"
                self._break("acknowledged-unheld", text, event)

    def _commit(self, event: StepEvent[MarkStep]) -> None:
        log, highwater = self._log(event), event.step.highwater
        replica = self._replica(event.host, log)
        compared = (event.host, event.life), event.step.epoch
        if compared not in log.compared:
            log.compared.add(compared)
            self._compare(event, log, replica.start, min(log.end, highwater))
        if highwater > log.end:
            start = log.end
            broken = log.extend(replica.read(log.end, highwater), event)
            if broken is not None:
                self._break(*broken, event)
            elif why := self._lives.stored(log, start, self._losses(log.topic, log.partition)):
                self._break("former-life-stored", f"in {log.name} {why}", event)

    def _note_life(self, event: StepEvent[steps.C15Began]) -> None:
        step = event.step
        record = self._view.records.get(step.partition)
        hosts = () if record is None else map(self._cluster.host_of, record.replicas)
        if not self._spoiled.isdisjoint(hosts):
            return  # the leader may have less than was committed, and can't know it
        logs = [one for one in self._live_logs(step.partition) if one.topic == step.topic]
        if any(partition == step.partition for _, partition in self._serving_less):
            logs = []  # its end lies before records that were committed, and are lost
        losses = self._losses(step.topic, step.partition)
        why = self._lives.began(step, logs[0] if logs else None, losses)
        if not why and not losses and not self._is_fenced(step):
            why = f"a client is told that epoch {step.producer_epoch} has begun, and no fence is "
            why += "committed for that"
        if why:
            self._break("former-life-stored", f"in {step.topic}/{step.partition} {why}", event)

    def _is_fenced(self, step: steps.C15Began) -> bool:
        """Whether the next leaders know of the epoch that a client was told."""
        topic = self._view.state.topic(step.topic)
        internal = self._logs.get(f"{SUBSCRIPTIONS_LOG}/{step.partition}")
        if topic is None or internal is None:
            return topic is None  # it was deleted meanwhile
        key = fence_key(TopicId(topic.topic_id), ProducerId(step.producer))
        return internal.next_sequence(fence_id(key), step.producer_epoch) > 0

    def _losses(self, topic: str, partition: PartitionId) -> int:
        """How often records of *topic* in *partition*, or of the internal log there, were lost, or
        the topic was deleted."""
        logs = [one for one in self._logs.values() if one.partition == partition]
        cut_count = sum(one.cut_count for one in logs if one.topic in {topic, SUBSCRIPTIONS_LOG})
        # A register that forgot a topic makes another one of that name without deleting the first.
        log_count = sum(one.topic == topic for one in logs)
        return cut_count + max(self._deletions[topic], log_count - 1)

    def _check_receipt(self, event: StepEvent[steps.P7Acknowledging]) -> None:
        log, step = self._log(event), event.step
        offset, end = step.offset, step.end
        if step.duplicate and step.producer is not None and is_letter_producer(step.producer):
            return  # it looks whether its dead letter is there, or one from before a loss
        if end > log.end:
            text = f"a producer is told that it has {log.name} {offset} to {end}, and only what "
            self._break("receipt-wrong", text + f"lies before {log.end} is committed", event)
            return
        if step.producer is None:
            return
        runs = scan(bytes(log.data[offset:end])).runs
        told = step.producer, step.producer_epoch, step.sequence
        found = (
            (runs[0].producer_id, runs[0].producer_epoch, runs[0].first_sequence) if runs else None
        )
        if found != told:
            text = f"a producer is told that its sequence {step.sequence} is at {offset} of "
            text += f"{log.name}, where other records are"
            self._break("receipt-wrong", text, event, *log.committed_by(offset))

    def _check_refusal(self, event: StepEvent[steps.P9Refusing]) -> None:
        step = event.step
        if step.status != Status.RECEIPT_FORGOTTEN or step.producer is None:
            return
        assert step.producer_epoch is not None, "a producer has an epoch"
        assert step.sequence is not None, "and a batch of its a sequence"
        log = self._log(event)
        if self._replica(event.host, log).start:
            return  # its beginning may have been counted from a record that is gone
        behind = log.next_sequence(step.producer, step.producer_epoch)
        if behind - step.sequence <= RECENT_BATCHES_COUNT:
            text = f"a producer is told that its sequence {step.sequence} is too old to be "
            self._break("receipt-wrong", text + f"remembered, and {behind} comes next", event)

    def _check_following(self, event: StepEvent[steps.P8Following]) -> None:
        log, highwater = self._log(event), event.step.highwater
        before = log.highwater.get((event.host, event.life), 0)
        self._check_highwater(event, log)
        if highwater > log.end and not event.step.epoch:
            # It committed as the leader, and lost that role before it could report it.
            self._commit(event)
        elif highwater > log.end:
            text = f"{event.host} is told that {log.name} is committed up to {highwater}; it is "
            self._break("uncommitted-seen", text + f"up to {log.end}", event)
        else:
            self._compare(event, log, before, highwater)

    def _check_highwater(self, event: StepEvent[MarkStep], log: CommittedLog) -> None:
        highwater, where = event.step.highwater, (event.host, event.life)
        before = log.highwater.get(where, 0)
        if highwater < before:
            text = f"the highwater mark of {log.name} on {event.host} goes from {before} back to "
            self._break("highwater-back", text + str(highwater), event)
        elif highwater > event.step.log_end:
            text = f"the highwater mark of {log.name} on {event.host} is {highwater}; the log "
            self._break("highwater-back", text + f"ends at {event.step.log_end}", event)
        log.highwater[where] = highwater

    def _compare(self, event: Event, log: CommittedLog, start: int, end: int) -> None:
        """Check that the host of *event* has what was committed from *start* to *end*."""
        if event.host in self._spoiled:
            return
        replica = self._replica(event.host, log)
        start = max(start, replica.start)
        ours, theirs = replica.read(start, end), log.data[start:end]
        if ours != theirs:
            at = start + agreement(ours, theirs)
            text = f"{event.host} has other records at {at} of {log.name} than were committed"
            self._break("committed-differs", text, event, *log.committed_by(Offset(at)))

    # --- retention ---------------------------------------------------------------------

    def _check_retention(self, event: StepEvent[steps.D4Retired]) -> None:
        log = self._log(event)
        replica = self._replica(event.host, log)
        topic = self._view.state.topic(log.topic)
        if topic is not None and topic.topic_id != event.step.topic_id:
            topic = None  # the log belongs to an older topic of that name
        now_ms = self._wall_ms(event.host)
        needed = self._needed(event.host, log, topic, now_ms)
        wrong = self._removed_wrongly(event.host, log, topic, now_ms, needed)
        if wrong:
            text = f"retention removes what {event.host} has of {log.name} before {replica.start}: "
            self._break("removed-too-early", text + wrong, event)
        log.removed_end = max(log.removed_end, replica.start)

    def _check_begin(self, event: StepEvent[steps.J9Compared]) -> None:
        start = self._replica(event.host, self._log(event)).start
        if event.step.begin < start and event.host not in self._spoiled:
            text = f"{event.host} tells a follower to begin at {event.step.begin}, and its log "
            self._break("start-forgotten", text + f"begins at {start}", event)

    def _note_lost_power(self, event: Event) -> None:
        self._note_removed(event)
        self._note_power_loss(event)

    def _note_removed(self, event: Event) -> None:
        """Note segments that a process removed before it died without reaching the step for that.
        Its disk is still as the process saw it."""
        now_ms = self._wall_ms(event.host)
        for log in self._live_logs():
            replica = self._replica(event.host, log)
            topic = self._view.state.topic(log.topic)
            needed = self._needed(event.host, log, topic, now_ms)
            if not self._removed_wrongly(event.host, log, topic, now_ms, needed):
                log.removed_end = max(log.removed_end, replica.start)

    def _removed_wrongly(
        self,
        host: str,
        log: CommittedLog,
        topic: TopicRecord | None,
        now_ms: int | None,
        needed: int | None,
    ) -> str:
        """See `removed_wrongly`; *host* may go by any options that are in force there."""
        replica, wrong = self._replica(host, log), ""
        options = [None] if topic is None else self._options.of(host, topic)
        for one in options:
            altered = None if topic is None or one is None else attrs.evolve(topic, options=one)
            if not (wrong := removed_wrongly(log, replica, altered, now_ms, needed)):
                return ""
        return wrong

    def _needed(
        self, host: str, log: CommittedLog, topic: TopicRecord | None, now_ms: int | None
    ) -> int | None:
        """From where on *host* must keep *log* for subscriptions: it has their marks, if it is in
        sync.  None: it need not wait for any, as while its disk is full."""
        known = self._logs.get(f"{SUBSCRIPTIONS_LOG}/{log.partition}")
        record = self._view.state.partitions.get(log.partition)
        if topic is None or record is None or known is None or now_ms is None:
            return None
        broker = self._cluster.broker_of(host)
        if host in self._filled | self._spoiled or broker not in record.in_sync:
            return None
        if self._is_excused(broker, known):
            return None
        marks = self._marks.setdefault(log.partition, CommittedMarks(known))
        return marks.least(topic.topic_id, now_ms)

    def _wall_ms(self, host: str) -> int | None:
        """The wall clock of *host*; None if ages mean nothing because clocks differ."""
        return None if self._clocks_differ else self._cluster.nodes[host].host.clock.wall_ms()

    def _check_restart(self, event: StepEvent[steps.E14Restarted]) -> None:
        """Check a follower that restarts its log at the leader's log start: nothing before that may
        be missed."""
        self._forget_highwater(event)
        log, begin = self._log(event), event.step.begin
        if begin > log.removed_end:
            text = f"{event.host} begins {log.name} anew at {begin}; what is gone by its topic's "
            text += f"settings ends at {log.removed_end}"
            self._break("removed-too-early", text, event)

    def _note_opening(self, event: StepEvent[steps.D5Recovered]) -> None:
        log = self._log(event)
        log.opened_with[event.host, event.life] = min(event.step.highwater, log.end)

    def _forget_highwater(self, event: StepEvent[LogStep]) -> None:
        self._log(event).highwater.pop((event.host, event.life), None)

    # --- reading -----------------------------------------------------------------------

    def _check_delivery(self, event: StepEvent[steps.C10Delivering]) -> None:
        step = event.step
        if self._cluster.is_in_memory(step.topic):
            return  # relays show what they hand out
        ends = [
            max(log.end, log.furthest_end)  # lost records may still be on their way
            for log in self._logs.values()
            if (log.topic, log.partition) == (step.topic, step.partition)
        ]
        if step.end > max(ends, default=0):
            text = f"{event.host} gets {step.topic}/{step.partition} up to {step.end}; "
            text += f"committed is what lies before {max(ends, default=0)}"
            self._break("uncommitted-seen", text, event)
        else:
            self._check_credit(event)

    def _check_credit(self, event: StepEvent[steps.C10Delivering]) -> None:
        """Check that only records that begin below the credit are delivered; the last one as a
        whole."""
        step = event.step
        offset, end, credit = step.offset, step.end, step.credit
        last_ends = [
            log.record_end(offset)
            for log in self._logs.values()
            if (log.topic, log.partition) == (step.topic, step.partition)
            and end <= log.end
            and end > credit > offset
        ]
        if offset >= credit or (last_ends and end > max(credit, *last_ends)):
            text = f"{event.host} gets {step.topic}/{step.partition} from {offset} to {end}"
            self._break("credit-passed", f"{text}; it granted a credit up to {credit}", event)
