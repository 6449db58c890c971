"""A small clean history that tests change until something is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from octopi.record import STRUCTURED_BYTES_MIN
from octopi.simulation.history.checker import Anomaly, Rule, check
from octopi.simulation.history.events import (
    Acknowledged,
    Assigned,
    Delivered,
    Event,
    FinalLog,
    History,
    Invoked,
    LogName,
    PositionStored,
    ReachedEnd,
    Rested,
    StoredMessage,
    unique_value,
)

LOG: Final = LogName("orders", 0)
OTHER: Final = LogName("orders", 1)
SIZE: Final = 100
"""Every record has this many bytes."""
COUNT: Final = 5
"""So many messages are in the log."""

E = TypeVar("E", bound=Event)


def value(number: int) -> bytes:
    """A value that makes a record of `SIZE` bytes."""
    return unique_value("p1", number, SIZE - STRUCTURED_BYTES_MIN)


def stored(number: int, place: int | None = None) -> StoredMessage:
    """A message of the log, at its own place or at another."""
    place = number if place is None else place
    return StoredMessage(place * SIZE, (place + 1) * SIZE, value(number))


class Story:
    """p1 sends five messages, one after another; c1 and c2 read them; all comes to rest."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        for consumer in ("c1", "c2"):
            self.note(Assigned(0, consumer, LOG, 0))
        for number in range(COUNT):
            self.invoke(number)
            self.acknowledge(number)
        for consumer in ("c1", "c2"):
            for number in range(COUNT):
                self.deliver(consumer, number)
            self.note(PositionStored(30, consumer, LOG, COUNT * SIZE))
        self.note(ReachedEnd(31, "c1", LOG, COUNT * SIZE, 30.0))
        self.finish([stored(number) for number in range(COUNT)])

    # --- telling -----------------------------------------------------------------------

    def note(self, event: Event) -> None:
        self.events.append(event)

    def invoke(self, number: int, producer: str = "p1", log: LogName = LOG) -> None:
        at = float(len(self.events))
        self.note(Invoked(at, producer, log.topic, log.partition, value(number)))

    def acknowledge(self, number: int, place: int | None = None, epoch: int = 1) -> None:
        offset = (number if place is None else place) * SIZE
        at = float(len(self.events))
        self.note(Acknowledged(at, LOG, value(number), offset, offset + SIZE, epoch))

    def deliver(self, consumer: str, number: int, place: int | None = None) -> None:
        offset = (number if place is None else place) * SIZE
        self.note(Delivered(20, consumer, LOG, offset, offset + SIZE, value(number)))

    def finish(self, messages: list[StoredMessage], log: LogName = LOG) -> None:
        """All is read in the end, and the consumers had the time."""
        self.note(FinalLog(40, log, tuple(messages)))
        for consumer in ("c1", "c2"):
            self.note(Rested(41, consumer, log))

    # --- changing ----------------------------------------------------------------------

    def find(self, kind: type[E], number: int | None = None, consumer: str = "") -> int:
        """The index of the first such event; *number*: of that message."""
        return next(
            index
            for index, event in enumerate(self.events)
            if isinstance(event, kind)
            and (number is None or getattr(event, "value", None) == value(number))
            and (not consumer or getattr(event, "consumer", consumer) == consumer)
        )

    def change(self, index: int, **fields: object) -> None:
        """Give an event other fields."""
        self.events[index] = self.events[index]._replace(**fields)

    def drop(self, kind: type[Event], number: int | None = None, consumer: str = "") -> None:
        """Take out an event."""
        del self.events[self.find(kind, number, consumer)]

    def insert_before(self, index: int, tell: Callable[[], None]) -> None:
        """Have *tell* note its events before the one at *index*."""
        behind = self.events[index:]
        del self.events[index:]
        tell()
        self.events += behind

    def rewind(self) -> None:
        """Remove the events at the end, which `finish` has added."""
        del self.events[self.find(FinalLog) :]

    # --- judging -----------------------------------------------------------------------

    def faults(self) -> list[Anomaly]:
        return check(History(self.events))

    def rules(self) -> set[Rule]:
        return {fault.rule for fault in self.faults()}
