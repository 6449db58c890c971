"""What a member of a queue takes from the leader of one log, and what it answers.

The leader deals messages one by one, as far as the member gives credit, and each *delivery* is
acknowledged, released or rejected.  The leader decides which member has a message: it deals a
message again when a delivery wasn't answered within the ack timeout.

  - **Credit** is what may be open here: dealt, and not answered.  It is given back when the program
    has answered, so a member that works on one message at a time, and asks for one, gets one.
  - **Answers** wait a moment for others, and go to the leader together.  Before more credit is
    given they go at once.
  - **Messages that wait** here for the program are extended, so that the ack timeout bounds the
    program's work and not the waiting.  If the program neither takes nor answers a message for the
    ack timeout, what waits is given back to the queue, and no credit is given until it goes on.
    What could not be extended in time, since the whole program was paused, is not handed out.
  - **A delivery belongs to one attachment.**  When that ends, because the leader changes, the
    connection breaks or the mark is reset, all its deliveries are void: what waits is dropped, and
    answers to what is in the program's hands count no more.  The messages are dealt anew.

  - **Order within a key** (`is_ordered`): a message is handed out when those of its key before it
    are answered.  One that is released or rejected takes those behind it along: the leader deals
    them again.  What the leader dealt before it knew of that goes with them; so nothing of the key
    is handed out until it has said that it knows.

An answer that counts no more is *stale*.  It is counted, and no error: the message was dealt to
another member, and a program has to bear that a message comes again.

Pure: calls are events, results are lists of effects, to be performed in their order.  Times are
seconds on the monotonic clock of the member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from octopi.clients.subscribing.key_turns import OpenDelivery, WaitingDeliveries
from octopi.clients.subscribing.queue_answers import (
    PendingAnswers,
    QueueEffect,
    SendCredit,
)
from octopi.identifiers import Offset
from octopi.limits import SETTLE_COUNT_MAX

SETTLING_S: Final = 0.1
"""An answer waits so long for others before they are sent."""
CONFIRMING_S: Final = 1.0
"""The leader is asked so often whether acknowledgements are committed."""
_CHECKS: Final = 3
"""How often, in an ack timeout, it is looked at what waits."""


@attrs.define
class _HeldKey:
    """A key of which a message was given back, and the leader may not know yet."""

    delivery: OpenDelivery
    """Of that message."""
    number: int | None = None
    """The leader knows when it has answered that confirmation; None: it was not sent."""
    is_stale: bool = False
    """Whether the message was at another member already, so it took no other one along."""


class QueueSession:
    """One log of a queue, as one of its members sees it.

    Invariants: what is open never exceeds the credit that was given; an answer is sent once, on the
    attachment of its delivery; nothing is sent while there is no attachment.
    """

    def __init__(
        self,
        ack_timeout_s: float,
        prefetch_count: int,
        prefetch_bytes: int,
        *,
        is_ordered: bool = False,
    ) -> None:
        """*prefetch_count*, *prefetch_bytes*: what may be open here.  *is_ordered*: whether
        messages of a key are handed out one by one."""
        self._is_ordered = is_ordered
        self._ack_timeout_s = ack_timeout_s
        self._prefetch_count = prefetch_count
        self._prefetch_bytes = prefetch_bytes
        self._attachment = 0
        self.is_attached = False
        """Whether the leader deals now."""
        self._open: dict[Offset, OpenDelivery] = {}
        """The newest delivery of each message that is open here."""
        self._waiting = WaitingDeliveries()
        self._in_hand: set[OpenDelivery] = set()
        """What the program was given, and has not answered."""
        self._returned_count = self._returned_bytes = 0
        """What was answered or dropped, since the attach."""
        self._given_count = self._given_bytes = 0
        """The part of it for which credit was given again."""
        self._pending = PendingAnswers()
        self._held: deque[_HeldKey] = deque()
        """In the order in which they were given back."""
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
        self._in_hand.clear()
        self._check_at = self._resumed_at = None
        self._held.clear()
        unsent = self._pending.clear()
        self.stale_count += unsent + self._unasked + sum(count for _, count in self._unconfirmed)
        self._unasked = 0
        self._unconfirmed.clear()
        self._confirmed = self._numbers
        self._returned_count = self._returned_bytes = 0
        self._given_count = self._given_bytes = 0

    def dealt(
        self,
        offsets: Sequence[Offset],
        attempts: Sequence[int],
        sizes: Sequence[int],
        now: float,
        keys: Sequence[bytes | None] = (),
    ) -> list[OpenDelivery]:
        """The leader dealt these messages; they wait for the program.  *keys* matter only where
        they are ordered."""
        assert self.is_attached, "dealt without an attachment"
        deliveries: list[OpenDelivery] = []
        for offset, attempt, size_bytes in zip(offsets, attempts, sizes, strict=True):
            older = self._open.get(offset)
            if older is not None:
                self._void(older)
            delivery = OpenDelivery(offset, attempt, size_bytes, self._attachment, now, now)
            if self._is_ordered and keys:
                delivery.key = keys[len(deliveries)]
            self._open[offset] = delivery
            deliveries.append(delivery)
        self._waiting.add(deliveries)
        if self._check_at is None:
            self._check_at = now + self._ack_timeout_s / _CHECKS
        return deliveries

    # --- the program -------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        """Deliveries that are open here."""
        return len(self._open)

    @property
    def seen(self) -> list[tuple[Offset, int]]:
        """The deliveries that the program was given in this attachment, as offset and attempt, in
        order; but for those whose answers were sent."""
        in_hand = [(one.offset, one.attempt) for one in self._in_hand]
        return sorted(in_hand + self._pending.deliveries)

    @property
    def is_resuming(self) -> bool:
        """Whether credit may be due because the program went on: call `tick`."""
        return self._resumed_at is not None

    def take(self, now: float) -> OpenDelivery | None:
        """The next message for the program; None: none waits.  Call `tick` when `due_at` says."""
        self._void_late(now)
        self._act(now)
        delivery = self._waiting.take()
        if delivery is not None:
            self._in_hand.add(delivery)
        return delivery

    def take_all(self, now: float) -> list[OpenDelivery]:
        """All messages that wait for the program, for one task: also several of a key."""
        self._void_late(now)
        self._act(now)
        taken = self._waiting.take_all()
        self._in_hand.update(taken)
        return taken

    def deadline(self, delivery: OpenDelivery) -> float:
        """When the message may be dealt to another member, at the earliest."""
        return delivery.since + self._ack_timeout_s

    def acknowledge(self, deliveries: Iterable[OpenDelivery], now: float) -> list[QueueEffect]:
        """The program has processed these; what it answered before stays answered."""
        self._act(now)
        for one in deliveries:
            if self._answer(one):
                self._pending.acknowledged.append((one.offset, one.attempt))
        return self._after_answers(now)

    def release(
        self, deliveries: Iterable[OpenDelivery], delay_ms: int, now: float
    ) -> list[QueueEffect]:
        """The program gives these back, to be dealt again after a delay."""
        self._act(now)
        for one in deliveries:
            if self._answer(one, gives_back=True):
                self._pending.released.append((one.offset, one.attempt, delay_ms))
                self._void_behind(one)
        return self._after_answers(now)

    def reject(self, delivery: OpenDelivery, reason: str, now: float) -> list[QueueEffect]:
        """The program can't process it, ever: it becomes a dead letter."""
        self._act(now)
        if self._answer(delivery, gives_back=True):
            self._pending.rejected.append((delivery.offset, delivery.attempt, reason))
            self._void_behind(delivery)
        return self._after_answers(now)

    def extend(self, delivery: OpenDelivery, now: float) -> list[QueueEffect]:
        """The program needs longer: the ack timeout begins anew."""
        self._act(now)
        if not delivery.is_answered and self._counts(delivery):
            delivery.since, delivery.is_extended = now, True
            self._pending.extended.append((delivery.offset, delivery.attempt))
        return self._after_answers(now)

    def confirm(self, now: float) -> tuple[int, list[QueueEffect]]:
        """The program wants to know when all that it answered is committed: once `is_confirmed`
        of the number that this returns."""
        if not self.is_attached:
            return self._confirmed, []
        if not len(self._pending) and not self._unasked:
            return self._unconfirmed[-1][0] if self._unconfirmed else self._confirmed, []
        return self._numbers + 1, self._send(now, confirm=True)

    def is_confirmed(self, number: int) -> bool:
        """Whether what was answered before that `confirm` is committed, or never will be."""
        return self._confirmed >= number

    def flush(self, now: float) -> list[QueueEffect]:
        """Nothing more will be answered: send what waits."""
        return self._send(now) if self.is_attached and len(self._pending) else []

    # --- the leader's answers ------------------------------------------------------------

    def settled(self, number: int, stale: Iterable[Offset], now: float) -> list[QueueEffect]:
        """What was sent up to the confirmation *number* (0: none) is committed, but for *stale*:
        those deliveries were not the newest of their messages."""
        for offset in stale:
            for held in self._held:
                held.is_stale |= held.delivery.offset == offset
            delivery = self._open.get(offset)
            if delivery is None or not delivery.is_extended:
                self.stale_count += 1
            else:  # it was an extension
                self._void(delivery)
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._confirmed, _ = self._unconfirmed.popleft()
        while self._held and (at := self._held[0].number) is not None and at <= number:
            self._let_go(self._held.popleft())
        return self._after_answers(now)

    # --- time --------------------------------------------------------------------------

    def due_at(self) -> float | None:
        """When to call `tick`; None: there is nothing to do."""
        if not self.is_attached:
            return None
        times = [one for one in (self._check_at, self._resumed_at) if one is not None]
        if len(self._pending):
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
        if len(self._pending) and now >= self._sent_at + SETTLING_S:
            effects += self._send(now)
        if self._unasked and now >= self._unasked_since + CONFIRMING_S:
            effects += self._send(now, confirm=True)
        if self._resumed_at is not None:
            effects += self._after_answers(now)
        return effects

    def _check_waiting(self, now: float) -> None:
        """Extend what waits; or give it back, if the program does nothing."""
        self._void_late(now)
        self._check_at = None
        waiting = [one for one in self._open.values() if not one.is_taken]
        if not waiting:
            return
        if now - max(self._active_at, waiting[0].dealt_at) >= self._ack_timeout_s:
            self._is_stalled = True
            for one in waiting:
                if one.is_void:  # one of its key before it took it along
                    continue
                self._pending.released.append((one.offset, one.attempt, 0))
                self._hold(one)
                self._void(one)
            return
        self._check_at = now + self._ack_timeout_s / _CHECKS
        for one in waiting:
            if now - one.since >= self._ack_timeout_s / _CHECKS / 2:
                one.since, one.is_extended = now, True
                self._pending.extended.append((one.offset, one.attempt))

    def _void_late(self, now: float) -> None:
        """Drop what waits and may be at another member by now: this one was paused, since otherwise
        it would have been extended in time."""
        if self._check_at is None or now < self._check_at:
            return
        for one in list(self._open.values()):
            if not (one.is_taken or one.is_void) and now >= self.deadline(one):
                self._void(one)
                self._resumed_at = now  # credit may be due

    # --- within ------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        """The program took or answered something."""
        self._active_at = now
        if self._is_stalled:
            self._is_stalled = False
            self._resumed_at = now

    def _counts(self, delivery: OpenDelivery) -> bool:
        return self.is_attached and delivery.attachment == self._attachment and not delivery.is_void

    def _answer(self, delivery: OpenDelivery, *, gives_back: bool = False) -> bool:
        """The program has answered; false if that has no effect."""
        if delivery.is_answered:
            return False
        delivery.is_answered = True
        self._in_hand.discard(delivery)
        counts = self._counts(delivery)
        if not counts:
            self.stale_count += 1
        if delivery.attachment == self._attachment and delivery.is_void:
            self._give_back(delivery)  # it kept its credit while the program worked on it
        elif counts:
            if gives_back:
                self._hold(delivery)
            self._forget(delivery)
        return counts

    def _hold(self, delivery: OpenDelivery) -> None:
        """It is given back: nothing of its key is handed out until the leader knows that."""
        if delivery.key is not None:
            self._waiting.hold(delivery.key)
            self._held.append(_HeldKey(delivery))

    def _let_go(self, held: _HeldKey) -> None:
        """The leader knows that a message was given back."""
        if not held.is_stale:
            self._void_behind(held.delivery)
        assert held.delivery.key is not None
        self._waiting.let_go(held.delivery.key)

    def _forget(self, delivery: OpenDelivery) -> None:
        del self._open[delivery.offset]
        self._give_back(delivery)
        self._waiting.ended(delivery)

    def _void(self, delivery: OpenDelivery) -> None:
        """The leader has dealt the message again, or will."""
        delivery.is_void = True
        del self._open[delivery.offset]
        if not delivery.is_taken:
            self._give_back(delivery)
        self._waiting.ended(delivery)
        self._void_behind(delivery)

    def _void_behind(self, delivery: OpenDelivery) -> None:
        """Those of its key behind it are dealt again, too."""
        key, offset = delivery.key, delivery.offset
        if key is not None:
            behind = [one for one in self._open.values() if one.key == key and one.offset > offset]
            for one in sorted(behind, key=lambda each: each.offset, reverse=True):
                self._void(one)

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
        if len(self._pending) and (
            is_credit_due
            or now >= self._sent_at + SETTLING_S
            or len(self._pending) >= SETTLE_COUNT_MAX
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
        self._unasked += len(self._pending.acknowledged)
        unsent = [one for one in self._held if one.number is None]
        sent: list[QueueEffect] = []
        while len(self._pending) > SETTLE_COUNT_MAX:
            sent.append(self._pending.next_settle(None))
        number = None
        if confirm := confirm or bool(unsent):
            self._numbers += 1
            number = self._numbers
            self._unconfirmed.append((number, self._unasked))
            self._unasked = 0
            for one in unsent:
                one.number = number
        if len(self._pending) or confirm:
            sent.append(self._pending.next_settle(number))
        return sent

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.is_attached or not (self._open or self._pending or self._unconfirmed)
        assert self._given_count <= self._returned_count
        assert self._given_bytes <= self._returned_bytes
        for offset, one in self._open.items():
            assert one.offset == offset
            assert not one.is_answered
            assert not one.is_void
            assert one.attachment == self._attachment
        self._waiting.check_invariants()
