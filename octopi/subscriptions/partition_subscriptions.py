"""All that the leader of one partition decides about durable subscriptions.

It is the coordinator of the subscriptions of each topic whose first partition this is, and keeps
the mark of each subscription in the partition's logs.  Both lie in the partition's internal log
``~subscriptions``; the machine begins when its leader knows that what it found there is committed,
and ends with the leadership.

Pure: there is one method for each request, and a few for what happens; each returns effects
(`octopi.subscriptions.effects`), which the caller performs in order before the next call.
``session`` is a number that the caller gives to each request of each connection: answers name it.
For every session that joined or attached, the caller calls `session_ended` when its request is
over, whatever ended it.  ``now`` is the monotonic clock in seconds.

If an entry can't be appended, the machine is of no use any more: the caller ends all sessions, and
begins another one with what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from octopi.errors import Status
from octopi.identifiers import (
    NO_CLAIM,
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TimestampMs,
    TopicId,
    TopicName,
)
from octopi.limits import LIST_COUNT_MAX
from octopi.model import SubscriptionDefinition, SubscriptionOptions, SubscriptionState
from octopi.position import NO_ANCHOR, Anchor
from octopi.subscriptions.coordinated import CoordinatedSubscriptions
from octopi.subscriptions.effects import Dealt, Effect, Session, TellDone, TellRefused
from octopi.subscriptions.entries import MarkEntry, MemberEntry, StoredSubscriptions
from octopi.subscriptions.log_mark import LogMark
from octopi.subscriptions.log_marks import LogMarks
from octopi.subscriptions.log_queue import Answers, LogQueue
from octopi.subscriptions.log_view import LogView
from octopi.subscriptions.pending_states import PendingStates
from octopi.subscriptions.queued_messages import ReadMessage
from octopi.subscriptions.times import WallTimes

_NEW = SubscriptionId("0" * 16)


@attrs.frozen
class SubscriptionIdentity:
    """Which subscription an id stands for: what grants are compared with."""

    topic: str
    topic_id: TopicId
    name: SubscriptionName


class PartitionSubscriptions:
    """The machine of one partition."""

    def __init__(
        self,
        partition: PartitionId,
        entries: Mapping[str, Mapping[str, Any]],
        *,
        log_of: Callable[[TopicId], LogView | None],
        new_id: Callable[[], str],
        now: float,
        wall_ms: int,
    ) -> None:
        """Begin with what is committed.

        Args:
          partition: whose leader this is.
          entries: the newest value of each key of ``~subscriptions``, but for ``x/`` keys.  There
            may be ten thousands: then begin without any, read them a part in each turn
            (`StoredSubscriptions.add`), and go through `restore`.
          log_of: the partition's log of a topic as it is at this moment; None: it has none.
          new_id: draws an id of 16 hexadecimal digits, for subscriptions and members.
          now: the monotonic clock (s).
          wall_ms: what the wall clock shows then (ms since 1970).

        Raises:
          UnreadableEntryError: if an entry can't be read.
        """
        times = WallTimes(now, wall_ms)
        self._pending = PendingStates()
        self._coordinated = CoordinatedSubscriptions(partition, self._pending, times, new_id)
        self._marks = LogMarks(log_of, self._pending, times)
        for _ in self.restore(StoredSubscriptions.read(entries), now):
            pass

    def restore(self, stored: StoredSubscriptions, now: float) -> Iterator[None]:
        """Begin with what is committed, in a machine that began without entries; yields after each
        part of the work, so that others can have their turn.  Nothing else is called before its
        end."""
        yield from self._coordinated.restore(stored, now)
        yield from self._marks.restore(stored, now)

    # --- requests to the coordinator -----------------------------------------------------

    def create_subscription(
        self,
        session: Session,
        *,
        name: SubscriptionName,
        topic: TopicName,
        topic_id: TopicId,
        partitions: Sequence[PartitionId],
        mode: str,
        options: SubscriptionOptions,
        start: str,
        create: str,
        now: float,
    ) -> list[Effect]:
        """Have a subscription, or find it (*create*: ``create``, ``attach``,
        ``create_or_attach``).

        Answered with `TellDescription`.  While its state is ``creating``, the caller's client opens
        the marks in all *partitions* of the topic, and then finishes it, whoever began that.
        Refused: SUBSCRIPTION_EXISTS (the reason names what differs), UNKNOWN_SUBSCRIPTION,
        WRONG_MODE, SUBSCRIPTION_BUSY (it is being deleted), INVALID_OPTION, UNKNOWN_PARTITION (not
        the topic's first one), TOO_MANY.
        """
        wanted = SubscriptionDefinition(
            sid=_NEW,
            name=name,
            topic=topic,
            topic_id=topic_id,
            partitions=list(partitions),
            mode=mode,
            options=options,
            start=start,
            state=SubscriptionState.CREATING,
            created_ms=TimestampMs(0),
            used_ms=TimestampMs(0),
        )
        return self._coordinated.create(session, wanted, create, now)

    def describe_subscription(
        self, session: Session, topic_id: TopicId, name: SubscriptionName
    ) -> list[Effect]:
        """Answered with `TellDescription`; refused: UNKNOWN_SUBSCRIPTION."""
        return self._coordinated.describe(session, topic_id, name)

    def list_subscriptions(
        self, session: Session, topic_id: TopicId, after: str, count_max: int
    ) -> list[Effect]:
        """Answered with `TellSubscriptions`: names behind *after*, at most *count_max* of them; it
        is the last page if it has fewer."""
        bounded = max(1, min(count_max, LIST_COUNT_MAX))
        return self._coordinated.list_names(session, topic_id, after, bounded)

    def finish_subscription(self, session: Session, sid: SubscriptionId) -> list[Effect]:
        """Every log has its mark now.  Answered with `TellDone`; refused: UNKNOWN_SUBSCRIPTION."""
        return self._coordinated.finish(session, sid)

    def delete_subscription(self, session: Session, sid: SubscriptionId, step: str) -> list[Effect]:
        """First *step* ``begin``, then the marks are deleted at each log's leader, then ``end``.
        Answered with `TellDone`, also if there is no such subscription."""
        if step == "begin":
            return self._coordinated.begin_deletion(session, sid)
        if step == "end":
            return self._coordinated.end_deletion(session, sid)
        return [TellRefused(session, Status.INVALID_OPTION, "step is begin or end")]

    def reset_subscription(
        self,
        session: Session,
        sid: SubscriptionId,
        log: PartitionId,
        offset: Offset,
        now: float,
        *,
        force: bool = False,
        newest: Claim = NO_CLAIM,
    ) -> list[Effect]:
        """Begin to set the mark in *log*.  Answered with `TellResetBegun`: with its claim,
        `set_mark` is called at the leader of *log*, then `finish_reset` here.  Nobody reads
        the log meanwhile, for a minute at most.  *newest*: the newest claim that the leader of
        *log* knows, if it refused the reset with an older one.  Refused: SUBSCRIPTION_BUSY (a
        member has the log, and not *force*), UNKNOWN_SUBSCRIPTION, UNKNOWN_PARTITION,
        INVALID_OPTION (*newest* leaves no claims to count on to)."""
        return self._coordinated.reset(session, sid, log, offset, now, force=force, newest=newest)

    def finish_reset(
        self, session: Session, sid: SubscriptionId, log: PartitionId, claim: Claim, now: float
    ) -> list[Effect]:
        """The mark was set.  Answered with `TellDone`, also if the reset is over."""
        return self._coordinated.reset_done(session, sid, log, claim, now)

    def join_group(
        self,
        session: Session,
        sid: SubscriptionId,
        member: MemberId,
        *,
        static: bool,
        held: Iterable[tuple[PartitionId, Claim]],
        take_over: bool = False,
        agent: str = "",
        subject: str = "",
        name: str = "",
        now: float,
    ) -> list[Effect]:
        """Be a member.  *member*: the name of a static one, else empty at first and then the id
        that was told.  *held*: the logs that it has, with their claims.

        Answered with `TellAssigned`, at once and again and again, and `TellRevoked`, until
        `leave_group`, or `TellDetached`: UNKNOWN_MEMBER (it was silent for too long),
        MEMBER_FENCED (another one took over, or it joined again elsewhere), UNKNOWN_SUBSCRIPTION,
        UNKNOWN_TOPIC.  Refused: these, NOT_READY (it is being created), SUBSCRIPTION_BUSY,
        TOO_MANY, INVALID_OPTION.
        """
        entry = MemberEntry(static, agent, subject, name)
        return self._coordinated.join(session, sid, member, entry, held, now, take_over=take_over)

    def holding(
        self, session: Session, released: Iterable[tuple[PartitionId, Claim]], now: float
    ) -> list[Effect]:
        """The member that joined with *session* is alive, and has released these logs: it has
        stored its marks, and reads them no more.  No answer."""
        return self._coordinated.holding(session, released, now)

    def leave_group(self, session: Session, joined: Session, now: float) -> list[Effect]:
        """The member that joined with the session *joined* ends.  A static one keeps its logs until
        its session timeout.  Answered with `TellDone`."""
        return self._coordinated.leave(joined, session, now)

    # --- requests to a log's leader ------------------------------------------------------

    def open_marks(
        self,
        session: Session,
        sid: SubscriptionId,
        *,
        name: SubscriptionName,
        mode: str,
        options: SubscriptionOptions,
        start: str,
        topic: TopicName,
        topic_id: TopicId,
        now: float,
    ) -> list[Effect]:
        """Have a mark of the subscription in the topic's log: at its start, or for *start*
        ``latest`` at its highwater mark; one that is there stays.  Answered with `TellDone`;
        refused: UNKNOWN_TOPIC, INVALID_OPTION, TOO_MANY, SUBSCRIPTION_EXISTS, UNKNOWN_SUBSCRIPTION
        (this leader was told to delete the marks)."""
        return self._marks.open(session, sid, name, mode, options, start, topic, topic_id, now)

    def attach(
        self,
        session: Session,
        sid: SubscriptionId,
        member: MemberId,
        claim: Claim,
        now: float,
        credit: tuple[int, int] = (0, 0),
    ) -> list[Effect]:
        """Read from the mark, and mark; or take messages of a queue, as many and as large (bytes)
        as *credit* says.  Answered with `TellAttached`, and at the end with `TellDetached` unless
        the member detaches; refused: MEMBER_FENCED (there is a newer claim), INVALID_OPTION,
        UNKNOWN_SUBSCRIPTION, UNKNOWN_TOPIC.  A queue goes on with `DealMessages`."""
        return self._marks.attach(session, sid, member, claim, now, credit)

    def mark(
        self,
        session: Session,
        offset: Offset,
        now: float,
        *,
        confirm: int | None = None,
        anchor: Anchor = NO_ANCHOR,
    ) -> list[Effect]:
        """All below *offset* is processed.  *confirm*: a number of this mark, which `TellMarked`
        repeats when it is committed; None: no answer.  *anchor*: of *offset*, where the member
        read; empty: not known.  A mark that the log can't have ends the attach with `TellDetached`,
        and one in a history that the log has lost does so, too (HISTORY_FORKED).

        Raises:
          NeedsTimeError: if it is not known yet whether the log can have it; nothing was done.
        """
        return self._marks.mark(session, offset, now, confirm, anchor)

    def detach(
        self,
        session: Session,
        attached: Session,
        now: float,
        seen: Container[tuple[Offset, int]] | None = None,
    ) -> list[Effect]:
        """End the attach of the session *attached*.  *seen*: of a queue, the deliveries (offset and
        attempt) that the program of the member was given; no other one of this attach that is open
        counts.  None: all of them count.  Answered with `TellDone` when its marks are committed."""
        return self._marks.detach(attached, TellDone(session), now, seen)

    def set_mark(
        self, session: Session, sid: SubscriptionId, claim: Claim, offset: Offset, now: float
    ) -> list[Effect]:
        """The second step of a reset.  Answered with `TellDone`; refused: MEMBER_FENCED (the reset
        is over), OFFSET_OUT_OF_RANGE, OFFSET_INSIDE_RECORD, UNKNOWN_SUBSCRIPTION, UNKNOWN_TOPIC.

        Raises:
          NeedsTimeError: if it is not known yet whether a record begins there; nothing was done.
        """
        return self._marks.reset(session, sid, claim, offset, now)

    def delete_marks(self, session: Session, sid: SubscriptionId) -> list[Effect]:
        """Answered with `TellDone`, also if there are none."""
        return self._marks.delete(session, sid)

    def describe_marks(
        self, session: Session, sid: SubscriptionId, now: float = 0.0, confirmed: bool = False
    ) -> list[Effect]:
        """Answered with `TellMarks`; with *confirmed*, when the mark that is told is committed.
        Refused: UNKNOWN_SUBSCRIPTION, UNKNOWN_TOPIC."""
        return self._marks.describe(session, sid, now, confirmed=confirmed)

    # --- queues --------------------------------------------------------------------------

    def queue_credit(
        self, session: Session, messages: int, size_bytes: int, now: float
    ) -> list[Effect]:
        """A member of a queue takes so much in all since its attach.  No answer."""
        return self._marks.queue_credit(session, (messages, size_bytes), now)

    def settle(
        self, session: Session, answers: Answers, number: int, now: float, *, confirm: bool = False
    ) -> list[Effect]:
        """A member of a queue answers to deliveries.  *confirm*: `TellSettled` repeats *number*
        when all that was acknowledged up to here is committed; else it comes only if something is
        stale."""
        return self._marks.settle(session, answers, number, now, confirm=confirm)

    def queue(self, sid: SubscriptionId) -> LogQueue | None:
        """The queue of a subscription in this partition, for looking: what it wants to read."""
        return self._marks.queue(sid)

    def feed(
        self, sid: SubscriptionId, messages: Sequence[ReadMessage], now: float
    ) -> list[Effect]:
        """The next committed messages of the log of a queue, from its ``read_end`` on, at most as
        many as it wants."""
        return self._marks.tell_queue(sid, lambda queue: queue.feed(messages, now))

    def lose(self, sid: SubscriptionId, end: Offset, now: float) -> list[Effect]:
        """What lies below *end* can't be read any more: a queue goes on behind it."""
        return self._marks.tell_queue(sid, lambda queue: queue.lose(end, now))

    def end_queue(
        self, sid: SubscriptionId, status: Status, reason: str, now: float
    ) -> list[Effect]:
        """No more messages of a queue can be dealt: its members are told why."""
        return self._marks.tell_queue(sid, lambda queue: queue.end_members(status, reason, now))

    def lose_message(self, sid: SubscriptionId, offset: Offset, now: float) -> list[Effect]:
        """The log has the message at *offset* no more, which a queue has given up, or is to deal
        again."""
        return self._marks.tell_queue(sid, lambda queue: queue.lose_message(offset, now))

    def take_back(
        self, sid: SubscriptionId, session: Session, dealt: Dealt, delay_s: float, now: float
    ) -> list[Effect]:
        """A delivery could not be sent; its message is dealt again, after a while."""
        return self._marks.tell_queue(
            sid, lambda queue: queue.take_back(session, dealt, delay_s, now)
        )

    def letter_committed(self, sid: SubscriptionId, number: int, now: float) -> list[Effect]:
        """The dead letter with that number is committed."""
        return self._marks.tell_queue(sid, lambda queue: queue.letter_committed(number, now))

    def letter_failed(
        self, sid: SubscriptionId, number: int, fault: str, now: float
    ) -> list[Effect]:
        """The dead letter with that number was not taken, and *fault* says why."""
        return self._marks.tell_queue(sid, lambda queue: queue.letter_failed(number, fault, now))

    def begin_letters(
        self, sid: SubscriptionId, number: int, topic_id: TopicId, now: float
    ) -> list[Effect]:
        """The log of the dead-letter topic, which has the id *topic_id*, doesn't know the sequence
        of that dead letter."""
        return self._marks.tell_queue(sid, lambda queue: queue.begin_letters(number, topic_id, now))

    # --- what happens --------------------------------------------------------------------

    def committed(self, key: str, now: float) -> list[Effect]:
        """The oldest entry of *key* that was appended is committed, and what was to follow from it
        has been performed."""
        entry, effects = self._pending.committed(key)
        if key.startswith("k/"):
            assert entry is None or isinstance(entry, MarkEntry)
            return effects + self._marks.committed(key, entry, now)
        sid = SubscriptionId(key.split("/")[1])
        return effects + self._coordinated.committed(sid, now)

    @property
    def due_at(self) -> float | None:
        """When to call `tick` (monotonic, s); None: there is nothing to wait for."""
        times = (self._coordinated.due_at, self._marks.due_at)
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> list[Effect]:
        """Do what is due, a bounded part of it at a time; `due_at` says when to call it again."""
        return self._coordinated.tick(now) + self._marks.tick(now)

    def session_ended(self, session: Session, now: float) -> list[Effect]:
        """A join or an attach is over: its connection broke, or it was told so."""
        self._coordinated.session_ended(session)
        return self._marks.session_ended(session, now)

    def topic_removed(self, topic_id: TopicId) -> list[Effect]:
        """A topic was deleted: its subscriptions and marks go, a part of them now and the others in
        calls of `tick`; its members are told."""
        reason = "the topic was deleted"
        return self._coordinated.topic_removed(topic_id, reason) + self._marks.topic_removed(
            topic_id, reason
        )

    def store_all(self, now: float) -> list[Effect]:
        """Append all marks that are not in the log yet: before a hand-over, and at a stop."""
        return self._marks.store_all(now)

    # --- looking -------------------------------------------------------------------------

    def identity_of(self, sid: SubscriptionId) -> SubscriptionIdentity | None:
        """Which subscription *sid* stands for, by its definition or its mark here; None: neither
        is here.  For grants: a request that has only the id may name any topic."""
        if (found := self._coordinated.get(sid)) is not None:
            return SubscriptionIdentity(found.topic, TopicId(found.topic_id), found.name)
        if (mark := self._marks.get(sid)) is not None:
            return SubscriptionIdentity(mark.entry.topic, mark.topic_id, mark.entry.name)
        return None

    def subscription_of(self, session: Session) -> SubscriptionId | None:
        """Whose member joined or attached with *session*; None: nobody, or it has ended."""
        return self._coordinated.subscription_of(session) or self._marks.subscription_of(session)

    def member_of(self, session: Session) -> MemberId:
        """Who attached with *session*, and has the mark; empty: nobody."""
        return self._marks.member_of(session)

    @property
    def topic_ids(self) -> set[TopicId]:
        """Topics that have subscriptions or marks here; of those that are no more the caller says
        so (`topic_removed`), after it begins."""
        return self._coordinated.topic_ids | self._marks.topic_ids

    def all_marks(self) -> list[LogMark]:
        """The marks of all subscriptions in this partition, for looking."""
        return self._marks.all_marks()

    def member_counts(self) -> list[tuple[SubscriptionDefinition, int]]:
        """The subscriptions whose coordinator this is, and how many members each has."""
        return self._coordinated.member_counts()

    def check_invariants(self) -> None:
        """Assert what the machines promise."""
        self._coordinated.check_invariants()
