"""What a member of a queue takes from the leader of one log, and what it answers.

The leader deals messages one by one, as far as the member gives credit, and each *delivery* is
acknowledged, released or rejected.  Whoever has a message is the leader's to say: it deals a
message again when a delivery wasn't answered within the ack timeout.

  - **Credit** is what may be open here: dealt, and not answered.  It is given back when the program
    has answered, so a member that works on one message at a time, and asks for one, gets one.
  - **Answers** wait a moment for others, and go to the leader together.  Before more credit is
    given they go at once.
  - **Messages that wait** here for the program are extended, so that the ack timeout bounds the
    program's work and not the waiting.  If the program neither takes nor answers a message for the
    ack timeout, what waits is given back to the queue, and no credit is given until it goes on.
  - **A delivery belongs to one attachment.**  When that ends, because the leader changes, the
    connection breaks or the mark is reset, all its deliveries are void: what waits is dropped, and
    answers to what is in the program's hands count no more.  The messages are dealt anew.

An answer that counts no more is *stale*.  It is counted, and no error: the message is dealt to
somebody else, and a program has to bear that a message comes again.

Pure: calls are events, results are lists of effects, to be performed in their order.  Times are
seconds on the monotonic clock of the member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final, TypeAlias, TypeVar

import attrs

from octopi.errors import ConnectionLostError, OctopiError, RefusedError, Status, UnreachableError
from octopi.identifiers import Offset
from octopi.limits import SETTLE_COUNT_MAX
from octopi.record import Message

SETTLING_S: Final = 0.1
"""An answer waits so long for others before they are sent."""
CONFIRMING_S: Final = 1.0
"""The leader is asked so often whether acknowledgements are committed."""
_CHECKS: Final = 3
"""How often, in an ack timeout, it is looked at what waits."""

_T = TypeVar("_T")


@attrs.frozen
class SendSettle:
    """Tell the leader what was answered.  Each entry is an offset and its attempt, and more."""

    acknowledged: tuple[tuple[Offset, int], ...] = ()
    released: tuple[tuple[Offset, int, int], ...] = ()
    """With the delay in milliseconds."""
    rejected: tuple[tuple[Offset, int, str], ...] = ()
    """With the reason."""
    extended: tuple[tuple[Offset, int], ...] = ()
    confirm: int | None = None
    """The number to answer with when all that was answered up to here is committed; None: no
    answer."""


@attrs.frozen
class SendCredit:
    """Tell the leader how much it may deal, counted from the attach."""

    messages: int
    size_bytes: int


QueueEffect: TypeAlias = SendSettle | SendCredit


class QueueRemedy(Enum):
    """What to do after an attachment to a queue ended."""

    ATTACH_AGAIN = auto()
    """Look up the log's leader, and attach there."""
    STOP = auto()
    """Trying again can't help."""


def queue_remedy(error: OctopiError) -> QueueRemedy:
    """What to do after an attachment ended with *error*.  A queue's member has no claim of its own,
    so being fenced means only that the mark was reset."""
    match error:
        case RefusedError(status=Status.MEMBER_FENCED | Status.UNKNOWN_MEMBER):
            return QueueRemedy.ATTACH_AGAIN
        case RefusedError(meaning=meaning) if meaning.retryable or meaning.look_up:
            return QueueRemedy.ATTACH_AGAIN
        case ConnectionLostError() | UnreachableError():
            return QueueRemedy.ATTACH_AGAIN
        case _:
            return QueueRemedy.STOP


@attrs.define(eq=False)
class OpenDelivery:
    """One dealing of a message to this member."""

    offset: Offset
    attempt: int
    size_bytes: int
    attachment: int
    """Which attachment it came with."""
    dealt_at: float
    since: float
    """When it was dealt, or extended last."""
    message: Message | None = None
    """For whoever hands it out."""
    is_taken: bool = False
    """Whether the program has it."""
    is_answered: bool = False
    is_void: bool = False
    """Whether the leader has said that it counts no more."""


class QueueSession:
    """One log of a queue, as one of its members sees it.

    Invariants: what is open never exceeds the credit that was given; an answer is sent once, on the
    attachment of its delivery; nothing is sent while there is no attachment.
    """

    def __init__(self, ack_timeout_s: float, prefetch_count: int, prefetch_bytes: int) -> None:
        """*prefetch_count*, *prefetch_bytes*: what may be open here."""
        self._ack_timeout_s = ack_timeout_s
        self._prefetch_count = prefetch_count
        self._prefetch_bytes = prefetch_bytes
        self._attachment = 0
        self.is_attached = False
        """Whether the leader deals now."""
        self._open: dict[Offset, OpenDelivery] = {}
        """The newest delivery of each message that is open here."""
        self._waiting: deque[OpenDelivery] = deque()
        """Those that the program has not taken.  Some may be void."""
        self._returned_count = self._returned_bytes = 0
        """What was answered or dropped, since the attach."""
        self._given_count = self._given_bytes = 0
        """The part of it for which credit was given again."""
        self._acknowledged: list[tuple[Offset, int]] = []
        self._released: list[tuple[Offset, int, int]] = []
        self._rejected: list[tuple[Offset, int, str]] = []
        self._extended: list[tuple[Offset, int]] = []
        self._sent_at = float("-inf")
        self._numbers = 0
        self._confirmed = 0
        """All confirmations up to this number are known, or will never come."""
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """Confirmations asked for: number, and how many acknowledgements it covers that earlier
        ones don't."""
        self._unasked = 0
        """Acknowledgements that were sent since a confirmation was asked for last."""
        self._unasked_since = float("-inf")
        """When the first of them was sent."""
        self.stale_count = 0
        """Answers that came too late, and acknowledgements of which an attachment that ended left
        unknown whether they count."""
        self._active_at = float("-inf")
        """When the program took or answered a message last."""
        self._is_stalled = False
        """Whether what waited was given back, since the program did nothing."""
        self._resumed_at: float | None = None
        """When the program went on after that; None: credit was given since."""
        self._check_at: float | None = None
        """When to look at what waits."""

    # --- the attachment ----------------------------------------------------------------

    def attaching(self) -> SendCredit:
        """The leader is asked for an attachment; the credit that it begins with."""
        self.disconnected()
        self._attachment += 1
        return SendCredit(self._prefetch_count, self._prefetch_bytes)

    def attached(self) -> None:
        """The leader deals from now on."""
        self.is_attached = True
        self._is_stalled = False

    def disconnected(self) -> None:
        """The attachment has ended, and may be had again: what is open is void."""
        self.is_attached = False
        self._waiting.clear()
        self._open.clear()
        self._check_at = self._resumed_at = None
        unsent = len(self._acknowledged) + len(self._released) + len(self._rejected)
        self.stale_count += unsent + self._unasked + sum(count for _, count in self._unconfirmed)
        self._clear_answers()
        self._unasked = 0
        self._unconfirmed.clear()
        self._confirmed = self._numbers
        self._returned_count = self._returned_bytes = 0
        self._given_count = self._given_bytes = 0

    def dealt(
        self, offsets: Sequence[Offset], attempts: Sequence[int], sizes: Sequence[int], now: float
    ) -> list[OpenDelivery]:
        """The leader dealt these messages; they wait for the program."""
        assert self.is_attached, "dealt without an attachment"
        deliveries = []
        for offset, attempt, size_bytes in zip(offsets, attempts, sizes, strict=True):
            older = self._open.get(offset)
            if older is not None:
                self._void(older)
            delivery = OpenDelivery(offset, attempt, size_bytes, self._attachment, now, now)
            self._open[offset] = delivery
            deliveries.append(delivery)
        self._waiting.extend(deliveries)
        if self._check_at is None:
            self._check_at = now + self._ack_timeout_s / _CHECKS
        return deliveries

    # --- the program -------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        """Deliveries that are open here."""
        return len(self._open)

    @property
    def is_resuming(self) -> bool:
        """Whether credit may be due because the program went on: call `tick`."""
        return self._resumed_at is not None

    def take(self, now: float) -> OpenDelivery | None:
        """The next message for the program; None: none waits.  Call `tick` when `due_at` says."""
        self._act(now)
        while self._waiting:
            delivery = self._waiting.popleft()
            if not delivery.is_void:
                delivery.is_taken = True
                return delivery
        return None

    def take_all(self, now: float) -> list[OpenDelivery]:
        """All messages that wait for the program."""
        self._act(now)
        taken = [one for one in self._waiting if not one.is_void]
        self._waiting.clear()
        for one in taken:
            one.is_taken = True
        return taken

    def deadline(self, delivery: OpenDelivery) -> float:
        """When the message may be dealt to another member, at the earliest."""
        return delivery.since + self._ack_timeout_s

    def acknowledge(self, deliveries: Iterable[OpenDelivery], now: float) -> list[QueueEffect]:
        """The program has processed these; what it answered before stays answered."""
        self._act(now)
        for one in deliveries:
            if self._answer(one):
                self._acknowledged.append((one.offset, one.attempt))
        return self._after_answers(now)

    def release(
        self, deliveries: Iterable[OpenDelivery], delay_ms: int, now: float
    ) -> list[QueueEffect]:
        """The program gives these back, to be dealt again after a delay."""
        self._act(now)
        for one in deliveries:
            if self._answer(one):
                self._released.append((one.offset, one.attempt, delay_ms))
        return self._after_answers(now)

    def reject(self, delivery: OpenDelivery, reason: str, now: float) -> list[QueueEffect]:
        """The program can't process it, ever: it becomes a dead letter."""
        self._act(now)
        if self._answer(delivery):
            self._rejected.append((delivery.offset, delivery.attempt, reason))
        return self._after_answers(now)

    def extend(self, delivery: OpenDelivery, now: float) -> list[QueueEffect]:
        """The program needs longer: the ack timeout begins anew."""
        self._act(now)
        if not delivery.is_answered and self._counts(delivery):
            delivery.since = now
            self._extended.append((delivery.offset, delivery.attempt))
        return self._after_answers(now)

    def confirm(self, now: float) -> tuple[int, list[QueueEffect]]:
        """The program wants to know when all that it answered is committed: once `is_confirmed`
        of the number that this returns."""
        if not self.is_attached:
            return self._confirmed, []
        if not self._pending_count and not self._unasked:
            return self._unconfirmed[-1][0] if self._unconfirmed else self._confirmed, []
        return self._numbers + 1, self._send(now, confirm=True)

    def is_confirmed(self, number: int) -> bool:
        """Whether what was answered before that `confirm` is committed, or never will be."""
        return self._confirmed >= number

    def flush(self, now: float) -> list[QueueEffect]:
        """Nothing more will be answered: send what waits."""
        return self._send(now) if self.is_attached and self._pending_count else []

    # --- the leader's answers ------------------------------------------------------------

    def settled(self, number: int, stale: Iterable[Offset], now: float) -> list[QueueEffect]:
        """What was sent up to the confirmation *number* (0: none) is committed, but for *stale*:
        those deliveries were not the newest of their messages."""
        for offset in stale:
            delivery = self._open.get(offset)
            if delivery is None:
                self.stale_count += 1
            else:
                self._void(delivery)
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._confirmed, _ = self._unconfirmed.popleft()
        return self._after_answers(now)

    # --- time --------------------------------------------------------------------------

    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nothing to do."""
        if not self.is_attached:
            return None
        times = [one for one in (self._check_at, self._resumed_at) if one is not None]
        if self._pending_count:
            times.append(self._sent_at + SETTLING_S)
        if self._unasked:
            times.append(self._unasked_since + CONFIRMING_S)
        return min(times, default=None)

    def tick(self, now: float) -> list[QueueEffect]:
        """Do what is due."""
        if not self.is_attached:
            return []
        if self._check_at is not None and now >= self._check_at:
            self._check_waiting(now)
        effects: list[QueueEffect] = []
        if self._pending_count and now >= self._sent_at + SETTLING_S:
            effects += self._send(now)
        if self._unasked and now >= self._unasked_since + CONFIRMING_S:
            effects += self._send(now, confirm=True)
        if self._resumed_at is not None:
            effects += self._after_answers(now)
        return effects

    def _check_waiting(self, now: float) -> None:
        """Extend what waits; or give it back, if the program does nothing."""
        self._check_at = None
        waiting = [one for one in self._waiting if not one.is_void]
        if not waiting:
            return
        if now - max(self._active_at, waiting[0].dealt_at) >= self._ack_timeout_s:
            self._is_stalled = True
            self._waiting.clear()
            for one in waiting:
                self._forget(one)
                self._released.append((one.offset, one.attempt, 0))
            return
        self._check_at = now + self._ack_timeout_s / _CHECKS
        for one in waiting:
            if now - one.since >= self._ack_timeout_s / _CHECKS / 2:
                one.since = now
                self._extended.append((one.offset, one.attempt))

    # --- within ------------------------------------------------------------------------

    @property
    def _pending_count(self) -> int:
        return (
            len(self._acknowledged)
            + len(self._released)
            + len(self._rejected)
            + len(self._extended)
        )

    def _act(self, now: float) -> None:
        """The program took or answered something."""
        self._active_at = now
        if self._is_stalled:
            self._is_stalled = False
            self._resumed_at = now

    def _counts(self, delivery: OpenDelivery) -> bool:
        return self.is_attached and delivery.attachment == self._attachment and not delivery.is_void

    def _answer(self, delivery: OpenDelivery) -> bool:
        """The program has answered; false if that has no effect."""
        if delivery.is_answered:
            return False
        delivery.is_answered = True
        counts = self._counts(delivery)
        if not counts:
            self.stale_count += 1
        if delivery.attachment == self._attachment and delivery.is_void:
            self._give_back(delivery)  # it kept its credit while the program worked on it
        elif counts:
            self._forget(delivery)
        return counts

    def _forget(self, delivery: OpenDelivery) -> None:
        del self._open[delivery.offset]
        self._give_back(delivery)

    def _void(self, delivery: OpenDelivery) -> None:
        """The leader has dealt the message again, or will."""
        delivery.is_void = True
        del self._open[delivery.offset]
        if not delivery.is_taken:
            self._give_back(delivery)

    def _give_back(self, delivery: OpenDelivery) -> None:
        self._returned_count += 1
        self._returned_bytes += delivery.size_bytes

    def _after_answers(self, now: float) -> list[QueueEffect]:
        """Send what is answered, and give credit, if it is time for it."""
        self._resumed_at = None
        if not self.is_attached:
            return []
        effects: list[QueueEffect] = []
        is_credit_due = not self._is_stalled and self._is_credit_due
        if self._pending_count and (
            is_credit_due
            or now >= self._sent_at + SETTLING_S
            or self._pending_count >= SETTLE_COUNT_MAX
        ):
            effects += self._send(now)
        if is_credit_due:
            self._given_count, self._given_bytes = self._returned_count, self._returned_bytes
            effects.append(
                SendCredit(
                    self._prefetch_count + self._given_count,
                    self._prefetch_bytes + self._given_bytes,
                )
            )
        return effects

    @property
    def _is_credit_due(self) -> bool:
        count = self._returned_count - self._given_count
        size_bytes = self._returned_bytes - self._given_bytes
        return count > 0 and (
            2 * count >= self._prefetch_count
            or 2 * size_bytes >= self._prefetch_bytes
            or not self._open
        )

    def _send(self, now: float, *, confirm: bool = False) -> list[QueueEffect]:
        """All that is pending, in as few messages as it takes."""
        self._sent_at = now
        if not self._unasked:
            self._unasked_since = now
        self._unasked += len(self._acknowledged)
        sent: list[QueueEffect] = []
        while self._pending_count > SETTLE_COUNT_MAX:
            sent.append(self._next_settle(None))
        number = None
        if confirm:
            self._numbers += 1
            number = self._numbers
            self._unconfirmed.append((number, self._unasked))
            self._unasked = 0
        if self._pending_count or confirm:
            sent.append(self._next_settle(number))
        return sent

    def _next_settle(self, confirm: int | None) -> SendSettle:
        """Up to `SETTLE_COUNT_MAX` of what is pending, acknowledgements first."""
        room = SETTLE_COUNT_MAX
        acknowledged = _cut(self._acknowledged, room)
        room -= len(acknowledged)
        released = _cut(self._released, room)
        room -= len(released)
        rejected = _cut(self._rejected, room)
        room -= len(rejected)
        return SendSettle(acknowledged, released, rejected, _cut(self._extended, room), confirm)

    def _clear_answers(self) -> None:
        self._acknowledged.clear()
        self._released.clear()
        self._rejected.clear()
        self._extended.clear()

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.is_attached or not (self._open or self._pending_count or self._unconfirmed)
        assert self._given_count <= self._returned_count
        assert self._given_bytes <= self._returned_bytes
        for offset, one in self._open.items():
            assert one.offset == offset
            assert not one.is_answered
            assert not one.is_void
            assert one.attachment == self._attachment
        assert all(one.is_void or self._open[one.offset] is one for one in self._waiting)


def _cut(entries: list[_T], count: int) -> tuple[_T, ...]:
    """Take the first *count* of *entries* out of it."""
    taken = tuple(entries[:count])
    del entries[:count]
    return taken
