"""What has to hold of queues, whose messages are dealt one by one.

What a leader deals, hears, stores and tells is known by its steps
(`octopi.tracing.subscriptions`); what became a dead letter, by the records that are committed in
the dead-letter topic.

======================= ================================================================
rule                    broken when
======================= ================================================================
queue-passed-over       it is committed that a message is settled which nobody acknowledged, and
                        which is neither a dead letter nor gone from the log
settled-dealt-again     a message is dealt of which it is committed that it is settled
dealt-too-often         a message is dealt more often than its subscription allows, and once
                        more for each change of the leader
dealt-uncounted         a message is dealt again before it is committed how often it was dealt
attempt-miscounted      a message is dealt as another attempt than the next one; a delivery that
                        was given back, and that no program saw, is none
window-passed           a message is dealt for the first time that lies further behind the
                        oldest unsettled one than the window is long
key-split               a message is dealt while another member has an earlier one of its key,
                        or nobody
key-disordered          a message is settled before an earlier one of its key, or by a delivery
                        from before that one was dealt again
letter-unnumbered       a dead letter is appended before its number is committed
letter-doubled          a message is in the dead-letter topic twice, or was acknowledged, too
letter-altered          a dead letter is not what its message is
letter-too-early        a message is given up that was dealt less often than its subscription
                        allows, and that nobody rejected
answer-lost             a member is told that its acknowledgement is committed, and it is not, or
                        was not of the newest delivery
answer-left-behind      another broker is to lead, in good order, and an acknowledgement isn't
                        stored that a member sent before
======================= ================================================================

A leader that was replaced and has yet to hear of it deals what it knows; its deliveries are not
judged, as nothing that comes of them is ever committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar, Final

from octopi.identifiers import Offset, PartitionId, SubscriptionId, TopicName
from octopi.record import decode
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.invariants.losses import Losses
from octopi.simulation.invariants.queue_facts import (
    Attachment,
    KnownAnswers,
    KnownMessage,
    KnownQueue,
    queues_in,
    settles,
)
from octopi.simulation.invariants.queue_letters import CommittedLetter, broken_by
from octopi.simulation.invariants.refusing_leaders import RefusingLeaders
from octopi.simulation.invariants.system import BreakRule, SystemInvariants
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.subscriptions.dead_letters import SUFFIX
from octopi.subscriptions.entries import MarkEntry
from octopi.tracing import steps
from octopi.tracing.subscriptions import StoredMarkStep

HANDED: Final = "member got a message of a queue"
"""The event of a member that is handed a message: ``sid``, ``topic``, ``partition``, ``offset``,
``attempt``."""

ACKNOWLEDGED: Final = "member acknowledged a message of a queue"
"""The event of a member that is done with a message; the same facts."""

CONFIRMED: Final = "member's acknowledgement was confirmed"
"""The event of a member that knows an acknowledgement to be committed; the same facts."""


class QueueRules(SystemInvariants):
    """Judges what leaders do for queues by what they and members said before."""

    promises: ClassVar[Mapping[str, str]] = {
        "queue-passed-over": "a message of a queue is settled only when a member has acknowledged "
        "it, when it is a dead letter, or when the log has it no more",
        "settled-dealt-again": "a message that is settled for good is never dealt again, but by a "
        "reset",
        "dealt-too-often": "a message is dealt at most as often as its subscription allows, and "
        "once more for each change of the leader",
        "dealt-uncounted": "a message is dealt again only when it is committed how often it was "
        "dealt",
        "attempt-miscounted": "a message is dealt again as its next attempt; deliveries that no "
        "program saw before their member left don't count",
        "window-passed": "no message is dealt that lies behind the window",
        "key-split": "the messages of a key are open at one member at a time",
        "key-disordered": "the messages of a key are settled in their order",
        "letter-unnumbered": "a dead letter is appended only when its number is committed",
        "letter-doubled": "a message becomes one dead letter, and none if it was acknowledged",
        "letter-altered": "a dead letter has the value, the key and the headers of its message",
        "letter-too-early": "a message is given up only after as many deliveries as its "
        "subscription allows, unless a member rejected it",
        "answer-lost": "an acknowledgement that is confirmed is committed, and was of the newest "
        "delivery",
        "answer-left-behind": "a leader that hands over in good order stores all acknowledgements "
        "before",
    }

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        super().__init__(cluster, break_rule)
        self._losses = Losses(cluster, self.handlers, self._forget)
        self._queues: dict[tuple[str, PartitionId], KnownQueue] = {}
        """By subscription and partition."""
        self._epochs: dict[PartitionId, int] = defaultdict(int)
        """Of the newest leadership that began with the log ``~subscriptions``."""
        self._letter_ends: dict[tuple[str, PartitionId], int] = defaultdict(int)
        """By dead-letter topic and partition: what lies before was looked at."""
        self._reporting: set[str] = set()
        """Subscriptions whose members note what they do."""
        self._acknowledged: dict[tuple[str, PartitionId], set[int]] = defaultdict(set)
        """What programs of members have acknowledged."""
        self._unstored: dict[tuple[str, PartitionId], set[Offset]] = defaultdict(set)
        """Acknowledgements that are not appended."""
        self._left: set[tuple[str, PartitionId]] = set()
        """Queues of which a hand-over found some."""
        self._refusing = RefusingLeaders()
        self._replicas: dict[tuple[str, str, PartitionId], ReplicaBytes] = {}
        on = self.handlers.on
        on(self._load, steps.S13Loaded)
        on(self._see_stored, steps.S2Opening, steps.S9Storing)
        on(self._see_committed, steps.S10Hearing)
        on(self._see_resetting, steps.S11Freeing)
        on(self._see_dealt, steps.S6Dealing)
        on(self._see_answers, steps.S7Answering)
        on(self._see_leaving, steps.S7Leaving)
        on(self._see_told, steps.S7Telling)
        on(self._check_numbered, steps.S14Appending)
        on(self._see_commit, steps.P6Committed)
        on(self._note_preparing, steps.E23Preparing)
        on(self._check_prepared, steps.E23Prepared)
        self.handlers.add(self._refusing.handlers)
        self.handlers.on_word(self._note_acknowledged, ACKNOWLEDGED)
        self.handlers.on_word(self._check_confirmed, CONFIRMED)

    # --- what is known -----------------------------------------------------------------

    def _is_judged(self, partition: PartitionId, epoch: int) -> bool:
        """Whether what a leader of *epoch* does counts, and all that came before it is known."""
        return epoch >= self._epochs[partition] and partition not in self._losses.lossy

    def _queue(self, sid: SubscriptionId, partition: PartitionId, topic: str) -> KnownQueue:
        known = self._queues.get((sid, partition))
        if known is None:
            known = self._queues[sid, partition] = KnownQueue(sid, topic, partition)
        return known

    def _log(self, host: str, topic: str, partition: PartitionId) -> ReplicaBytes:
        """The replica of a log on the disk of *host*."""
        key = host, topic, partition
        if key not in self._replicas:
            disk = self.cluster.nodes[host].host.disk
            self._replicas[key] = ReplicaBytes(disk, DATA_DIRECTORY, topic, partition)
        return self._replicas[key]

    def _forget(self, partition: PartitionId) -> None:
        for place in [one for one in self._queues if one[1] == partition]:
            del self._queues[place]

    # --- what is stored ----------------------------------------------------------------

    def _load(self, event: StepEvent[steps.S13Loaded]) -> None:
        step = event.step
        if step.epoch < self._epochs[step.partition]:
            return
        self._epochs[step.partition] = step.epoch
        if self._losses.leads_with_less(event.host, step.partition):
            self._losses.forget(step.partition)
        found = dict(queues_in(step.states))
        for place in [one for one in self._queues if one[1] == step.partition]:
            self._unstored.pop(place, None)
            if place[0] not in found:
                del self._queues[place]  # it was never committed, or was removed
        for sid, entry in found.items():
            self._queue(sid, step.partition, entry.topic).load(entry)

    def _see_stored(self, event: StepEvent[StoredMarkStep]) -> None:
        step = event.step
        place = step.sid, step.partition
        if not self._is_judged(step.partition, step.epoch):
            return
        self._unstored.pop(place, None)
        self._left.discard(place)
        known = self._queues.get(place)
        if known is not None and step.claim > known.reset_claim:
            known.reset(step.claim)

    def _see_resetting(self, event: StepEvent[steps.S11Freeing]) -> None:
        """The coordinator takes a log from its members for a reset, or has heard of its end."""
        step = event.step
        known = self._queues.get((step.sid, step.log))
        if known is None:
            return
        if step.reset_to is not None:
            known.is_resetting = True
        elif known.is_resetting:
            known.end_reset()

    def _see_committed(self, event: StepEvent[steps.S10Hearing]) -> None:
        step = event.step
        kind, sid, *_ = step.key.split("/")
        if kind != "k" or not self._is_judged(step.partition, step.epoch):
            return
        if step.value is None:
            self._queues.pop((sid, step.partition), None)
            return
        for _, entry in queues_in({step.key: step.value}):
            known = self._queue(SubscriptionId(sid), step.partition, entry.topic)
            if entry.lost is not None and self._losses.is_harmed:
                self._losses.lossy.add(step.partition)  # the only replica has less, and says so
                return
            if entry.claim >= known.reset_claim and known.entry is not None:
                if entry.claim == known.entry.claim:
                    self._check_settled(event, known, entry)
                known.reset_claim = int(entry.claim)
            known.store(entry)

    def _check_settled(self, event: Event, known: KnownQueue, entry: MarkEntry) -> None:
        log = self._log(event.host, known.topic, known.partition)
        gone = [(one.begin, one.end) for one in (*entry.skipped, entry.lost) if one is not None]
        settled = known.newly_settled(entry, log)
        for one in settled if known.is_ordered else ():
            self._check_order(event, known, entry, one, log)
        for one in settled:
            if one.offset < log.start and any(a <= one.offset < b for a, b in gone):
                continue
            if one.offset not in known.answered and not known.is_letter(one.offset):
                text = f"{event.host} has committed that the message at {one.offset} of "
                text += f"{known} is settled; no delivery of it that counts was "
                text += "acknowledged, and no dead letter is committed"
                self.break_rule("queue-passed-over", text, event)
                return

    def _check_order(
        self,
        event: Event,
        known: KnownQueue,
        entry: MarkEntry,
        one: KnownMessage,
        log: ReplicaBytes,
    ) -> None:
        """Check that earlier messages of its key were settled before *one*."""
        assert known.entry is not None
        number = known.final_number(one.offset)
        for earlier in known.messages(known.entry.mark, one.offset, log):
            if one.key is None or earlier.key != one.key:
                continue
            if not settles(entry, earlier.offset):
                text = f"{event.host} has committed that the message at {one.offset} of "
                text += f"{known} is settled, and the one at {earlier.offset}, of the same "
                text += "key, is not"
                self.break_rule("key-disordered", text, event)
            elif number and known.final_number(earlier.offset) > number:
                text = f"{event.host} has committed that the message at {one.offset} of "
                text += f"{known} is settled, by a delivery from before the one at "
                text += f"{earlier.offset}, of the same key, was dealt again"
                self.break_rule("key-disordered", text, event)

    # --- dealing -------------------------------------------------------------------------

    def _see_dealt(self, event: StepEvent[steps.S6Dealing]) -> None:
        step = event.step
        known = self._queues.get((step.sid, step.partition))
        if known is None or not self._is_judged(step.partition, step.epoch):
            return
        to = Attachment(event.host, event.life, step.session)
        for offset, end, attempt in step.dealt:
            # What is dealt from a mark that is just being set is not judged by the old one.
            if known.entry is not None and known.entry.claim == known.reset_claim:
                self._check_dealt(event, known, Offset(offset), Offset(end), attempt, to)
            known.deal(Offset(offset), attempt, to, event.at)

    def _check_dealt(
        self,
        event: Event,
        known: KnownQueue,
        offset: Offset,
        end: Offset,
        attempt: int,
        to: Attachment,
    ) -> None:
        assert known.entry is not None
        who = f"{event.host} deals the message at {offset} of {known}, attempt {attempt}, "
        if known.is_settled(offset):
            text = f"{who}and it is committed that it is settled"
            self.break_rule("settled-dealt-again", text, event)
            return
        log = self._log(event.host, known.topic, known.partition)
        some = list(known.messages(known.entry.mark, end, log))
        if offset < log.start:
            return  # retention has just removed it
        key = some[-1].key if known.is_ordered else None
        earlier = [one for one in some[:-1] if not known.is_done(one.offset)]
        first = earlier[0].offset if earlier else offset
        span = sum(one.offset >= first for one in some)
        if span > known.entry.window:
            text = f"{who}the {span}th one from the oldest unsettled one on, at {first}; the "
            text += f"window has {known.entry.window}"
            self.break_rule("window-passed", text, event)
        of_key = [one.offset for one in earlier if key is not None and one.key == key]
        for one in of_key:
            newest = known.newest.get(one)
            if newest is None or newest.to != to:
                where = "is at no member" if newest is None else "is at another member"
                text = f"{who}and the one at {one}, of the same key, {where}"
                self.break_rule("key-split", text, event)
        if key is None and known.stored_count(offset) < attempt - 1:
            text = f"{who}and it is committed that it was dealt {known.stored_count(offset)} times"
            self.break_rule("dealt-uncounted", text, event)
        if known.is_resetting:
            return
        attempts = known.next_attempts(offset)
        if key is None and attempts and attempt not in attempts:
            text = f"{who}and it has to be attempt {' or '.join(map(str, attempts))}"
            self.break_rule("attempt-miscounted", text, event)
        self._check_count(event, known, offset, key, log)

    def _check_count(
        self,
        event: Event,
        known: KnownQueue,
        offset: Offset,
        key: bytes | None,
        log: ReplicaBytes,
    ) -> None:
        """Check how often a message was dealt by now."""
        count, most = known.dealt[offset] + 1, known.deliveries_allowed(offset, key, log)
        if most is not None and count > most:
            text = f"the message at {offset} of {known} is dealt {count} times, not {most}"
            self.break_rule("dealt-too-often", text, event)

    # --- answers -------------------------------------------------------------------------

    def _see_answers(self, event: StepEvent[steps.S7Answering]) -> None:
        step = event.step
        known = self._queues.get((step.sid, step.partition))
        if known is None or not self._is_judged(step.partition, step.epoch):
            return
        to = Attachment(event.host, event.life, step.session)
        log = self._log(event.host, known.topic, known.partition)
        answers = KnownAnswers(step.acknowledge, [], [])
        for offset, attempt in sorted(step.acknowledged):
            self._check_made(event, known, offset)
            one = known.newest_at(Offset(offset), attempt, to)
            if one is None or not self._is_first(known, one.offset, log):
                if one is not None:
                    known.answered_in_vain.add(one.number)
                answers.others.append(Offset(offset))
                continue
            known.answered[one.offset] = one
            answers.counting.append(one)
            self._unstored[step.sid, step.partition].add(one.offset)
        known.asked.setdefault(to, []).append(answers)
        for offset, attempt in [*step.released, *sorted(step.rejected)]:
            one = known.newest_at(Offset(offset), attempt, to)
            if one is None or known.is_done(one.offset):
                continue
            if [offset, attempt] in step.rejected:
                known.rejected.add(one.offset)
            known.end_delivery(one.offset, log)
        for offset, attempt in step.extended:
            if (one := known.newest_at(Offset(offset), attempt, to)) is not None:
                known.extend(one, event.at)

    def _see_leaving(self, event: StepEvent[steps.S7Leaving]) -> None:
        step = event.step
        known = self._queues.get((step.sid, step.partition))
        if known is None or not self._is_judged(step.partition, step.epoch):
            return
        to = Attachment(event.host, event.life, step.session)
        known.leave(to, {(offset, attempt) for offset, attempt in step.seen}, event.at)

    def _check_made(self, event: Event, known: KnownQueue, offset: int) -> None:
        """Check that a member's program has acknowledged the message."""
        place = known.sid, known.partition
        if known.sid in self._reporting and offset not in self._acknowledged[place]:
            text = f"{event.host} is told that the message at {offset} of {known} is "
            text += "processed, and no member's program has said so"
            self.break_rule("queue-passed-over", text, event)

    def _is_first(self, known: KnownQueue, offset: Offset, log: ReplicaBytes) -> bool:
        """Whether all earlier messages of its key are settled, where that matters."""
        if not known.is_ordered or known.entry is None:
            return True
        if known.entry.claim != known.reset_claim:
            return True  # the mark is just being set
        some = list(known.messages(known.entry.mark, Offset(offset + 1), log))
        key = some[-1].key if some else None
        earlier = [one.offset for one in some[:-1] if one.key == key is not None]
        return all(map(known.is_done, earlier))

    def _see_told(self, event: StepEvent[steps.S7Telling]) -> None:
        step = event.step
        known = self._queues.get((step.sid, step.partition))
        if known is None or not self._is_judged(step.partition, step.epoch):
            return
        to = Attachment(event.host, event.life, step.session)
        asked = known.asked.get(to, [])
        numbers = [one.number for one in asked]
        is_known = step.acknowledge in numbers
        count = numbers.index(step.acknowledge) + 1 if is_known else len(asked)
        for offset in step.stale:
            known.withdraw(offset, asked[:count])
            self._unstored[step.sid, step.partition].discard(offset)
        if not step.confirmed or not is_known:
            return
        lost = [one.offset for some in asked[:count] for one in some.counting]
        lost = [one for one in lost if not known.is_settled(one)]
        lost += [one for one in asked[count - 1].others if one not in step.stale]
        del asked[:count]
        if lost:
            text = f"{event.host} confirms acknowledgements of {known}; those of the "
            text += f"messages at {lost[:5]} are not committed, or were not of their newest "
            self.break_rule("answer-lost", f"{text}deliveries", event)

    # --- dead letters --------------------------------------------------------------------

    def _check_numbered(self, event: StepEvent[steps.S14Appending]) -> None:
        step = event.step
        known = self._queues.get((step.sid, step.partition))
        if known is None or not self._is_judged(step.partition, step.epoch):
            return
        if not known.is_numbered(step.letter, step.offset):
            text = f"{event.host} appends dead letter {step.letter} of {known}, of the "
            text += f"message at {step.offset}, and it is not committed that it has that number"
            self.break_rule("letter-unnumbered", text, event)

    def _see_commit(self, event: StepEvent[steps.P6Committed]) -> None:
        step = event.step
        if not step.topic.endswith(SUFFIX) or step.partition in self._losses.lossy:
            return
        place = step.topic_id, step.partition
        if step.highwater <= (begin := self._letter_ends[place]):
            return
        self._letter_ends[place] = step.highwater
        data = self._log(event.host, step.topic, step.partition).read(begin, step.highwater)
        for letter in decode(data, Offset(begin), TopicName(step.topic), step.partition):
            found = CommittedLetter.of(letter)
            known = self._queues.get((found.sid, step.partition))
            if known is not None and known.entry is not None:
                is_whole = not self._losses.leads_with_less(event.host, known.partition)
                log = self._log(event.host, known.topic, known.partition) if is_whole else None
                for rule, text in broken_by(found, known, known.entry, log):
                    self.break_rule(rule, f"{found} is of {text}", event)

    # --- what members say ----------------------------------------------------------------

    def _note_acknowledged(self, event: Event) -> None:
        facts = event.facts
        self._reporting.add(facts["sid"])
        self._acknowledged[facts["sid"], facts["partition"]].add(facts["offset"])

    def _check_confirmed(self, event: Event) -> None:
        facts = event.facts
        known = self._queues.get((facts["sid"], facts["partition"]))
        if known is None or facts["partition"] in self._losses.lossy:
            return
        offset = facts["offset"]
        if not known.is_settled(offset) and offset not in known.ever_settled:
            text = f"{event.host} was told that the message at {offset} of {known} is "
            text += "settled for good, and that is not committed"
            self.break_rule("answer-lost", text, event)

    # --- handing over --------------------------------------------------------------------

    def _note_preparing(self, event: StepEvent[steps.E23Preparing]) -> None:
        partition = event.step.partition
        self._left = {one for one in self._left if one[1] != partition}
        self._left |= {one for one, some in self._unstored.items() if some and one[1] == partition}

    def _check_prepared(self, event: StepEvent[steps.E23Prepared]) -> None:
        partition = event.step.partition
        left = sorted(one for one in self._left if one[1] == partition)
        self._left.difference_update(left)
        record = self.cluster.decided.state.partitions.get(partition)
        if record is None or record.epoch != self._epochs[partition]:
            return
        if self.cluster.host_of(record.leader) != event.host or partition in self._losses.lossy:
            return
        if self._refusing.has(event.host, partition, record.epoch):
            return  # its disk takes no entry either
        for place in left:
            if place in self._queues:
                text = f"{event.host} has prepared another leader of partition {partition}, and "
                text += f"acknowledgements of {self._queues[place]}, which a member sent "
                text += "before, are not stored"
                self.break_rule("answer-left-behind", text, event)
