"""The queue of one subscription in one log, at that log's leader: `Queue`, and when it is stored.

Acknowledgements are stored as marks are: after so many, or after a time, or at once where a member
asks for a confirmation.  Of a queue one entry is on its way at a time, where that can be: all that
comes meanwhile is stored with the next one.

Pure, as `octopi.subscriptions.log_mark` is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence

import attrs

from octopi.errors import Status
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    SubscriptionId,
    TopicId,
    TopicName,
)
from octopi.limits import LETTER_REASON_BYTES_MAX, MARKS_COUNT, SKIPPED_RANGES_MAX
from octopi.model import SubscriptionMode
from octopi.position import NO_ANCHOR, Anchor
from octopi.subscriptions.dead_letters import letter_topic
from octopi.subscriptions.effects import (
    AppendLetter,
    DealMessages,
    Dealt,
    Effect,
    Session,
    TellAttached,
    TellDetached,
    TellDone,
    TellMarks,
    TellRefused,
    TellSettled,
    WantMessages,
)
from octopi.subscriptions.entries import (
    NO_MEMBER,
    LetterSequence,
    LostSpan,
    MarkEntry,
    QueueEntry,
)
from octopi.subscriptions.log_mark import LogMark
from octopi.subscriptions.log_view import LogView
from octopi.subscriptions.pending_states import PendingStates
from octopi.subscriptions.queue import AT_ONCE, Queue
from octopi.subscriptions.queue_entries import StoredQueue, attempts_of, settled_ranges
from octopi.subscriptions.queue_members import QueueMember
from octopi.subscriptions.queued_messages import ReadMessage
from octopi.subscriptions.times import WallTimes


@attrs.frozen
class Answers:
    """What a member answers to its deliveries.  Each of them is an offset and an attempt, and
    more."""

    acknowledged: Sequence[tuple[Offset, int]] = ()
    released: Sequence[tuple[Offset, int, float]] = ()
    """With the delay (s)."""
    rejected: Sequence[tuple[Offset, int, str]] = ()
    """With the reason."""
    extended: Sequence[tuple[Offset, int]] = ()


class LogQueue(LogMark):
    """A subscription's queue in a log.  Many members have it, each with the claim 0.

    Invariants: as those of `octopi.subscriptions.log_mark.LogMark`.
    """

    def __init__(
        self,
        sid: SubscriptionId,
        topic_id: TopicId,
        entry: MarkEntry,
        pending: PendingStates,
        times: WallTimes,
        now: float,
        log_of: Callable[[TopicId], LogView | None],
    ) -> None:
        """Begin with *entry*, the newest that is committed, or is about to be appended."""
        super().__init__(sid, topic_id, entry, pending, times, now)
        is_ordered = entry.mode == SubscriptionMode.KEY_SHARED
        self.queue = Queue(entry, is_ordered=is_ordered)
        self._log_of = log_of
        self._agrees = False
        """Whether the entry is one that the log can have."""
        self._in_flight: deque[StoredQueue] = deque()
        """What counts once the entries are committed that are not yet."""
        self._confirmations: list[Effect] = []
        """What is to be told when the next entry is committed."""

    @property
    def _log(self) -> LogView | None:
        return self._log_of(self.topic_id)

    # --- members -----------------------------------------------------------------------

    def has(self, session: Session) -> bool:
        """Whether that member is attached."""
        return self.queue.members.get(session) is not None

    def attach(
        self,
        session: Session,
        member: MemberId,
        claim: Claim,
        log: LogView,
        now: float,
        credit: tuple[int, int] = (0, 0),
    ) -> list[Effect]:
        """*member* takes messages, as many and as large in all as *credit* says."""
        messages, size_bytes = credit
        if claim or messages < 1 or size_bytes < 1:
            reason = "a member of a queue attaches with claim 0, and with credit"
            return [TellRefused(session, Status.INVALID_OPTION, reason)]
        if not self._agrees:
            self._agree_with(log, now)
        self.queue.members.add(QueueMember(session, member, messages, size_bytes))
        self._note_holder()
        entry, lost = self.entry, self.entry.lost
        told = TellAttached(session, entry.mark, entry.anchor, entry.claim, log.start, lost)
        return [told, *self._go_on(now)]

    def _note_holder(self) -> None:
        """`LogMark` asks whether there is a member."""
        self.holder = self.queue.members.any_session
        self.holder_name = self.queue.members.any_name or NO_MEMBER

    def _agree_with(self, log: LogView, now: float) -> None:
        """Drop what is about messages that the log has no more."""
        self._agrees = True
        found = self.entry
        common = log.fork(found.queue.end, found.queue.anchor)
        if common is None and found.queue.end > log.end:
            common = log.end
        entry = self._agreeing_with(log)
        if common is None and entry is found:
            return
        stored = found.queue
        limit = entry.mark if common is None else common
        if entry.mark < found.mark:
            limit = entry.mark
        if common is not None:
            ranges = settled_ranges(found.mark, stored.settled)
            kept = [(begin, min(end, limit)) for begin, end in ranges if begin < limit]
            counts = {
                offset: count
                for offset, count in attempts_of(found.mark, stored.attempts)
                if offset < limit
            }
            letters = [one for one in stored.letters if one.offset < limit]
            sequence = stored.sequence
            if len(letters) < len(stored.letters):
                number = letters[0].number if letters else stored.letter_count
                sequence = LetterSequence(sequence.topic_id, sequence.epoch + 1, number)
            settled = [one for pair in _distances(entry.mark, kept) for one in pair]
            attempts: list[int] = []
            at = entry.mark
            for offset, count in counts.items():
                attempts += (offset - at, count)
                at = offset
            entry = attrs.evolve(
                entry,
                queue=QueueEntry(settled, attempts, letters, stored.letter_count, sequence),
            )
        self.entry = entry
        self._unstored_since = now if self._unstored_since is None else self._unstored_since
        is_same = entry.queue.sequence == stored.sequence
        self.queue.begin(entry, is_committed=is_same)
        if entry.mark < log.start:
            self.queue.lose(log.start, now)

    def detach(
        self,
        session: Session,
        now: float,
        seen: Container[tuple[Offset, int]] | None = None,
    ) -> list[Effect]:
        """A member leaves, or its connection broke: what it has is dealt to others.  *seen*: see
        `Queue.leave`."""
        if not self.has(session):
            return []
        self.queue.leave(session, seen)
        self._note_holder()
        return self._go_on(now) + self.store(now)

    def grant(self, session: Session, credit: tuple[int, int], now: float) -> list[Effect]:
        """A member takes so many messages, and bytes, in all since its attach."""
        self.queue.grant(session, *credit)
        return self._go_on(now)

    def mark(
        self,
        session: Session,
        offset: Offset,
        log: LogView,
        now: float,
        *,
        confirm: int | None = None,
        anchor: Anchor = NO_ANCHOR,
    ) -> list[Effect]:
        """A queue has no marks of members."""
        reason = f"a member of mode {self.entry.mode} settles messages, and marks none"
        self.queue.leave(session)
        self._note_holder()
        return [TellDetached(session, Status.WRONG_MODE, reason), *self._go_on(now)]

    def settle(
        self,
        session: Session,
        answers: Answers,
        number: int,
        now: float,
        *,
        confirm: bool = False,
    ) -> list[Effect]:
        """A member answers.  *confirm*: tell it when all that it acknowledged is committed."""
        if not self.has(session):
            return []  # it was told that it has been detached
        queue, stale = self.queue, list[Offset]()
        for offset, attempt in answers.extended:  # first: what ends a delivery may come with it
            if not queue.extend(session, offset, attempt, now):
                stale.append(offset)
        for offset, attempt in sorted(answers.acknowledged):
            if queue.acknowledge(session, offset, attempt, now):
                self._note_change(now)
            else:
                stale.append(offset)
        for offset, attempt, delay_s in answers.released:
            if not queue.release(session, offset, attempt, delay_s, now):
                stale.append(offset)
        for offset, attempt, reason in sorted(answers.rejected):
            if not queue.reject(session, offset, attempt, _shortened(reason), now):
                stale.append(offset)
        told = TellSettled(session, number, tuple(stale), confirm)
        effects: list[Effect] = []
        if confirm:
            if self.is_stored:
                effects += self._pending.when_committed(self.key, told)
            else:
                self._confirmations.append(told)
        elif stale:
            effects.append(told)
        return effects + self._go_on(now)

    # --- messages ----------------------------------------------------------------------

    def feed(self, messages: Sequence[ReadMessage], now: float) -> list[Effect]:
        """The next committed messages of the log."""
        self.queue.feed(messages, now)
        self._note_change(now, 0)
        return self._go_on(now)

    def lose(self, end: Offset, now: float) -> list[Effect]:
        """The log has nothing below *end* any more, or it can't be read."""
        begin = self.queue.mark
        if end > begin:
            lost = LostSpan(begin, end)
            self.entry = attrs.evolve(
                self.entry, skipped=[*self.entry.skipped, lost][-SKIPPED_RANGES_MAX:]
            )
            self.queue.lose(end, now)
            self._note_change(now)
        return self._go_on(now)

    def lose_message(self, offset: Offset, now: float) -> list[Effect]:
        """The log has one message no more."""
        if (message := self.queue.get(offset)) is not None:
            lost = LostSpan(offset, message.end)
            if self.queue.lose_message(offset, now):
                skipped = [*self.entry.skipped, lost][-SKIPPED_RANGES_MAX:]
                self.entry = attrs.evolve(self.entry, skipped=skipped)
                self._note_change(now)
        return self._go_on(now)

    def take_back(self, session: Session, dealt: Dealt, delay_s: float, now: float) -> list[Effect]:
        """A delivery could not be sent."""
        self.queue.take_back(session, dealt, delay_s, now)
        return self._go_on(now)

    def letter_committed(self, number: int, now: float) -> list[Effect]:
        """A dead letter is committed."""
        if self.queue.letter_committed(number, now):
            self._note_change(now)
        return self._go_on(now)

    def letter_failed(self, number: int, fault: str, now: float) -> list[Effect]:
        """A dead letter was not taken."""
        self.queue.letters.failed(number, fault, now)
        return self._go_on(now)

    def begin_letters(self, number: int, topic_id: TopicId, now: float) -> list[Effect]:
        """The log of the dead-letter topic doesn't know the sequence of this letter."""
        self.queue.letters.begin_sequence(number, topic_id)
        return self._go_on(now)

    def _go_on(self, now: float) -> list[Effect]:
        """What is to be done after anything happened."""
        queue, entry = self.queue, self.entry
        queue.look(now)
        effects = self._store_if_due(now)
        for session, messages in queue.deal(now).items():
            effects.append(DealMessages(session, self.sid, self.topic_id, tuple(messages)))
        if (letter := queue.letters.next(now)) is not None and (
            message := queue.get(letter.offset)
        ) is not None:
            sequence = queue.letters.sequence
            effects.append(
                AppendLetter(
                    self.sid,
                    self.topic_id,
                    letter.offset,
                    message.end,
                    letter.number,
                    letter.attempts,
                    letter.reason,
                    letter_topic(TopicName(entry.topic), entry.name),
                    sequence.topic_id,
                    sequence.epoch,
                    queue.letters.send(letter),
                )
            )
        if queue.wanted_count:
            effects.append(WantMessages(self.sid))
        return effects

    @property
    def has_more(self) -> bool:
        """Whether there is more to do at once than one call did."""
        return self.queue.can_deal or self.queue.due_at == AT_ONCE

    # --- storing -----------------------------------------------------------------------

    def _note_change(self, now: float, count: int = 1) -> None:
        if self.queue.mark == self.entry.mark and not count:
            return
        self._unstored_count += count
        if self._unstored_since is None:
            self._unstored_since = now

    @property
    def is_stored(self) -> bool:
        """Whether the queue is appended as it is, but for what is dealt for the first time."""
        return self._unstored_since is None and not self._confirmations and not self.queue.is_urgent

    @property
    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nothing to wait for."""
        if self.has_more:
            return AT_ONCE
        times = [self.queue.due_at, self._append_at]
        if self.entry.expires_ms is not None:
            times.append(self._life_at)
        return min((at for at in times if at is not None), default=None)

    @property
    def _append_at(self) -> float | None:
        """When the next entry is to be appended; None: there is nothing, or one is on its way."""
        if self._pending.has(self.key) or self.is_stored:
            return None
        if self._confirmations:
            return 0.0
        if self.queue.is_urgent or self._unstored_count >= MARKS_COUNT:
            return self._store_after
        return self._store_at

    def _store_if_due(self, now: float) -> list[Effect]:
        at = self._append_at
        return [] if at is None or at > now else self._append(now)

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        effects = self._go_on(now)
        if self.entry.expires_ms is not None and self.holder is not None and self._life_at <= now:
            effects += self._append(now)
        return effects

    def committed(self, entry: MarkEntry, now: float) -> list[Effect]:
        """The oldest entry that was appended is committed."""
        self.queue.known(self._in_flight.popleft(), now)
        return self._go_on(now)

    def _append(self, now: float, *then: Effect) -> list[Effect]:
        log = self._log
        if log is not None:
            self.entry = self._present(log)
        self._in_flight.append(self.queue.appended())
        waiting, self._confirmations = self._confirmations, []
        stored = self.entry.queue
        numbers = len(stored.settled) + len(stored.attempts)
        letters_bytes = sum(30 + len(one.reason) for one in stored.letters)
        self._bucket.spend(3 * numbers + letters_bytes, now)
        return super()._append(now, *waiting, *then)

    def _present(self, log: LogView) -> MarkEntry:
        """The entry as it is now."""
        entry, mark, end = self.entry, self.queue.mark, self.queue.read_end
        if mark != entry.mark:
            lost, skipped = entry.lost, entry.skipped
            if lost is not None and mark >= lost.end:
                skipped, lost = [*skipped, lost][-SKIPPED_RANGES_MAX:], None
            anchor = log.anchor_before(mark)
            entry = attrs.evolve(entry, mark=mark, anchor=anchor, lost=lost, skipped=skipped)
        stored = self.queue.entry()
        end = max(end, self.queue.stored_end)
        anchor = log.anchor_before(end) if mark <= end <= log.end else entry.queue.anchor
        return attrs.evolve(entry, queue=attrs.evolve(stored, end=end, anchor=anchor))

    # --- operating ---------------------------------------------------------------------

    def reset(
        self, session: Session, claim: Claim, offset: Offset, log: LogView, now: float
    ) -> list[Effect]:
        """See `LogMark.reset`; what was behind the old mark is forgotten.  To do it again does
        nothing: its members go on as soon as the mark is set."""
        if claim == self.entry.claim:
            return self._when_committed(now, TellDone(session))
        before = self.entry
        effects = super().reset(session, claim, offset, log, now)
        return effects if self.entry is before else effects + self._go_on(now)

    def _set_mark(self, entry: MarkEntry, now: float, told: Effect) -> list[Effect]:
        count, sequence = self.queue.letters.count, self.queue.letters.sequence
        anew = LetterSequence(sequence.topic_id, sequence.epoch + 1, count)
        self.entry = attrs.evolve(entry, queue=QueueEntry(letter_count=count, sequence=anew))
        self.queue.begin(self.entry, is_committed=False)
        self._agrees = True
        return self._append(now, told)

    @property
    def processed_end(self) -> Offset:
        """All below this is settled."""
        return self.queue.mark

    def describe(self, session: Session, log: LogView) -> list[Effect]:
        """Tell how far the queue is, as the leader has it in memory."""
        [told] = super().describe(session, log)
        assert isinstance(told, TellMarks)
        queue = self.queue
        return [
            attrs.evolve(
                told,
                member_count=len(queue.members),
                open_count=queue.open_count,
                waiting_count=queue.waiting_count,
                dead_count=queue.letters.committed_count,
                letter_fault=queue.letters.fault,
            )
        ]

    def once_committed(self, told: list[Effect], now: float) -> list[Effect]:
        """*told*, when what is in memory is committed."""
        *before, last = told
        return [*before, *self._append(now, last)]

    def end_members(self, status: Status, reason: str, now: float) -> list[Effect]:
        """No more messages can be dealt: its members are told why."""
        return [*self._end_holder(status, reason), *self._go_on(now)]

    def _end_holder(self, status: Status, reason: str) -> list[Effect]:
        ended = self.queue.members.remove_all()
        self._note_holder()
        return [TellDetached(one.session, status, reason) for one in ended]


def _shortened(reason: str) -> str:
    data = reason.encode(errors="replace")[:LETTER_REASON_BYTES_MAX]
    return data.decode(errors="ignore")


def _distances(mark: Offset, ranges: Sequence[tuple[Offset, Offset]]) -> list[tuple[int, int]]:
    found, at = [], mark
    for begin, end in ranges:
        found.append((begin - at, end - begin))
        at = end
    return found
