"""What has to hold of a dead letter of a queue, when it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from octopi.identifiers import Offset, TopicName
from octopi.position import Position
from octopi.record import PRODUCER_ID_BYTES, Message, decode
from octopi.roles.broker.subscriptions.letters import ORIGIN
from octopi.simulation.disk.log_bytes import LogBytes
from octopi.simulation.history.events import show
from octopi.simulation.invariants.queue_facts import KnownQueue
from octopi.subscriptions.entries import MarkEntry

_SID_BYTES: Final = 8
"""The producer id of a dead letter begins with the id of its subscription."""
_EPOCH_END: Final = PRODUCER_ID_BYTES + 4
"""In the request id of a record; the sequence follows."""


@attrs.frozen
class CommittedLetter:
    """A dead letter, and what its record says."""

    message: Message
    sid: str
    producer_epoch: int
    sequence: int
    offset: Offset
    """Of the message that was given up."""

    @classmethod
    def of(cls, letter: Message) -> CommittedLetter:
        """By its record."""
        origin = Position.parse(letter.headers[ORIGIN].decode())
        request_id = letter.request_id
        return cls(
            letter,
            request_id[:_SID_BYTES].hex(),
            int.from_bytes(request_id[PRODUCER_ID_BYTES:_EPOCH_END]),
            int.from_bytes(request_id[_EPOCH_END:]),
            origin.offsets[letter.partition],
        )

    def __str__(self) -> str:
        one = self.message
        return f"the dead letter at {one.offset} of {one.topic}/{one.partition}"


def broken_by(
    letter: CommittedLetter, known: KnownQueue, entry: MarkEntry, log: LogBytes | None
) -> Iterator[tuple[str, str]]:
    """The rules that *letter* breaks, each with the rest of a sentence; it is known from here on.
    *entry*: the newest that is committed.  *log*: that of the messages; None: it was damaged."""
    offset = letter.offset
    what = f"the message at {offset} of {known}"
    number = known.number_of(letter.producer_epoch, letter.sequence)
    if number is None or not known.is_numbered(number, offset):
        yield "letter-unnumbered", f"{what}; it is not committed that it has number {number}"
        return
    # While the mark is being reset, the deliveries before the reset are forgotten already.
    is_newer = known.is_newer(number) and entry.claim == known.reset_claim
    if is_newer and known.is_settled(offset) and not known.is_letter(offset):
        yield "letter-doubled", f"{what}, which is settled"
    if other := known.add_letter(number, offset):
        yield "letter-doubled", f"{what}, with number {number}, and {other}"
    if is_newer and (fault := _difference(letter.message, offset, known, log)):
        yield "letter-altered", f"{what}: {fault}"
    count = known.dealt[offset]
    is_spent = entry.attempts is not None and count >= entry.attempts
    if is_newer and not is_spent and offset not in known.rejected:
        text = f"{what}, which was dealt {count} times, may be dealt {entry.attempts} times, and "
        yield "letter-too-early", f"{text}was never rejected"


def _difference(letter: Message, offset: Offset, known: KnownQueue, log: LogBytes | None) -> str:
    """How *letter* differs from the message at *offset*; empty: in nothing."""
    if log is None or offset < log.start:
        return ""  # it can't be read, or retention has removed it since
    found = list(known.messages(offset, Offset(offset + 1), log))
    if not found:
        return "there is none"
    data = log.read(offset, found[0].end)
    [one] = decode(data, offset, TopicName(known.topic), known.partition)
    if (one.value, one.key) != (letter.value, letter.key):
        return f"its value is {show(letter.value)}, and was {show(one.value)}"
    if any(letter.headers.get(name) != value for name, value in one.headers.items()):
        return f"its headers are {dict(letter.headers)}, and were {dict(one.headers)}"
    return ""
