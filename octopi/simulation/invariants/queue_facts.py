"""What is known of one queue in one log: its messages, what was stored of them, to whom they were
dealt, who answered, and which of them are dead letters.

`octopi.simulation.invariants.queues` has the rules.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from octopi.identifiers import Offset, PartitionId, SubscriptionId
from octopi.model import QUEUE_MODES, SubscriptionMode
from octopi.record import record_end, record_key
from octopi.simulation.disk.log_bytes import LogBytes
from octopi.subscriptions.entries import LetterSequence, MarkEntry, StoredSubscriptions
from octopi.subscriptions.queue_entries import attempts_of, settled_ranges

_SURE_SHARE: Final = 0.7
"""A delivery that is open for less than this share of the ack timeout has not timed out, whatever
the clock of its leader shows."""


@attrs.frozen
class Attachment:
    """Who is dealt messages: one attach of a member, at one leader."""

    host: str
    """That of the leader."""
    life: int
    session: int


@attrs.frozen
class KnownDelivery:
    """One dealing of a message."""

    number: int
    """Among all deliveries of the queue, in order."""
    offset: Offset
    attempt: int
    to: Attachment


@attrs.frozen
class KnownMessage:
    """A message of the queue's log."""

    offset: Offset
    end: Offset
    key: bytes | None


@attrs.define
class KnownAnswers:
    """Acknowledgements that one attachment sent together."""

    number: int | None
    """With which their confirmation comes; None: none is asked for."""
    counting: list[KnownDelivery]
    """Those that were of the newest delivery, and in order."""
    others: list[Offset]


class KnownQueue:
    """One queue in one log."""

    def __init__(self, sid: str, topic: str, partition: PartitionId) -> None:
        self.sid = sid
        self.topic = topic
        self.partition = partition
        self.entry: MarkEntry | None = None
        """The newest that is committed."""
        self.ever_settled: set[Offset] = set()
        """What entries settled whose commit was heard of."""
        self._counts: dict[Offset, int] = {}
        """Of that entry: how often messages were dealt that were given back."""
        self.reset_claim = 0
        """That of the newest reset; entries with older claims were appended before it."""
        self._reset_numbers: list[int] = []
        """How many numbers of dead letters were given before each reset."""
        self.is_resetting = False
        """Whether an operator is setting the mark, perhaps several times, each with the same
        claim."""
        self.leader_count = 0
        """How many leaders began with it."""
        self.newest: dict[Offset, KnownDelivery] = {}
        """By message: its newest delivery by the present leader."""
        self.answered: dict[Offset, KnownDelivery] = {}
        """The same, of those that are acknowledged, as far as can be seen."""
        self._final: dict[Offset, int] = {}
        """By message: the number of its delivery that was acknowledged and is committed."""
        self.asked: dict[Attachment, list[KnownAnswers]] = {}
        """Whose confirmation may still come."""
        self.dealt: Counter[Offset] = Counter()
        """How often each message was dealt, by all leaders, as far as it counts."""
        self.perhaps_uncounted: Counter[Offset] = Counter()
        """How many of these deliveries may not count, since no program saw them."""
        self._waiting_since: dict[int, float] = {}
        """By number of a delivery: when it was dealt, or extended last (s)."""
        self.answered_in_vain: set[int] = set()
        """Numbers of deliveries whose acknowledgement didn't count when it came."""
        self._unseen: set[int] = set()
        """Numbers of deliveries that were given back, and that no program saw."""
        self._perhaps_unseen: set[int] = set()
        """Those that may have timed out before."""
        self._uncertain: set[int] = set()
        """Those that the last reset may have made forgotten."""
        self._dealt_first: dict[Offset, int] = {}
        """By message: `leader_count` when it was dealt first."""
        self._delivery_count = 0
        self.rejected: set[Offset] = set()
        self._sequences: dict[int, LetterSequence] = {}
        """By producer epoch: the committed sequences of dead letters."""
        self._numbered: dict[int, Offset] = {}
        """By number: the messages that are given up, where that is committed."""
        self._letters: dict[int, Offset] = {}
        """The same, of those that are committed in the dead-letter topic."""
        self._messages: list[KnownMessage] = []
        """Those of the log that were looked at: all from the first one on."""

    def __str__(self) -> str:
        return f"{self.sid} in partition {self.partition}"

    # --- entries -----------------------------------------------------------------------

    @property
    def is_ordered(self) -> bool:
        """Whether messages of a key are settled in order."""
        return self.entry is not None and self.entry.mode == SubscriptionMode.KEY_SHARED

    def load(self, entry: MarkEntry) -> None:
        """A leader begins with *entry*."""
        self.leader_count += 1
        self.newest.clear()
        self.answered.clear()
        self.asked.clear()
        self.reset_claim = int(entry.claim)
        self.store(entry)
        # A reset that is not committed never was: what it made forgotten counts again.
        for offset, count in self._counts.items():
            self.dealt[offset] = max(count, self.dealt[offset])
        for letter in entry.queue.letters:
            self.dealt[letter.offset] = max(letter.attempts, self.dealt[letter.offset])

    def store(self, entry: MarkEntry) -> None:
        """*entry* is committed."""
        if self.entry is not None and entry.claim > self.entry.claim:
            self._reset_numbers.append(entry.queue.letter_count)
        self.entry = entry
        self._counts = dict(attempts_of(entry.mark, entry.queue.attempts))
        self._sequences[entry.queue.sequence.epoch] = entry.queue.sequence
        for letter in entry.queue.letters:
            self._numbered[letter.number] = letter.offset
        for offset, delivery in self.answered.items():
            if self.is_settled(offset):
                self._final[offset] = delivery.number

    def reset(self, claim: int) -> None:
        """The mark is set anew, with a claim that was never there before."""
        self.reset_claim = claim
        self.newest.clear()
        self.answered.clear()
        self.asked.clear()
        self._final.clear()
        self.dealt.clear()
        self._dealt_first.clear()
        self.rejected.clear()
        self.perhaps_uncounted.clear()

    def end_reset(self) -> None:
        """The operator has set the mark for the last time.  It isn't known which deliveries came
        before that, so none of them counts for sure."""
        self.is_resetting = False
        self._uncertain.update(one.number for one in self.newest.values())
        self.perhaps_uncounted = self.dealt.copy()

    def is_settled(self, offset: Offset) -> bool:
        """Whether it is committed that the message is settled."""
        if self.entry is None:
            return False
        return settles(self.entry, offset)

    def newly_settled(self, entry: MarkEntry, log: LogBytes) -> list[KnownMessage]:
        """The messages that *entry*, which is committed now, settles, and the one before it
        doesn't."""
        before = self.entry
        if before is None:
            return []
        ranges = list(settled_ranges(entry.mark, entry.queue.settled))
        end = max([entry.mark, *(stop for _, stop in ranges)])
        found = [
            one
            for one in self.messages(before.mark, Offset(end), log)
            if settles(entry, one.offset) and not self.is_settled(one.offset)
        ]
        self.ever_settled.update(one.offset for one in found)
        return found

    def stored_count(self, offset: Offset) -> int:
        """How often the message was dealt, by what is committed."""
        return self._counts.get(offset, 0)

    # --- deliveries ----------------------------------------------------------------------

    def deal(self, offset: Offset, attempt: int, to: Attachment, now: float) -> KnownDelivery:
        """A message is dealt."""
        self._delivery_count += 1
        self._dealt_first.setdefault(offset, self.leader_count)
        self.dealt[offset] += 1
        self.answered.pop(offset, None)
        delivery = KnownDelivery(self._delivery_count, offset, attempt, to)
        self.newest[offset] = delivery
        self._waiting_since[delivery.number] = now
        return delivery

    def leaders_since(self, offset: Offset) -> int:
        """How many leaders began since the message was dealt first."""
        return self.leader_count - self._dealt_first.get(offset, self.leader_count)

    def deliveries_allowed(self, offset: Offset, key: bytes | None, log: LogBytes) -> int | None:
        """How often a message may be dealt; None: for ever, or it isn't known, since retention may
        have removed earlier messages of its key.  Deliveries that counted nowhere are allowed
        besides: before each change of leaders one, in the order of keys those that ended since the
        delivery of an earlier message did, and those that no program may have seen."""
        assert self.entry is not None
        if self.entry.attempts is None or (key is not None and log.start > 0):
            return None
        before = () if key is None else self.messages(Offset(0), offset, log)
        ended = sum(self.dealt[one.offset] for one in before if one.key == key)
        changes = self.leaders_since(offset)
        return self.entry.attempts + changes + ended + self.perhaps_uncounted[offset]

    def newest_at(self, offset: Offset, attempt: int, to: Attachment) -> KnownDelivery | None:
        """The delivery, if it is the newest one of its message, and not acknowledged."""
        one = self.newest.get(offset)
        if one is None or (one.attempt, one.to) != (attempt, to) or offset in self.answered:
            return None
        return one

    def final_number(self, offset: Offset) -> int:
        """The number of the delivery that settled the message; 0: none is known."""
        if (one := self.answered.get(offset)) is not None:
            return one.number
        return self._final.get(offset, 0)

    def withdraw(self, offset: Offset, asked: Collection[KnownAnswers]) -> None:
        """An answer for the message at *offset* didn't count, of those that were *asked*.  It may
        be the answer to an earlier delivery, where there was one: then that to the newest counts,
        perhaps."""
        if self.is_settled(offset):
            return
        may_count = any(offset in answers.others for answers in asked)
        for answers in asked:
            for one in [one for one in answers.counting if one.offset == offset]:
                answers.counting.remove(one)
                if not may_count and self.answered.get(offset) is one:
                    del self.answered[offset]

    def end_delivery(self, offset: Offset, log: LogBytes) -> None:
        """A delivery is given back, and with it those of later messages of its key."""
        del self.newest[offset]
        if not self.is_ordered or self.entry is None:
            return
        last = max(self.newest, default=offset)
        found = list(self.messages(offset, Offset(last + 1), log))
        for later in found[1:]:
            if later.key is not None and later.key == found[0].key:
                self.newest.pop(later.offset, None)

    def extend(self, one: KnownDelivery, now: float) -> None:
        """The leader waits a whole ack timeout more for the answer to a delivery."""
        self._waiting_since[one.number] = now

    def leave(self, to: Attachment, seen: Collection[tuple[int, int]], now: float) -> None:
        """A member leaves, whose program was given the deliveries *seen* (offset and attempt): the
        others that are open at it don't count.  Those that the leader may have given up waiting for
        count, perhaps."""
        assert self.entry is not None
        sure_s = _SURE_SHARE * self.entry.ack_timeout_ms / 1000
        for offset, one in self.newest.items():
            is_seen = (offset, one.attempt) in seen or one.number in self.answered_in_vain
            if one.to != to or is_seen or self.is_done(offset):
                continue
            if now - self._waiting_since[one.number] < sure_s:
                self.dealt[offset] -= 1
                self._unseen.add(one.number)
            else:
                self.perhaps_uncounted[offset] += 1
                self._perhaps_unseen.add(one.number)

    def next_attempts(self, offset: Offset) -> tuple[int, ...]:
        """As which attempt the message may be dealt next; none: that is not known."""
        if (one := self.newest.get(offset)) is None or one.number in self._uncertain:
            return ()
        if one.number in self._perhaps_unseen:
            return one.attempt, one.attempt + 1
        return (one.attempt if one.number in self._unseen else one.attempt + 1,)

    def is_done(self, offset: Offset) -> bool:
        """Whether the message is settled, as far as its leader can know."""
        return self.is_settled(offset) or offset in self.answered or self.is_letter(offset)

    # --- dead letters --------------------------------------------------------------------

    def is_numbered(self, number: int, offset: Offset) -> bool:
        """Whether it is committed that the message is given up, with that number."""
        return self._numbered.get(number) == offset

    def number_of(self, producer_epoch: int, sequence: int) -> int | None:
        """The number of the dead letter with that sequence; None: such a sequence is not committed,
        so no dead letter can have it."""
        found = self._sequences.get(producer_epoch)
        return None if found is None else found.first_number + sequence

    def is_newer(self, number: int) -> bool:
        """Whether a dead letter got its number since the mark was reset last."""
        return number >= (self._reset_numbers[-1] if self._reset_numbers else 0)

    def is_letter(self, offset: Offset) -> bool:
        """Whether the message's dead letter is committed, since the mark was reset last."""
        return any(known == offset and self.is_newer(n) for n, known in self._letters.items())

    def add_letter(self, number: int, offset: Offset) -> str:
        """A dead letter is committed; return why it must not be, or nothing."""
        for known, other in self._letters.items():
            resets = [one for one in self._reset_numbers if known < one <= number]
            if known == number or (other == offset and not resets):
                return f"number {known} is the dead letter of the message at {other}"
        self._letters[number] = offset
        return ""

    # --- messages ------------------------------------------------------------------------

    def messages(self, begin: Offset, end: Offset, log: LogBytes) -> Iterator[KnownMessage]:
        """The messages that begin from *begin* on and before *end*, as *log* has them."""
        start = Offset(max(begin, log.start))
        known = self._messages
        if not known or start < known[0].offset or known[-1].end < log.start:
            # Retention may have removed what is between, and less of it on another broker.
            known.clear()
            self._read(start, end, log)
        elif end > known[-1].end:
            self._read(known[-1].end, end, log)
        at = bisect_left(self._messages, start, key=lambda one: one.offset)
        while at < len(self._messages) and self._messages[at].offset < end:
            yield self._messages[at]
            at += 1

    def _read(self, begin: Offset, end: Offset, log: LogBytes) -> None:
        data = log.read(begin, log.end)
        position = 0
        while position < min(end - begin, len(data)):
            stop = record_end(data, position)
            key = record_key(data, position)
            self._messages.append(KnownMessage(Offset(begin + position), Offset(begin + stop), key))
            position = stop


def settles(entry: MarkEntry, offset: Offset) -> bool:
    """Whether by *entry* the message is settled."""
    return offset < entry.mark or any(
        begin <= offset < end for begin, end in settled_ranges(entry.mark, entry.queue.settled)
    )


def queues_in(
    states: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[SubscriptionId, MarkEntry]]:
    """The queues among entries of the log ``~subscriptions``, by subscription."""
    marks = {
        key: value
        for key, value in states.items()
        if key.startswith("k/") and value.get("mode") in QUEUE_MODES
    }
    for (sid, _), entry in StoredSubscriptions.read(marks).marks.items():
        yield sid, entry
