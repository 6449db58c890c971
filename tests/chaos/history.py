"""What clients did and saw: the evidence that `tests.chaos.checker` judges.

Every value is sent once and is unlike every other, so a value names its message.  Times are
seconds on the one monotonic clock of the process that all clients live in.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import attrs


class LogName(NamedTuple):
    """One log."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@attrs.frozen
class Invoked:
    """A producer was asked to send *value*."""

    at: float
    producer: str
    log: LogName
    value: bytes


@attrs.frozen
class Acknowledged:
    """The producer of *value* got its receipt."""

    at: float
    log: LogName
    value: bytes
    offset: int
    epoch: int
    duplicate: bool


@attrs.frozen
class Failed:
    """The producer of *value* was told that it is certainly not stored."""

    at: float
    value: bytes
    why: str


@attrs.frozen
class OutcomeUnknown:
    """The producer of *value* was told that it may or may not be stored."""

    at: float
    value: bytes
    why: str


@attrs.frozen
class Delivered:
    """A consumer was handed a message.  A consumer that goes on from its position keeps its
    name."""

    at: float
    consumer: str
    log: LogName
    offset: int
    next_offset: int
    value: bytes


Event: TypeAlias = Invoked | Acknowledged | Failed | OutcomeUnknown | Delivered


class StoredMessage(NamedTuple):
    """A message of a log as it is in the end."""

    offset: int
    next_offset: int
    value: bytes


FinalLogs: TypeAlias = dict[LogName, list[StoredMessage]]
"""All messages of all logs, in their order, read when everything had come to rest."""


@attrs.define
class History:
    """Events in the order in which they were noted."""

    events: list[Event] = attrs.field(factory=list)

    def note(self, event: Event) -> None:
        """Something happened."""
        self.events.append(event)

    def about(self, log: LogName | None, values: frozenset[bytes]) -> list[Event]:
        """The events that speak of *values* in *log* (None: anywhere)."""
        return [
            event
            for event in self.events
            if event.value in values and log in {None, getattr(event, "log", log)}
        ]
