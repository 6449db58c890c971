"""The operations and results of clients, as events that the checker examines.

A history holds the events in the order in which a program noted them: `Invoked` *before* it
requests a send, the outcome *after* it got it, and `Delivered` when a message was delivered. So if
an operation ended before another one began, their events are in that order, and the checker needs
no other knowledge about the order of operations::

    history = History()
    value = unique_value("alice", 1)
    history.note(Invoked(now(), "alice", "orders", 0, value))
    receipt = await producer.send("orders", value, partition=0)
    log = LogName(receipt.topic, receipt.partition)
    offsets = receipt.offset, receipt.next_offset
    history.note(Acknowledged(now(), log, value, *offsets, receipt.epoch))

Every value is sent once and differs from all others, so it identifies its message.  A send has at
most one outcome: `Acknowledged`, `Failed` or `OutcomeUnknown`.  Without any, its outcome is
unknown, too.

A history is data; it depends neither on the rules (`octopi.simulation.history.checker`) nor on the
program that notes it.  Events are tuples, because hundreds of thousands are made per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import attrs

from octopi.errors import OctopiError
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.record import NO_HEADERS

_NAME_END: Final = b"|"
_SHOWN_BYTES_MAX: Final = 40


class HistoryError(OctopiError):
    """The history can't be read or checked, because events were noted wrongly."""


class LogName(NamedTuple):
    """One log: a topic's share of one partition."""

    topic: str
    partition: PartitionId

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def unique_value(sender: str, number: int, size_bytes: int = 0) -> bytes:
    """A value to send: its name, ``sender-number``, a mark, and dots up to *size_bytes*.

    By the name the checker recognises a message whose bytes were changed on their way.
    """
    return b"%s-%d%s" % (sender.encode(), number, _NAME_END) + b"." * (
        size_bytes - len(sender.encode()) - len(str(number)) - 2
    )


def name_of(value: bytes) -> bytes:
    """The part of a `unique_value` before the mark; all of any other value."""
    return value.partition(_NAME_END)[0]


def show(value: bytes) -> str:
    """The name of a value as text."""
    name = name_of(value)
    text = repr(name[:_SHOWN_BYTES_MAX]).removeprefix("b")
    return text if len(name) <= _SHOWN_BYTES_MAX else f"{text}... ({len(name)} bytes)"


# --- sends -----------------------------------------------------------------------------


class Invoked(NamedTuple):
    """A producer is about to be asked to send *value*."""

    at: float
    """Seconds on a clock that all events share; only for display."""
    producer: str
    """The name for a sequence of sends, one after another.  Two tasks that share a producer have
    two names, because there is no guarantee about their order."""
    topic: str
    partition: PartitionId | None
    """None: the producer chooses."""
    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = NO_HEADERS

    def __str__(self) -> str:
        where = "" if self.partition is None else f"/{self.partition}"
        return f"{self.producer} sends {show(self.value)} to {self.topic}{where}"


class Acknowledged(NamedTuple):
    """The producer of *value* got its receipt; the fields are those of `octopi.Receipt`."""

    at: float
    log: LogName
    value: bytes
    offset: Offset
    next_offset: Offset
    epoch: Epoch
    duplicate: bool = False

    def __str__(self) -> str:
        again = ", as a duplicate" if self.duplicate else ""
        return (
            f"{show(self.value)} is acknowledged in {self.log} from {self.offset} to "
            f"{self.next_offset} in epoch {self.epoch}{again}"
        )


class Failed(NamedTuple):
    """The producer of *value* was told that it is certainly not stored."""

    at: float
    value: bytes
    why: str

    def __str__(self) -> str:
        return f"{show(self.value)} is said to be surely not stored: {self.why}"


class OutcomeUnknown(NamedTuple):
    """The producer of *value* was told that it may or may not be stored."""

    at: float
    value: bytes
    why: str

    def __str__(self) -> str:
        return f"{show(self.value)} is said to be stored or not: {self.why}"


# --- consumers -------------------------------------------------------------------------


class Assigned(NamedTuple):
    """A consumer was told to read *log* from *offset* on: it starts, seeks, or continues behind a
    gap that retention made.  It may skip the records between."""

    at: float
    consumer: str
    log: LogName
    offset: Offset
    forked: bool = False
    """Whether the consumer was told that the records that it read behind *offset* are lost."""

    def __str__(self) -> str:
        why = ", as what it read behind that is gone" if self.forked else ""
        return f"{self.consumer} is to read {self.log} from {self.offset} on{why}"


class Delivered(NamedTuple):
    """A message was delivered to a consumer.  A consumer that is closed and continues where it was
    keeps its name."""

    at: float
    consumer: str
    log: LogName
    offset: Offset
    next_offset: Offset
    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = NO_HEADERS

    def __str__(self) -> str:
        return (
            f"{self.consumer} is handed {show(self.value)} in {self.log} from {self.offset} to "
            f"{self.next_offset}"
        )


class PositionStored(NamedTuple):
    """A consumer's position in *log* was stored so that it survives the consumer."""

    at: float
    consumer: str
    log: LogName
    offset: Offset

    def __str__(self) -> str:
        return f"{self.consumer}'s position in {self.log} is stored: {self.offset}"


class Resumed(NamedTuple):
    """A consumer began again at its stored position.  Messages that were delivered to it after that
    was stored may be delivered again."""

    at: float
    consumer: str
    log: LogName
    offset: Offset

    def __str__(self) -> str:
        return f"{self.consumer} resumes {self.log} at {self.offset}"


class ReachedEnd(NamedTuple):
    """A consumer that reads to the end of *log* came to it, at *offset*.  It asked for the end
    after *since* (by the clock of `at`)."""

    at: float
    consumer: str
    log: LogName
    offset: Offset
    since: float

    def __str__(self) -> str:
        return f"{self.consumer} takes {self.offset} for the end of {self.log}"


class Rested(NamedTuple):
    """No faults happen any more, and the consumer has had the time to read all of *log*."""

    at: float
    consumer: str
    log: LogName

    def __str__(self) -> str:
        return f"{self.consumer} has had the time to read all of {self.log}"


# --- logs and topics -------------------------------------------------------------------


class Committed(NamedTuple):
    """A highwater mark of *log* rose: consumers may get no records beyond it.  Only an observer of
    the brokers can note this.  If it notes this, it must note each change at once, and 0 at the
    beginning; deliveries before the first such event are not checked."""

    at: float
    log: LogName
    highwater: Offset

    def __str__(self) -> str:
        return f"{self.log} is committed up to {self.highwater}"


class StartMoved(NamedTuple):
    """Retention removed the records of *log* below *start*."""

    at: float
    log: LogName
    start: int

    def __str__(self) -> str:
        return f"retention moves the start of {self.log} to {self.start}"


class LossTold(NamedTuple):
    """The cluster reported that *log* may have lost records from *end* on that were acknowledged in
    an older epoch than *epoch*.  A consumer that read some of them must be told."""

    at: float
    log: LogName
    end: int
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.log} may have lost what lay from {self.end} on before epoch {self.epoch}"


class StoredMessage(NamedTuple):
    """A message of a log in its final state."""

    offset: Offset
    next_offset: Offset
    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = NO_HEADERS


class FinalLog(NamedTuple):
    """All messages of *log*, read when the cluster was at rest.  Only the last such event
    counts."""

    at: float
    log: LogName
    messages: tuple[StoredMessage, ...]

    def __str__(self) -> str:
        end = self.messages[-1].next_offset if self.messages else 0
        return f"{self.log} has {len(self.messages)} messages in the end, up to {end}"


class TopicRemoval(NamedTuple):
    """A client requests the removal of *topic*.  From here on, events about it are ignored until it
    is created again."""

    at: float
    topic: str

    def __str__(self) -> str:
        return f"{self.topic} is removed"


class TopicCreation(NamedTuple):
    """*topic* exists and is empty: messages sent to it before were removed on purpose."""

    at: float
    topic: str

    def __str__(self) -> str:
        return f"{self.topic} is created"


Event: TypeAlias = (
    Invoked
    | Acknowledged
    | Failed
    | OutcomeUnknown
    | Assigned
    | Delivered
    | PositionStored
    | Resumed
    | ReachedEnd
    | Rested
    | Committed
    | StartMoved
    | LossTold
    | FinalLog
    | TopicRemoval
    | TopicCreation
)


@attrs.define
class History:
    """Events in the order in which they were noted."""

    events: list[Event] = attrs.field(factory=list)

    def note(self, event: Event) -> None:
        """Add an event."""
        self.events.append(event)
