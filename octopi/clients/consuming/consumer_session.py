"""What one consumer expects of one log: the next record, the credit, and what a failure
means.

The machine decides, `octopi.clients.consuming.log_subscriber` talks.  It knows no connection, no
clock and no task.

A log's records come in deliveries, one behind the other.  The session takes a delivery
only if it begins at the next record (a repetition is ignored, a hole is the broker's
fault), so whatever happens to connections, the program sees each record once and in
order.  A place carries an anchor, which a broker compares with what it has there: what was read
and is gone from the log is never passed over.

Credit is a position: the broker may send records that start below it.  It is moved ahead when
half of the window has become free.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache

import attrs

from octopi.clients.consuming.trail import Trail
from octopi.errors import (
    Blame,
    ConnectionLostError,
    HistoryForkedError,
    HistoryLostError,
    InvalidOptionError,
    OctopiError,
    OffsetOutOfRangeError,
    ProtocolError,
    RefusedError,
    TopicReplacedError,
    UnreachableError,
)
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Anchor, Place, checked_anchor


class Remedy(Enum):
    """What to do after a reading ended."""

    LOOK_AGAIN = auto()
    """Ask the register where the log is, and subscribe there."""
    TRY_ANOTHER = auto()
    """Subscribe at another replica: this one's disk, or program, fails."""
    CHECK_HISTORY = auto()
    """Ask where the log starts and ends, then `check_history`."""
    FALL_BACK = auto()
    """The log isn't what was read: `forked`, then subscribe further down."""
    STOP = auto()
    """Trying again can't help."""


def remedy(error: OctopiError) -> Remedy:
    """What to do after a reading ended with *error*."""
    match error:
        case OffsetOutOfRangeError():
            return Remedy.CHECK_HISTORY
        case HistoryForkedError(read_until=None):
            return Remedy.FALL_BACK  # else it is our own, and has been looked into
        case RefusedError(meaning=meaning) if meaning.retryable or meaning.look_up:
            return Remedy.LOOK_AGAIN
        case RefusedError(meaning=meaning) if meaning.fault is Blame.NODE:
            return Remedy.TRY_ANOTHER
        case ConnectionLostError() | UnreachableError():
            return Remedy.LOOK_AGAIN
        case _:
            return Remedy.STOP


@attrs.frozen
class Chunk:
    """Records to be handed to the program."""

    offset: Offset
    records: bytes
    anchor: Anchor
    """Of every place behind the first of them."""


class ConsumerSession:
    """One log, from where the program wants to read on.

    Invariant: what waits in the consumer and what may be on its way (from `wanted` to
    `credit`) fits the window together, apart from the end of the last record.
    """

    def __init__(
        self,
        topic: TopicName,
        partition: PartitionId,
        topic_id: TopicId,
        start: Place,
        window_bytes: int,
        *,
        end: Offset | None = None,
    ) -> None:
        """*end*: read no record that starts at or behind it."""
        self.topic = topic
        self.partition = partition
        self._topic_id = topic_id
        self._window_bytes = window_bytes
        self._end = end
        self._trail = Trail(start)
        self._start = start.offset
        self.start_anchor = start.anchor
        """What stood before the start when it was taken; empty: not known yet."""
        self._is_checked = not start.anchor
        """Whether a broker agreed with what stands before the start."""
        self._read_until: Offset | None = None
        """A broker disagreed with what was read up to there, and none has agreed since."""
        self.waiting_bytes = 0
        """Records that came and weren't taken yet."""
        self.credit = self._credit_now()
        self.highwater = start.offset
        """The newest highwater mark heard of."""

    @property
    def wanted(self) -> Offset:
        """The next record to come from a broker."""
        return self._trail.offset

    @property
    def place(self) -> Place:
        """`wanted`, and what stands before it."""
        return self._trail.place

    @property
    def is_finished(self) -> bool:
        """Whether everything up to the end has arrived, and is still in the log."""
        return self._is_checked and self._end is not None and self.wanted >= self._end

    def resume(self) -> Place:
        """A reading begins: where, and with `credit`."""
        self.credit = self._credit_now()
        return self.place

    def check_topic(self, topic_id: str) -> None:
        """An answer said which creation of the topic is there.

        Raises:
          TopicReplacedError: if it is another one.
        """
        if topic_id != self._topic_id:
            raise TopicReplacedError(
                f"{self.topic}: the topic was deleted and created again (id {self._topic_id}, "
                f"now {topic_id}); start from earliest or latest"
            )

    def subscribed(self, topic_id: str, highwater: int, anchor: str) -> HistoryForkedError | None:
        """The broker accepted the reading, and *anchor* stands before `wanted`.

        Returns: what was read and is gone, if a broker disagreed with it before.

        Raises:
          TopicReplacedError: if it is another creation of the topic.
          ProtocolError: if *anchor* can't be one.
        """
        self.check_topic(topic_id)
        self._is_checked = True
        self._trail.know(_checked(anchor))
        if not self.start_anchor and self.wanted == self._start:
            self.start_anchor = self.place.anchor
        if self._read_until is None:
            self.highwater = Offset(max(self.highwater, highwater))
            return None
        read_until, self._read_until = self._read_until, None
        self.highwater = Offset(highwater)
        if self._end is not None:
            self._end = min(self._end, Offset(highwater))  # what was the end may come no more
            self.credit = min(self.credit, self._end)
        return HistoryForkedError.of_range(self.topic, self.partition, self.wanted, read_until)

    def forked(self, error: HistoryForkedError) -> None:
        """A broker has something else before `wanted`: ask for less.

        Raises:
          ProtocolError: if it doesn't say what it has.
        """
        if error.offset is None or error.offset >= self.wanted:
            raise ProtocolError(
                f"{self.topic}/{self.partition}: a broker disagrees with what was read before "
                f"{self.wanted}, and claims to agree up to {error.offset}"
            )
        if self._read_until is None:
            self._read_until = self.wanted
        self._trail.fall_back(Offset(error.offset))
        self.credit = self._credit_now()

    def delivered(self, offset: int, records: bytes, highwater: int, anchor: str) -> Chunk | None:
        """The broker sent records; what of them is new.  *anchor*: of the places behind them.

        Raises:
          ProtocolError: if records are missing before them, or *anchor* can't be one.
        """
        self.highwater = Offset(max(self.highwater, highwater))
        end, wanted = offset + len(records), self._trail.offset
        if end <= wanted:
            return None
        if offset != wanted:
            raise ProtocolError(
                f"{self.topic}/{self.partition}: records from offset {offset} came where "
                f"{wanted} is next"
            )
        chunk = Chunk(Offset(offset), records, _checked(anchor))
        self._trail.read(Offset(end), chunk.anchor)
        self.waiting_bytes += len(records)
        return chunk

    def took(self, chunk: Chunk) -> Offset | None:
        """The program took *chunk*; the credit to grant now, if any."""
        self.waiting_bytes -= len(chunk.records)
        credit = self._credit_now()
        if (credit - self.credit) * 2 >= self._window_bytes or self.credit < credit == self._end:
            self.credit = credit
            return credit
        return None

    def check_history(self, log_start: int, highwater: int) -> HistoryLostError | None:
        """The broker said that it doesn't have the next record, and what it has.

        None: it has it after all, so subscribing can be tried again.

        Raises:
          OffsetOutOfRangeError: if the next record lies behind the end of the log.
        """
        if self.wanted < log_start:
            return HistoryLostError(self.topic, self.partition, self.wanted, log_start)
        if self.wanted > highwater:
            raise OffsetOutOfRangeError(
                f"{self.topic}/{self.partition}: there is no offset {self.wanted}; the log ends "
                f"at {highwater}"
            )
        return None

    def skip_to(self, offset: Offset) -> None:
        """Leave out what retention removed."""
        assert offset > self.wanted, "history is only skipped forwards"
        self._trail = Trail(Place(offset))

    def _credit_now(self) -> Offset:
        until = self._trail.offset + max(0, self._window_bytes - self.waiting_bytes)
        return Offset(until if self._end is None else min(until, self._end))

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.waiting_bytes >= 0
        assert self.credit <= self.wanted + max(0, self._window_bytes - self.waiting_bytes)
        assert self._end is None or self.credit <= self._end
        self._trail.check_invariants()


@lru_cache(maxsize=100)
def _checked(text: str) -> Anchor:
    try:
        return checked_anchor(text)
    except InvalidOptionError as error:
        raise ProtocolError(str(error)) from None
