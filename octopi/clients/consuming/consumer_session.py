"""The state of one consumer's reading of one log: the next record, the credit, and the remedies.

This machine decides, and `octopi.clients.consuming.log_subscriber` performs.  The machine knows no
connection, no clock and no task.

A log's records come in deliveries, one behind the other.  The session takes a delivery only if it
begins at the next record.  It ignores repetitions, and records that are missing are an error of the
broker.  So the program gets each record once and in order, even if connections fail.  A place
has an anchor, which a broker compares with its own history there, so the loss of records that
were read is always noticed.

Credit is an offset: the broker may send records that start below it.  The session moves it ahead
when half of the window has become free.
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
    """Subscribe at another replica: the disk or the program of this one fails."""
    CHECK_HISTORY = auto()
    """Ask where the log starts and ends, then call `ConsumerSession.check_history`."""
    FALL_BACK = auto()
    """The log differs from what was read: call `ConsumerSession.forked`, then subscribe at the
    place before the fork."""
    STOP = auto()
    """A retry can't help."""


def remedy(error: OctopiError) -> Remedy:
    """What to do after a reading ended with *error*."""
    match error:
        case OffsetOutOfRangeError():
            return Remedy.CHECK_HISTORY
        case HistoryForkedError(read_until=None):
            return Remedy.FALL_BACK  # otherwise the session raised it, after falling back
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
    records: bytes | memoryview
    """A view keeps the place where they were received."""
    anchor: Anchor
    """The anchor of every place behind the first record."""


class ConsumerSession:
    """Reads one log from a start.

    Invariant: the records that wait in the consumer, and those that may be on their way (from
    `wanted` to `credit`), fit the window together, apart from the end of the last record.
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
        """*end*: records that start at or behind it are not read; None: read without end."""
        self.topic = topic
        self.partition = partition
        self._topic_id = topic_id
        self._window_bytes = window_bytes
        self._end = end
        self._trail = Trail(start)
        self._start = start.offset
        self.start_anchor = start.anchor
        """The anchor of the start; empty: not known yet."""
        self._is_checked = not start.anchor
        """Whether a broker agreed with the anchor of the start, if there is one."""
        self._read_until: Offset | None = None
        """Up to where records were read when a broker disagreed with their history; None once a
        broker agrees again."""
        self.waiting_bytes = 0
        """The size of the records that arrived and that the program hasn't taken yet."""
        self.credit = self._credit_now()
        self.highwater = start.offset
        """The newest highwater mark that a broker has sent."""

    @property
    def wanted(self) -> Offset:
        """The offset of the next record to come from a broker."""
        return self._trail.offset

    @property
    def place(self) -> Place:
        """`wanted`, with the anchor there."""
        return self._trail.place

    @property
    def taken(self) -> Offset:
        """The program took the records below this offset, if nothing was skipped meanwhile."""
        return Offset(max(0, self.wanted - self.waiting_bytes))

    @property
    def is_finished(self) -> bool:
        """Whether all records before the end have arrived, and a broker agreed with the start."""
        return self._is_checked and self._end is not None and self.wanted >= self._end

    def resume(self) -> Place:
        """A reading begins: renew `credit`, and return the place to begin at."""
        self.credit = self._credit_now()
        return self.place

    def check_topic(self, topic_id: str) -> None:
        """Check *topic_id*, which came in an answer.

        Raises:
          TopicReplacedError: if it belongs to another creation of the topic.
        """
        if topic_id != self._topic_id:
            raise TopicReplacedError(
                f"{self.topic}: the topic was deleted and created again (id {self._topic_id}, "
                f"now {topic_id}); start from earliest or latest"
            )

    def subscribed(self, topic_id: str, highwater: int, anchor: str) -> HistoryForkedError | None:
        """The broker accepted the reading; *anchor* is that of `wanted` there.

        Returns: the fork, if a broker disagreed with records that were read: it names those that
        are gone from the log.

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
            self._end = min(self._end, Offset(highwater))  # the log may not reach the old end again
            self.credit = min(self.credit, self._end)
        return HistoryForkedError.of_range(self.topic, self.partition, self.wanted, read_until)

    def forked(self, error: HistoryForkedError) -> None:
        """A broker has another history before `wanted`: go back, to subscribe further down.

        Raises:
          ProtocolError: if *error* names no offset before `wanted` up to which both agree.
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

    def delivered(
        self, offset: int, records: bytes | memoryview, highwater: int, anchor: str
    ) -> Chunk | None:
        """The broker sent *records*, which start at *offset*.  Return them, or None if they arrived
        before.  *anchor*: that of the places behind the first record.

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
        """The program took *chunk*.  Return the new credit to send to the broker, if it changes."""
        self.waiting_bytes -= len(chunk.records)
        credit = self._credit_now()
        if (credit - self.credit) * 2 >= self._window_bytes or self.credit < credit == self._end:
            self.credit = credit
            return credit
        return None

    def check_history(self, log_start: int, highwater: int) -> HistoryLostError | None:
        """A broker refused because it doesn't have the next record; now it said where its log
        starts, and its highwater mark.  Return the gap if retention has removed the next record.

        None: the broker has the record, so subscribing can be tried again.

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
        """Continue at *offset*, behind records that retention has removed."""
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
