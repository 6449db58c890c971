"""The marks that subscriptions have in the logs of one partition."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final

from octopi.errors import Status
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    id_fault,
)
from octopi.limits import COUNTED_MAX, SUBSCRIPTIONS_PER_PARTITION_MAX
from octopi.model import (
    QUEUE_MODES,
    SubscriptionMode,
    SubscriptionOptions,
    SubscriptionStart,
)
from octopi.position import Anchor
from octopi.subscriptions.effects import Effect, Session, TellDetached, TellDone, TellRefused
from octopi.subscriptions.entries import NO_MEMBER, MarkEntry, StoredSubscriptions
from octopi.subscriptions.log_mark import LogMark
from octopi.subscriptions.log_queue import Answers, LogQueue
from octopi.subscriptions.log_view import LogView
from octopi.subscriptions.pending_states import PendingStates
from octopi.subscriptions.queue import AT_ONCE
from octopi.subscriptions.times import Timetable, WallTimes
from octopi.wire.codec import fault_in

TURN_COUNT: Final = 100
"""Marks that a call of `tick`, or a part of `restore`, looks at; and entries of topics that are
gone that it removes, about."""

DELETIONS_COUNT: Final = 1_000
"""Deletions of marks that are remembered, the newest ones.  A request to open such a mark was sent
before its deletion, so it comes within seconds."""

_AGAIN_S: Final = 1.0
"""What can't be done when it is due is tried again after this."""


class LogMarks:
    """Attaches, marks and resets, each for the mark that it is about."""

    def __init__(
        self,
        log_of: Callable[[TopicId], LogView | None],
        pending: PendingStates,
        times: WallTimes,
    ) -> None:
        self._log_of = log_of
        self._pending = pending
        self._times = times
        self._marks: dict[SubscriptionId, LogMark] = {}
        self._by_key: dict[str, LogMark] = {}
        self._attached: dict[Session, LogMark] = {}
        """Sessions that attached and have not ended; another member may have its mark."""
        self._unstored: dict[str, LogMark] = {}
        """Marks that are not appended as they are."""
        self._deleted: dict[SubscriptionId, None] = {}
        """Subscriptions whose marks were deleted, the newest last: no id is used again."""
        self._gone: dict[SubscriptionId, str] = {}
        """Marks whose topics are gone, and that are to be removed, with the reason."""
        self._due = Timetable()

    def restore(self, stored: StoredSubscriptions, now: float) -> Iterator[None]:
        """Begin with what is committed; yields after each part of the work."""
        for number, ((sid, topic_id), entry) in enumerate(stored.marks.items(), 1):
            mark = self._add(self._made(sid, topic_id, entry, now))
            self._due.set(mark.key, mark.due_at)
            if number % TURN_COUNT == 0:
                yield

    def _made(
        self, sid: SubscriptionId, topic_id: TopicId, entry: MarkEntry, now: float
    ) -> LogMark:
        common = (sid, topic_id, entry, self._pending, self._times, now)
        return LogQueue(*common, self._log_of) if entry.mode in QUEUE_MODES else LogMark(*common)

    def _add(self, mark: LogMark) -> LogMark:
        self._marks[mark.sid] = self._by_key[mark.key] = mark
        return mark

    # --- requests ----------------------------------------------------------------------

    def open(
        self,
        session: Session,
        sid: SubscriptionId,
        name: SubscriptionName,
        mode: str,
        options: SubscriptionOptions,
        start: str,
        topic: str,
        topic_id: TopicId,
        now: float,
    ) -> list[Effect]:
        """Have a mark at one end of the log; an old one of the subscription stays as it is."""
        if (known := self._marks.get(sid)) is not None:
            if (known.topic_id, known.entry.name) != (topic_id, name):
                reason = f"it is the id of another subscription, {known.entry.name}"
                return [TellRefused(session, Status.SUBSCRIPTION_EXISTS, reason)]
            return self._pending.when_committed(known.key, TellDone(session))
        if sid in self._deleted:
            # Who opens it found the subscription before it was deleted.  Nobody would delete the
            # mark again, and retention would wait for it.
            reason = f"the subscription {name} was deleted"
            return [TellRefused(session, Status.UNKNOWN_SUBSCRIPTION, reason)]
        if (log := self._log_of(topic_id)) is None:
            return [_no_topic(session)]
        if fault := options.fault(mode) or unsupported(mode):
            return [TellRefused(session, Status.INVALID_OPTION, fault)]
        if len(self._marks) >= SUBSCRIPTIONS_PER_PARTITION_MAX:
            reason = f"a partition keeps marks of {SUBSCRIPTIONS_PER_PARTITION_MAX} subscriptions"
            return [TellRefused(session, Status.TOO_MANY, reason)]
        offset = log.start if start == SubscriptionStart.EARLIEST else log.highwater
        entry = MarkEntry(
            name=name,
            topic=topic,
            mark=offset,
            anchor=log.anchor_before(offset),
            changed_ms=self._times.of(now),
            mode=mode,
            expires_ms=options.expires_ms,
            mark_interval_ms=options.mark_interval_ms,
            attempts=options.attempts,
            ack_timeout_ms=options.ack_timeout_ms,
            window=options.window,
        )
        if fault := id_fault(sid) or fault_in(entry):
            return [TellRefused(session, Status.INVALID_OPTION, fault)]
        mark = self._add(self._made(sid, topic_id, entry, now))
        return self._planned(mark, mark.open(session, now))

    def attach(
        self,
        session: Session,
        sid: SubscriptionId,
        member: MemberId,
        claim: Claim,
        now: float,
        credit: tuple[int, int] = (0, 0),
    ) -> list[Effect]:
        """A member wants to read from a mark, and to mark; or it takes messages of a queue, as
        many and as large as *credit* says."""
        found = self._found(session, sid)
        if isinstance(found, TellRefused):
            return [found]
        mark, log = found
        effects = mark.attach(session, member, claim, log, now, credit)
        if mark.has(session):
            self._attached[session] = mark
        return self._planned(mark, effects)

    def mark(
        self, session: Session, offset: Offset, now: float, confirm: int | None, anchor: Anchor
    ) -> list[Effect]:
        """A member has processed everything below *offset*, which has *anchor* where it read."""
        mark = self._attached.get(session)
        if mark is None or (log := self._log_of(mark.topic_id)) is None:
            return []  # it has been told, or the topic is just being removed
        effects = mark.mark(session, offset, log, now, confirm=confirm, anchor=anchor)
        return self._planned(mark, effects)

    def detach(
        self,
        session: Session,
        answer: Effect,
        now: float,
        seen: Container[tuple[Offset, int]] | None,
    ) -> list[Effect]:
        """A member leaves; *answer* when its marks are committed."""
        if (mark := self._attached.pop(session, None)) is None:
            return [answer]
        effects = mark.detach(session, now, seen)
        return self._planned(mark, effects + self._pending.when_committed(mark.key, answer))

    def session_ended(self, session: Session, now: float) -> list[Effect]:
        """A member's connection broke."""
        if (mark := self._attached.pop(session, None)) is None:
            return []
        return self._planned(mark, mark.detach(session, now))

    def reset(
        self, session: Session, sid: SubscriptionId, claim: Claim, offset: Offset, now: float
    ) -> list[Effect]:
        """Set a mark, with the claim of the reset."""
        found = self._found(session, sid)
        if isinstance(found, TellRefused):
            return [found]
        mark, log = found
        if not 1 <= claim <= COUNTED_MAX:
            return [TellRefused(session, Status.INVALID_OPTION, f"{claim} is no claim")]
        return self._planned(mark, mark.reset(session, claim, offset, log, now))

    def delete(self, session: Session, sid: SubscriptionId) -> list[Effect]:
        """Remove the mark of a subscription, if there is one, and open none for it any more."""
        self._deleted.pop(sid, None)
        self._deleted[sid] = None
        if len(self._deleted) > DELETIONS_COUNT:
            del self._deleted[next(iter(self._deleted))]
        if (mark := self._marks.get(sid)) is None:
            return [TellDone(session)]
        reason = f"the subscription {mark.entry.name} was deleted"
        return self._remove(mark, Status.UNKNOWN_SUBSCRIPTION, reason, TellDone(session))

    def describe(
        self, session: Session, sid: SubscriptionId, now: float, *, confirmed: bool
    ) -> list[Effect]:
        """Tell how far a subscription is; with *confirmed*, when that is committed."""
        found = self._found(session, sid)
        if isinstance(found, TellRefused):
            return [found]
        mark, log = found
        told = mark.describe(session, log)
        return self._planned(mark, mark.once_committed(told, now)) if confirmed else told

    # --- queues ------------------------------------------------------------------------

    def queue_credit(self, session: Session, credit: tuple[int, int], now: float) -> list[Effect]:
        """A member of a queue takes so many messages, and bytes, in all."""
        queue = self._attached.get(session)
        if not isinstance(queue, LogQueue):
            return self._wrong_mode(session)
        return self._planned(queue, queue.grant(session, credit, now))

    def settle(
        self, session: Session, answers: Answers, number: int, now: float, *, confirm: bool
    ) -> list[Effect]:
        """A member of a queue answers."""
        queue = self._attached.get(session)
        if not isinstance(queue, LogQueue):
            return self._wrong_mode(session)
        return self._planned(queue, queue.settle(session, answers, number, now, confirm=confirm))

    def _wrong_mode(self, session: Session) -> list[Effect]:
        """End the attach of a member that takes its mark for a queue, if it has one."""
        if (mark := self._attached.get(session)) is None:
            return []  # it has been told
        reason = f"a member of mode {mark.entry.mode} has a mark, and no messages to settle"
        return [TellDetached(session, Status.WRONG_MODE, reason)]

    def queue(self, sid: SubscriptionId) -> LogQueue | None:
        """The queue of a subscription."""
        queue = self._marks.get(sid)
        return queue if isinstance(queue, LogQueue) else None

    def tell_queue(
        self, sid: SubscriptionId, call: Callable[[LogQueue], list[Effect]]
    ) -> list[Effect]:
        """Have the queue of a subscription know something, if there still is one."""
        queue = self.queue(sid)
        return [] if queue is None else self._planned(queue, call(queue))

    # --- what happens ------------------------------------------------------------------

    def committed(self, key: str, entry: MarkEntry | None, now: float) -> list[Effect]:
        """An entry of a mark is committed."""
        mark = self._by_key.get(key)
        if mark is None or entry is None:
            return []
        return self._planned(mark, mark.committed(entry, now))

    def topic_removed(self, topic_id: TopicId, reason: str) -> list[Effect]:
        """The topic is gone, and with it all marks in its log: the first part of them; `tick`
        removes the others."""
        found = [mark for mark in self._marks.values() if mark.topic_id == topic_id]
        self._gone.update((mark.sid, reason) for mark in found)
        return self._remove_gone()

    def _remove_gone(self) -> list[Effect]:
        """Remove a part of the marks whose topics are gone."""
        effects: list[Effect] = []
        while self._gone and len(effects) < TURN_COUNT:
            sid = next(iter(self._gone))
            reason = self._gone.pop(sid)
            if (mark := self._marks.get(sid)) is not None:
                effects += self._remove(mark, Status.UNKNOWN_TOPIC, reason)
        return effects

    @property
    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nothing to wait for."""
        return AT_ONCE if self._gone else self._due.next_at

    def tick(self, now: float) -> list[Effect]:
        """Store marks that are due, and delete those that nobody needs any more; a part of each."""
        effects = self._remove_gone()
        for key in self._due.due(now, TURN_COUNT):
            if (mark := self._by_key.get(key)) is None:
                continue
            if mark.is_expired(now):
                reason = f"the subscription {mark.entry.name} expired: nobody used it"
                effects += self._remove(mark, Status.UNKNOWN_SUBSCRIPTION, reason)
                continue
            effects += mark.tick(now)
            self._note(mark)
            at = mark.due_at
            is_late = at is not None and at <= now and not mark.has_more
            self._due.set(key, now + _AGAIN_S if is_late else at)
        return effects

    def store_all(self, now: float) -> list[Effect]:
        """Append every mark that is not in the log yet."""
        unstored, self._unstored = self._unstored, {}
        return [effect for mark in unstored.values() for effect in mark.store(now)]

    # --- looking -----------------------------------------------------------------------

    def get(self, sid: SubscriptionId) -> LogMark | None:
        """The mark of a subscription."""
        return self._marks.get(sid)

    def subscription_of(self, session: Session) -> SubscriptionId | None:
        """Whose member attached with *session*."""
        mark = self._attached.get(session)
        return None if mark is None else mark.sid

    def member_of(self, session: Session) -> MemberId:
        """Who attached with *session*, and has the mark; empty: nobody."""
        mark = self._attached.get(session)
        return NO_MEMBER if mark is None or mark.holder != session else mark.holder_name

    @property
    def topic_ids(self) -> set[TopicId]:
        """Topics that have marks here."""
        return {mark.topic_id for mark in self._marks.values()}

    def all_marks(self) -> list[LogMark]:
        """All marks, in no order."""
        return list(self._marks.values())

    def _found(
        self, session: Session, sid: SubscriptionId
    ) -> tuple[LogMark, LogView] | TellRefused:
        if (mark := self._marks.get(sid)) is None:
            reason = "the log has no mark of this subscription: it was deleted, or it expired"
            return TellRefused(session, Status.UNKNOWN_SUBSCRIPTION, reason)
        if (log := self._log_of(mark.topic_id)) is None:
            return _no_topic(session)
        return mark, log

    def _remove(self, mark: LogMark, status: Status, reason: str, *then: Effect) -> list[Effect]:
        del self._marks[mark.sid]
        del self._by_key[mark.key]
        self._unstored.pop(mark.key, None)
        return mark.delete(status, reason, *then)

    def _planned(self, mark: LogMark, effects: list[Effect]) -> list[Effect]:
        if self._by_key.get(mark.key) is mark:  # a member may go after its mark was removed
            self._note(mark)
            self._due.set(mark.key, mark.due_at)
        return effects

    def _note(self, mark: LogMark) -> None:
        if mark.is_stored:
            self._unstored.pop(mark.key, None)
        else:
            self._unstored[mark.key] = mark


def unsupported(mode: str) -> str:
    """Why no subscription has this mode; empty: one can."""
    if mode in set(SubscriptionMode):
        return ""
    return f"there is no mode {mode!r}: there are {', '.join(SubscriptionMode)}"


def _no_topic(session: Session) -> TellRefused:
    return TellRefused(session, Status.UNKNOWN_TOPIC, "the partition has no log of this topic")
