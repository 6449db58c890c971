"""What a history says of each message, of each log, and of each consumer's way through one.

Plain tables; `octopi.simulation.history.index` fills them and `octopi.simulation.history.checker`
judges what is in them.  Events are known by their numbers, which are their positions in the
history.
"""

from __future__ import annotations

from sys import maxsize
from typing import Final

from octopi.identifiers import Offset
from octopi.simulation.history.events import Invoked, LogName

NEVER: Final = -1
"""The number of an event that there was not, and an offset that is not known."""


class MessageFacts:
    """A value, and all that is known about it."""

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
        """Numbers of events: when it was sent (`NEVER`: by nobody, as far as we know), ..."""
        self.acknowledged = self.delivered = self.stored = self.seen = NEVER
        """... acknowledged, last delivered, in the final log, and first given its offset."""
        self.sent = sent
        self.value = sent.value
        self.key = sent.key
        self.headers = sent.headers
        self.epoch = 0
        self.log: LogFacts | None = None
        """Where it lies, by whoever said so first."""
        self.lost = NEVER
        """The number of the event that says that it may be lost, unless it is sent again, ..."""
        self.lost_offset = NEVER
        """... and where it was before."""
        self.offset = self.next_offset = NEVER


class LogFacts:
    """What is known of a log."""

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
        """Messages from before this event belong to a removed log of that name."""
        self.is_gone = is_gone
        """It is being removed: nothing that is said about it counts."""
        self.is_removed = False
        """It was removed after what we know of it."""
        self.messages: dict[int, MessageFacts] = {}
        """By offset, as whoever spoke of that offset first has it."""
        self.readings: list[ConsumerRead] = []
        self.losses: list[tuple[int, int, int]] = []
        """What was told of losses: from where on, before which epoch, and by which event."""
        self.start = 0
        self.highwater = maxsize
        self.acknowledged_end = 0
        self.tail: list[int] = []
        """The numbers of the receipts that moved it."""
        self.final = NEVER
        """The number of its final read, ..."""
        self.end = 0
        """... and where that ended."""


class ConsumerRead:
    """A consumer's way through a log."""

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
        """What comes next; `NEVER`: anything, it just began."""
        self.last = NEVER
        """The number of the event that says so."""
        self.first = NEVER
        """Where it began."""
        self.ranges: list[tuple[int, int]] = []
        """From where to where it read before it was sent elsewhere."""
        self.stored = self.stored_last = NEVER
        """The stored position, and the number of its event."""
        self.untold = self.untold_stored = NEVER
        """It, or who goes on at the stored position, has yet to be told of a loss: the number of
        the event that says what is lost."""

    def move(self, offset: Offset, number: int) -> None:
        """Go on from *offset*, whatever lies between."""
        if self.first < self.position:
            self.ranges.append((self.first, self.position))
        self.first = self.position = offset
        self.last = number

    def has_passed(self, offset: Offset) -> bool:
        """Whether what lies at *offset* must have been handed out."""
        return self.first <= offset < self.position or any(
            first <= offset < position for first, position in self.ranges
        )
