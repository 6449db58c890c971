"""A queue: the leader of a log deals its messages, one by one, to the members of a subscription.

A message is new, open (dealt, and not answered), waiting for another delivery, given up, or
settled: acknowledged, or put into the dead-letter topic.  What is remembered is bounded by a window
of messages behind the mark.

What is durable before what:

================================ ================================================
before                           committed
================================ ================================================
a message is dealt again         how often it was dealt
a dead letter is appended        that the message is given up, with its number
a given up message is settled    its dead letter
an acknowledgement is confirmed  that the message is settled
================================ ================================================

So a message is dealt at most as often as its subscription allows, and once more for each change of
the leader; and it is in the dead-letter topic once, whatever happens in between.

With keys in order, a message is dealt only if all earlier unsettled messages of its key are open at
the same member, and settled only if all of them are; where one of them is given back, the later
open ones are given back with it.

Pure: calls are events, results are lists of effects (`octopi.subscriptions.effects`).  Times are
seconds on the monotonic clock.  One call does a bounded part of what there is to do; `due_at` says
when to call `tick` for the rest.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Iterable
from typing import Final

from octopi.identifiers import Offset
from octopi.limits import DEAL_COUNT_MAX
from octopi.subscriptions.ack_timeouts import AckTimeouts
from octopi.subscriptions.dead_letters import DeadLetters
from octopi.subscriptions.effects import Dealt, Session
from octopi.subscriptions.entries import MarkEntry, QueueEntry
from octopi.subscriptions.queue_entries import (
    StoredQueue,
    attempt_numbers,
    attempts_of,
    settled_numbers,
    settled_ranges,
)
from octopi.subscriptions.queue_members import QueueMember, QueueMembers
from octopi.subscriptions.queued_messages import (
    KeyLine,
    KeyLines,
    MessageState,
    QueuedMessage,
    ReadMessage,
)

RELEASES_COUNT: Final = 1_000
"""Deliveries that one call takes from members that are gone or late."""


AT_ONCE: Final = -1.0
"""When what a call left undone is due: a time before all others."""


class Queue:
    """The messages behind a mark, and who has them.  It stores nothing itself: `entry` is what is
    to be stored, `appended` and `known` say what became of that.

    Invariants: a message is in one state; no more are remembered than the window has; of a key in
    order, the open messages are all at one member.
    """

    def __init__(self, entry: MarkEntry, *, is_ordered: bool) -> None:
        """Begin with *entry*, the newest that is committed.  *is_ordered*: keys are in order."""
        self._attempts_max = entry.attempts
        self._ack_timeout_s = entry.ack_timeout_ms / 1000
        self._window = entry.window
        self.is_ordered = is_ordered
        self._lines = KeyLines() if is_ordered else None
        self.members = QueueMembers()
        self.open_count = self.waiting_count = 0
        self.begin(entry)

    def begin(self, entry: MarkEntry, *, is_committed: bool = True) -> None:
        """Forget what is behind the mark, but for what *entry* has; *is_committed*: whether it
        is."""
        stored = entry.queue
        self.read_end = entry.mark
        """Where the next message to read begins."""
        self._order: deque[QueuedMessage] = deque()
        """The messages behind the mark that were read, in the order of the log."""
        self._messages: dict[Offset, QueuedMessage] = {}
        if self._lines is not None:
            self._lines = KeyLines()
        self._stored_settled = deque(settled_ranges(entry.mark, stored.settled))
        """What an earlier leader stored as settled, and was not read yet."""
        self._stored_attempts = dict(attempts_of(entry.mark, stored.attempts))
        """The same for what was given back."""
        self.letters = DeadLetters(
            stored.letters, stored.letter_count, stored.sequence, is_committed=is_committed
        )
        self._unread_letters = {one.offset: one for one in stored.letters}
        read = [*self._stored_attempts, *self._unread_letters]
        self.stored_end = max(read, default=Offset(-1))
        """What was dealt by an earlier leader is read up to here, whether members are there or
        not."""
        self._ready: list[Offset] = []
        """A heap of messages that may be dealt; some of them may not, any more."""
        self._timeouts = AckTimeouts()
        self._delayed: list[tuple[float, Offset]] = []
        """A heap of messages that wait for their time."""
        self._spent: deque[QueuedMessage] = deque()
        self._given_back: deque[tuple[QueuedMessage, Session]] = deque()
        """What members had that are gone."""
        self._unknown: list[QueuedMessage] = []
        """Messages that wait, of which it is not appended how often they were dealt."""
        self.open_count = self.waiting_count = 0

    # --- state -----------------------------------------------------------------------------

    @property
    def mark(self) -> Offset:
        """Everything below is settled."""
        return self._order[0].offset if self._order else self.read_end

    def get(self, offset: Offset) -> QueuedMessage | None:
        """A message behind the mark that was read."""
        return self._messages.get(offset)

    @property
    def is_urgent(self) -> bool:
        """Whether messages wait for an entry to be committed."""
        return bool(self._unknown) or self.letters.is_unknown

    @property
    def wanted_count(self) -> int:
        """How many more messages to read: 0 while the window is full or no member takes any."""
        room = self._window - len(self._order)
        if self.read_end <= self.stored_end:
            return max(0, room)
        return max(0, min(room, self.members.free_count - len(self._ready)))

    def entry(self) -> QueueEntry:
        """What is to be stored."""
        mark = self.mark
        letters = self.letters
        return QueueEntry(
            settled_numbers(mark, self._order, self._stored_settled),
            attempt_numbers(mark, self._order, self._stored_attempts),
            letters.entries,
            letters.count,
            letters.sequence,
        )

    # --- what happens ------------------------------------------------------------------------

    def feed(self, messages: Iterable[ReadMessage], now: float) -> None:
        """The next committed messages of the log, from `read_end` on."""
        settled, attempts = self._stored_settled, self._stored_attempts
        for read in messages:
            one = QueuedMessage(read.offset, read.end)
            self.read_end = read.end
            self._order.append(one)
            self._messages[one.offset] = one
            if settled and settled[0][0] <= one.offset:
                one.state = MessageState.SETTLED
                if settled[0][1] <= one.end:
                    settled.popleft()
                continue
            if self._lines is not None and read.key is not None:
                self._lines.add(one, read.key)
            if (letter := self._unread_letters.pop(one.offset, None)) is not None:
                one.state, one.attempt = MessageState.DYING, letter.attempts
                self.waiting_count += 1
            elif (count := attempts.pop(one.offset, 0)) > 0:
                one.state, one.attempt = MessageState.WAITING, count
                self.waiting_count += 1
            self._prepare(one, now)
        if self.read_end > self.stored_end:
            # Of messages that the log has no more, if any.
            self._stored_attempts.clear()
            for offset in self._unread_letters:
                self.letters.drop(offset)
            self._unread_letters.clear()
        self._advance()

    def acknowledge(self, session: Session, offset: Offset, attempt: int, now: float) -> bool:
        """A member has processed the message of a delivery; return whether that counts."""
        one = self._answered_at(session, offset, attempt)
        if one is None or not one.is_first:
            return False
        self._close(one)
        self._settle(one, now)
        return True

    def release(
        self, session: Session, offset: Offset, attempt: int, delay_s: float, now: float
    ) -> bool:
        """A member gives a message back; return whether that counts."""
        one = self._open_at(session, offset, attempt)
        if one is not None:
            self._release(one, now, delay_s)
        return one is not None

    def reject(
        self, session: Session, offset: Offset, attempt: int, reason: str, now: float
    ) -> bool:
        """A member finds that a message can never be processed; return whether that counts."""
        one = self._answered_at(session, offset, attempt)
        if one is None or not one.is_first:
            return False
        one.reason = reason or "it was rejected"
        self._release(one, now, 0.0)
        return True

    def extend(self, session: Session, offset: Offset, attempt: int, now: float) -> bool:
        """A member needs more time for a message; return whether that counts."""
        one = self._open_at(session, offset, attempt)
        if one is not None:
            self._expect_answer(one, now)
        return one is not None

    def leave(self, session: Session, seen: Container[tuple[Offset, int]] | None = None) -> None:
        """A member is gone: what it had is dealt to others.  *seen*: the deliveries, as offset and
        attempt, that its program was given; no other one of it counts.  None: all count."""
        if (member := self.members.remove(session)) is not None:
            for one in member.open.values():
                is_seen = seen is None or (one.offset, one.attempt) in seen
                one.is_unseen = not (is_seen or one.is_answered)
                self._given_back.append((one, session))
            self._parked(member)

    def _parked(self, member: QueueMember) -> None:
        for one in member.parked:
            heapq.heappush(self._ready, one.offset)
        member.parked.clear()

    def grant(self, session: Session, messages: int, size_bytes: int) -> None:
        """A member takes so much in all since its attach."""
        if (member := self.members.get(session)) is not None:
            self.members.grant(member, messages, size_bytes)
            if member.has_room:
                self._parked(member)

    def letter_committed(self, number: int, now: float) -> bool:
        """The dead letter with that number is committed; return whether it was waited for."""
        if (offset := self.letters.committed(number)) is None:
            return False
        if (one := self._messages.get(offset)) is not None:
            self.waiting_count -= 1
            self._settle(one, now)
        return True

    def lose(self, end: Offset, now: float) -> None:
        """The log has nothing below *end* any more.  What members have already may still be
        acknowledged."""
        for one in [one for one in self._order if one.offset < end]:
            if one.state not in (MessageState.OPEN, MessageState.SETTLED):
                self._forget(one, now)
        if self.read_end < end:
            self.read_end = end
            for offset in [offset for offset in self._stored_attempts if offset < end]:
                del self._stored_attempts[offset]
            for offset in [offset for offset in self._unread_letters if offset < end]:
                del self._unread_letters[offset]
                self.letters.drop(offset)
            while self._stored_settled and self._stored_settled[0][0] < end:
                _, stop = self._stored_settled.popleft()
                if stop > end:
                    self._stored_settled.appendleft((end, stop))
                    break
        self._advance()

    def lose_message(self, offset: Offset, now: float) -> bool:
        """The log has one message no more; return whether it was waited for.  Who has it already
        may still acknowledge it."""
        one = self._messages.get(offset)
        if one is None or one.state in (MessageState.OPEN, MessageState.SETTLED):
            return False
        self._forget(one, now)
        self._advance()
        return True

    def is_open(self, session: Session, dealt: Dealt) -> bool:
        """Whether that delivery can still be answered."""
        return self._open_at(session, dealt.offset, dealt.attempt) is not None

    def take_back(self, session: Session, dealt: Dealt, delay_s: float, now: float) -> None:
        """A delivery could not be sent: it costs its member no credit, and its message no
        attempt."""
        if (member := self.members.get(session)) is not None:
            self.members.take_back(member, dealt.end - dealt.offset)
            if member.has_room:
                self._parked(member)
        if (one := self._open_at(session, dealt.offset, dealt.attempt)) is not None:
            one.uncounted += 1
            self._release(one, now, delay_s)

    def _forget(self, one: QueuedMessage, now: float) -> None:
        if one.state is not MessageState.NEW:
            self.waiting_count -= 1
        if one.state is MessageState.SPENT:
            self._spent.remove(one)
        self.letters.drop(one.offset)
        one.state = MessageState.SETTLED
        if (line := one.line) is not None:
            line.rest.remove(one)
            self._go_on(line, now)

    # --- going on ----------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Take back what members that are gone or late have, and give up what was dealt too
        often."""
        for _ in range(min(RELEASES_COUNT, len(self._given_back))):
            one, session = self._given_back.popleft()
            if one.state is MessageState.OPEN and one.session == session:
                self._release(one, now, 0.0)
        for _ in range(RELEASES_COUNT):
            at = self._timeouts.next_at
            if at is None or at > now:
                break
            self._release(self._timeouts.pop(), now, 0.0)
        while self._delayed and self._delayed[0][0] <= now:
            _, offset = heapq.heappop(self._delayed)
            if (waiting := self._messages.get(offset)) is not None:
                self._prepare(waiting, now)
        while self._spent and self.letters.has_room:
            self.letters.add(self._spent.popleft())

    @property
    def due_at(self) -> float | None:
        """When `look` has something to do; None: not before something else happens."""
        if self._given_back:
            return AT_ONCE
        times = [self._timeouts.next_at, self.letters.due_at]
        if self._delayed:
            times.append(self._delayed[0][0])
        return min((at for at in times if at is not None), default=None)

    @property
    def can_deal(self) -> bool:
        """Whether there is something to deal, perhaps, and somebody who takes it."""
        return bool(self._ready) and self.members.freest() is not None

    def deal(self, now: float) -> dict[Session, list[Dealt]]:
        """Deal what may be dealt, a bounded part of it, in the order of the log; return who gets
        what."""
        dealt: dict[Session, list[Dealt]] = {}
        for _ in range(DEAL_COUNT_MAX):
            if not self._ready or (freest := self.members.freest()) is None:
                break
            one = self._messages.get(heapq.heappop(self._ready))
            if one is None or not self._may_be_dealt(one, now):
                continue
            member = self._taker(one, freest)
            if member is not None:
                self._open(one, member, now)
                message = Dealt(one.offset, one.end, one.attempt)
                dealt.setdefault(member.session, []).append(message)
        return dealt

    def _taker(self, one: QueuedMessage, freest: QueueMember) -> QueueMember | None:
        """The member that gets it; None: none may have it now."""
        line = one.line
        if line is None or not line.opened:
            return freest
        member = self.members.get(line.opened[0].session)
        if member is None or member.has_room:
            return member
        member.parked.append(one)
        return None

    def _may_be_dealt(self, one: QueuedMessage, now: float) -> bool:
        if one.state is MessageState.WAITING:
            return one.is_known and one.until <= now and one.is_next
        return one.state is MessageState.NEW and one.is_next

    def _open(self, one: QueuedMessage, member: QueueMember, now: float) -> None:
        if one.state is MessageState.WAITING:
            self.waiting_count -= 1
        self.open_count += 1
        one.state, one.session = MessageState.OPEN, member.session
        one.is_answered = False
        one.attempt += 1
        member.open[one.offset] = one
        member.dealt_messages += 1
        member.dealt_bytes += one.size_bytes
        self._expect_answer(one, now)
        if (line := one.line) is not None:
            line.opened.append(line.rest.popleft())
            if line.rest:
                self._prepare(line.rest[0], now)

    def _expect_answer(self, one: QueuedMessage, now: float) -> None:
        self._timeouts.expect(one, now + self._ack_timeout_s, self.open_count)

    # --- messages ----------------------------------------------------------------------------

    def _open_at(self, session: Session, offset: Offset, attempt: int) -> QueuedMessage | None:
        """The message of a delivery, if that is the newest one and not answered."""
        one = self._messages.get(offset)
        if one is None or one.state is not MessageState.OPEN:
            return None
        return one if (one.session, one.attempt) == (session, attempt) else None

    def _answered_at(self, session: Session, offset: Offset, attempt: int) -> QueuedMessage | None:
        """The same, where its member answers it."""
        one = self._open_at(session, offset, attempt)
        if one is not None:
            one.is_answered = True
        return one

    def _close(self, one: QueuedMessage) -> None:
        """It is open no more."""
        self.open_count -= 1
        if (member := self.members.get(one.session)) is not None:
            del member.open[one.offset]

    def _release(self, one: QueuedMessage, now: float, delay_s: float) -> None:
        closed = [one] if one.line is None else one.line.close_from(one)
        for each in closed:
            self._close(each)
            each.state, each.is_known, each.until = MessageState.WAITING, False, now + delay_s
            self.waiting_count += 1
            if each.is_unseen:
                each.is_unseen = False
                each.attempt -= 1
            elif each is not one:
                each.uncounted += 1
            self._unknown.append(each)
            if delay_s > 0:
                heapq.heappush(self._delayed, (each.until, each.offset))
        self._prepare(one, now)

    def _prepare(self, one: QueuedMessage, now: float) -> None:
        """It may be dealt, or given up, perhaps."""
        if one.state is MessageState.WAITING and one.is_first and self._is_spent(one):
            one.state = MessageState.SPENT
            self._spent.append(one)
        elif self._may_be_dealt(one, now) and not self._is_spent(one):
            heapq.heappush(self._ready, one.offset)

    def _is_spent(self, one: QueuedMessage) -> bool:
        """Whether it is never dealt again; if so, `reason` says why."""
        if not one.reason and self._attempts_max is not None and one.counted >= self._attempts_max:
            one.reason = f"it was dealt {one.attempt} times and never acknowledged"
        return bool(one.reason)

    def _settle(self, one: QueuedMessage, now: float) -> None:
        one.state = MessageState.SETTLED
        if (line := one.line) is not None:
            line.remove_first()
            self._go_on(line, now)
        self._advance()

    def _go_on(self, line: KeyLine, now: float) -> None:
        """The first message of a key is another one, or there is none any more."""
        assert self._lines is not None
        self._lines.forget_if_empty(line)
        if line.rest:
            self._prepare(line.rest[0], now)

    def _advance(self) -> None:
        while self._order and self._order[0].state is MessageState.SETTLED:
            del self._messages[self._order.popleft().offset]

    # --- storing -----------------------------------------------------------------------------

    def appended(self) -> StoredQueue:
        """What is stored with `entry`, which is appended now."""
        unknown, self._unknown = self._unknown, []
        return StoredQueue(unknown, self.letters, *self.letters.stored())

    def known(self, stored: StoredQueue, now: float) -> None:
        """The entry that had this is committed."""
        for one in stored.waiting:
            if one.state is MessageState.WAITING and self._messages.get(one.offset) is one:
                one.is_known = True
                self._prepare(one, now)
        if stored.letters is self.letters:
            self.letters.known((stored.sequence, stored.numbered))

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        states = [one.state for one in self._order]
        assert len(states) <= self._window
        assert list(self._messages.values()) == list(self._order)
        assert self.open_count == states.count(MessageState.OPEN)
        waiting = (MessageState.WAITING, MessageState.SPENT, MessageState.DYING)
        assert self.waiting_count == sum(states.count(one) for one in waiting)
        self.letters.check_invariants()
        if self._lines is not None:
            self._lines.check_invariants()
