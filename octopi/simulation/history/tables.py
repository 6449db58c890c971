"""The tables of what a history says about each message, each log, and each consumer of a log.

`octopi.simulation.history.index` fills the tables, and `octopi.simulation.history.checker` checks
their contents.  The number of an event is its position in the history.
"""

from __future__ import annotations

from sys import maxsize
from typing import Final

from octopi.identifiers import Offset
from octopi.simulation.history.events import Invoked, LogName

NEVER: Final = -1
"""The number of an event that didn't happen, and an offset that is unknown."""


class MessageFacts:
    """A message, and everything that the history says about it."""

    __slots__ = (
        "acknowledged",
        "delivered",
        "epoch",
        "headers",
        "invoked",
        "key",
        "log",
        "lost",
        "lost_offset",
        "next_offset",
        "offset",
        "seen",
        "sent",
        "stored",
        "value",
    )

    def __init__(self, invoked: int, sent: Invoked) -> None:
        self.invoked = invoked
        """The number of the event that sent it.  `NEVER`: no event did."""
        self.acknowledged = self.delivered = self.stored = self.seen = NEVER
        """The numbers of the events that acknowledged it, delivered it last, read it in the final
        log, and gave it its offset first."""
        self.sent = sent
        self.value = sent.value
        self.key = sent.key
        self.headers = sent.headers
        self.epoch = 0
        self.log: LogFacts | None = None
        """The log that contains it, as the first event about it says."""
        self.lost = NEVER
        """The number of the event that says that it may be lost, unless it is sent again."""
        self.lost_offset = NEVER
        """The offset that it had before the loss."""
        self.offset = self.next_offset = NEVER


class LogFacts:
    """Everything that the history says about a log."""

    __slots__ = (
        "acknowledged_end",
        "born",
        "end",
        "final",
        "highwater",
        "is_gone",
        "is_removed",
        "losses",
        "messages",
        "name",
        "readings",
        "start",
        "tail",
    )

    def __init__(self, name: LogName, born: int, is_gone: bool) -> None:
        self.name = name
        self.born = born
        """The number of the event that created its topic again.  Messages that were sent before
        belong to a removed log with the same name."""
        self.is_gone = is_gone
        """Whether it is being removed.  Contradictions in it are then no anomalies."""
        self.is_removed = False
        """Whether it was removed after the events that this table contains."""
        self.messages: dict[int, MessageFacts] = {}
        """The messages by offset, as the first event about each offset says."""
        self.readings: list[ConsumerRead] = []
        self.losses: list[tuple[int, int, int]] = []
        """The losses that were reported: the end of what was kept, the first epoch after the loss,
        and the number of the event."""
        self.start = 0
        self.highwater = maxsize
        self.acknowledged_end = 0
        self.tail: list[int] = []
        """The numbers of the receipts that advanced `acknowledged_end`."""
        self.final = NEVER
        """The number of the event of its final read."""
        self.end = 0
        """The offset at which the final read ended."""


class ConsumerRead:
    """What a consumer has read of a log."""

    __slots__ = (
        "consumer",
        "first",
        "last",
        "log",
        "position",
        "ranges",
        "stored",
        "stored_last",
        "untold",
        "untold_stored",
    )

    def __init__(self, consumer: str, log: LogFacts) -> None:
        self.consumer = consumer
        self.log = log
        self.position = NEVER
        """The offset of the next message.  `NEVER`: any offset, because it has just begun."""
        self.last = NEVER
        """The number of the event that set the position."""
        self.first = NEVER
        """The offset at which the present range began."""
        self.ranges: list[tuple[int, int]] = []
        """The earlier ranges, each with its first offset and the offset behind its end."""
        self.stored = self.stored_last = NEVER
        """The stored position, and the number of the event that stored it."""
        self.untold = self.untold_stored = NEVER
        """The numbers of the events with the losses that the consumer, and the one that resumes at
        the stored position, have to be told of."""

    def move(self, offset: Offset, number: int) -> None:
        """Continue at *offset*, in a new range.  *number* is the event that says so."""
        if self.first < self.position:
            self.ranges.append((self.first, self.position))
        self.first = self.position = offset
        self.last = number

    def has_passed(self, offset: Offset) -> bool:
        """Whether the message at *offset* must have been delivered."""
        return self.first <= offset < self.position or any(
            first <= offset < position for first, position in self.ranges
        )
