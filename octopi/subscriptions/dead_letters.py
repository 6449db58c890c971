"""The messages of a queue that are given up, until they are in its dead-letter topic.

Each gets a number; it is committed before the dead letter is appended, with the number as its
producer sequence, so a repetition by this leader or a later one is recognised by the log.  They are
appended one at a time, in the order of their numbers.

A log that doesn't know the sequence is another one than before: the topic was deleted and made
again, or lost what it had.  Then a new producer epoch begins, in which the first sequence is 0;
that is committed before it is used, too.

Pure.  Times are seconds on the monotonic clock of the leader.
"""

from __future__ import annotations

from typing import Final

from octopi.identifiers import Offset, SubscriptionName, TopicId, TopicName
from octopi.limits import LETTERS_PENDING_MAX
from octopi.subscriptions.entries import LetterEntry, LetterSequence
from octopi.subscriptions.queued_messages import MessageState, QueuedMessage

RETRY_S: Final = 1.0
"""A dead letter that was not taken is tried again after this, then after twice as long..."""
RETRY_S_MAX: Final = 60.0

SUFFIX: Final = ".dead"


def letter_topic(topic: TopicName, name: SubscriptionName) -> TopicName:
    """The name of the dead-letter topic of a subscription."""
    return TopicName(f"{topic}.{name}{SUFFIX}")


class DeadLetters:
    """Those that have numbers and are not known to be committed.

    Invariants: numbers are consecutive, but for messages that were lost; at most one is on its way.
    """

    def __init__(
        self,
        pending: list[LetterEntry],
        count: int,
        sequence: LetterSequence,
        *,
        is_committed: bool,
    ) -> None:
        """Begin with what is stored; *is_committed*: whether the sequence is committed."""
        self._pending = {one.offset: one for one in pending}
        """In the order of their numbers."""
        self._unknown: set[Offset] = set()
        """Those whose numbers are not known to be committed."""
        self.count = count
        """How many numbers were given."""
        self.sequence = sequence
        self._is_sequence_known = is_committed
        self._on_its_way: Offset | None = None
        self._retry_at = 0.0
        self._retry_s = RETRY_S
        self.fault = ""
        """Why the first one is not taken."""

    @property
    def entries(self) -> list[LetterEntry]:
        """What is to be stored of them."""
        return list(self._pending.values())

    @property
    def committed_count(self) -> int:
        """How many are known to be in the topic."""
        return self.count - len(self._pending)

    @property
    def has_room(self) -> bool:
        """Whether one more message can get a number now."""
        return len(self._pending) < LETTERS_PENDING_MAX

    def get(self, offset: Offset) -> LetterEntry | None:
        """The one of a message; None: it has no number."""
        return self._pending.get(offset)

    def add(self, message: QueuedMessage) -> None:
        """Give a message the next number."""
        message.state = MessageState.DYING
        self._pending[message.offset] = LetterEntry(
            message.offset, self.count, message.attempt, message.reason
        )
        self._unknown.add(message.offset)
        self.count += 1

    def stored(self) -> tuple[LetterSequence, frozenset[Offset]]:
        """What an entry that is appended now says; tell it to `known` when that is committed."""
        return self.sequence, frozenset(self._unknown)

    def known(self, stored: tuple[LetterSequence, frozenset[Offset]]) -> None:
        """An entry that had this is committed."""
        sequence, offsets = stored
        self._unknown -= offsets
        if sequence == self.sequence:
            self._is_sequence_known = True

    @property
    def is_unknown(self) -> bool:
        """Whether something has to be committed before letters go on."""
        return bool(self._unknown) or not self._is_sequence_known

    @property
    def due_at(self) -> float | None:
        """When the first one is tried again; None: it waits for something else."""
        return self._retry_at if self.fault and self._first() is not None else None

    def _first(self) -> LetterEntry | None:
        """The one that is to be appended next, if it may be appended at all."""
        if self._on_its_way is not None or not self._is_sequence_known:
            return None
        first = next(iter(self._pending.values()), None)
        return None if first is None or first.offset in self._unknown else first

    def next(self, now: float) -> LetterEntry | None:
        """The one that is to be appended now."""
        first = self._first()
        return None if first is None or now < self._retry_at else first

    def send(self, letter: LetterEntry) -> int:
        """It is appended next; return its sequence."""
        self._on_its_way = letter.offset
        return letter.number - self.sequence.first_number

    def committed(self, number: int) -> Offset | None:
        """The dead letter with that number is committed; return its message's offset, or None if
        it was not on its way."""
        letter = self._sent(number)
        if letter is None:
            return None
        del self._pending[letter.offset]
        self._on_its_way = None
        self.fault, self._retry_at, self._retry_s = "", 0.0, RETRY_S
        return letter.offset

    def failed(self, number: int, fault: str, now: float) -> None:
        """It was not taken: it is tried again later."""
        if self._sent(number) is None:
            return
        self._on_its_way = None
        self.fault, self._retry_at = fault, now + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)

    def begin_sequence(self, number: int, topic_id: TopicId) -> None:
        """The log with that topic id doesn't know the sequence: begin another one with this
        letter."""
        if self._sent(number) is not None:
            self._on_its_way = None
            self._begin_sequence(number, topic_id)

    def _begin_sequence(self, number: int, topic_id: TopicId) -> None:
        self.sequence = LetterSequence(topic_id, self.sequence.epoch + 1, number)
        self._is_sequence_known = False

    def drop(self, offset: Offset) -> None:
        """The message is lost."""
        if self._pending.pop(offset, None) is None:
            return
        self._unknown.discard(offset)
        if self._on_its_way == offset:
            self._on_its_way = None
        following = next(iter(self._pending.values()), None)
        number = self.count if following is None else following.number
        self._begin_sequence(number, self.sequence.topic_id)

    def _sent(self, number: int) -> LetterEntry | None:
        letter = None if self._on_its_way is None else self._pending.get(self._on_its_way)
        return letter if letter is not None and letter.number == number else None

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        numbers = [one.number for one in self._pending.values()]
        assert numbers == sorted(set(numbers))
        assert len(numbers) <= LETTERS_PENDING_MAX
        assert all(number < self.count for number in numbers)
        assert self._on_its_way is None or self._on_its_way in self._pending
