"""The record of a dead letter: the original message, and what became of it."""

from __future__ import annotations

from typing import Final

from octopi.errors import RecordError
from octopi.identifiers import (
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    SubscriptionId,
    TopicId,
    TopicName,
)
from octopi.position import Anchor, Place, Position
from octopi.record import BatchBuilder, Message, decode, record_end
from octopi.subscriptions.effects import AppendLetter

ORIGIN: Final = "octopi-origin"
"""Header: the position of the original message (`octopi.position`)."""
ATTEMPTS: Final = "octopi-attempts"
"""Header: how often it was dealt, in decimal."""
REASON: Final = "octopi-reason"
"""Header: why it was given up."""
DROPPED: Final = "octopi-headers-dropped"
"""Header ``1``: the message's own headers had no room beside these."""

_PRODUCER: Final = b"~letters"


def letter_producer(sid: SubscriptionId) -> ProducerId:
    """Who appends the dead letters of a subscription: 16 bytes, half of them its id."""
    return ProducerId(bytes.fromhex(sid) + _PRODUCER)


def is_letter_producer(producer: bytes) -> bool:
    """Whether *producer* is that of the dead letters of some subscription."""
    return producer.endswith(_PRODUCER)


def is_same_letter(made: bytes, records: bytes) -> bool:
    """Whether the first one of *records* is the dead letter that *made* is, perhaps by an earlier
    leader."""
    one, other = _decoded(made), _decoded(records)
    same = (one.value, one.key) == (other.value, other.key)
    return same and one.headers.get(ORIGIN) == other.headers.get(ORIGIN)


def _decoded(records: bytes) -> Message:
    [message] = decode(records[: record_end(records, 0)], Offset(0), TopicName(""), PartitionId(0))
    return message


def letter_records(
    letter: AppendLetter, message: Message, topic_id: TopicId, anchor: Anchor, wall_ms: int
) -> bytes:
    """The record: value, key and headers of *message*, and what became of it.  Where that is larger
    than a record may be, the reason goes first, then the message's own headers.  *anchor*: that of
    the original message's place.

    Raises:
      MalformedRecordError: if there is no room even so.
    """
    place = Place(message.offset, anchor)
    origin = Position(message.topic, topic_id, {message.partition: place})
    own = {ORIGIN: str(origin).encode(), ATTEMPTS: str(letter.attempts).encode()}
    kept = {
        name: value for name, value in message.headers.items() if not name.startswith("octopi-")
    }
    reason = {REASON: letter.reason.encode()} if letter.reason else {}
    bare = {ATTEMPTS: own[ATTEMPTS], DROPPED: b"1"}
    choices = ({**kept, **own, **reason}, {**kept, **own}, {**own, DROPPED: b"1"}, bare)
    for headers in (*choices, {}):
        builder = BatchBuilder()
        try:
            builder.add(message.value, message.key, headers, wall_ms)
        except RecordError:
            continue
        break
    sequence = Sequence(letter.sequence)
    epoch = ProducerEpoch(letter.producer_epoch)
    return builder.encode(letter_producer(letter.sid), epoch, sequence)
