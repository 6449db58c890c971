"""Ids of messages in relay topics: 16 bytes that say when, where and as which one.

64 bits milliseconds since 1970 | 48 bits node | 16 bits sequence, big endian, so bytes compare as
ids do.  They are k-sorted: two of them are in the wrong order by no more than the difference of
two brokers' clocks.  The idea is that of flake (Boundary, 2012).

A transaction of k records takes k ids one behind the other; it is named by the first one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NewType

from octopi.identifiers import BrokerId, Incarnation, TimestampMs
from octopi.limits import RECORDS_PER_PRODUCE_MAX

MessageId = NewType("MessageId", bytes)
"""The id of a message of a relay topic: 16 bytes."""

MESSAGE_ID_BYTES: Final = 16
NODE_BYTES: Final = 6
_MS_BYTES: Final = 8
SEQUENCES: Final = 1 << 16

assert RECORDS_PER_PRODUCE_MAX <= SEQUENCES


def node_name(broker: BrokerId, incarnation: Incarnation) -> bytes:
    """The name of one life of a broker in the ids that it gives: 6 bytes of a digest, because a
    broker's id may have 52 bits."""
    life = broker.to_bytes(8, "big") + incarnation.to_bytes(8, "big")
    return sha256(life).digest()[:NODE_BYTES]


def message_id(ms: int, node: bytes, sequence: int) -> MessageId:
    """The id with these parts."""
    return MessageId(ms.to_bytes(_MS_BYTES, "big") + node + sequence.to_bytes(2, "big"))


def id_time_ms(message: MessageId) -> TimestampMs:
    """When *message* was received, by the clock of its receiver."""
    return TimestampMs(int.from_bytes(message[:_MS_BYTES], "big"))


def id_sequence(message: MessageId) -> int:
    """The last part of an id."""
    return int.from_bytes(message[-2:], "big")


def id_behind(message: MessageId, count: int) -> MessageId:
    """The id of the record that is *count* records behind the one with id *message*, in the same
    transaction."""
    return MessageId(message[:-2] + (id_sequence(message) + count).to_bytes(2, "big"))


class MessageIds:
    """Gives the ids of one life of a broker.

    Invariant: each id is greater than all ids that it gave before, whatever the clock does.
    """

    def __init__(self, node: bytes) -> None:
        """*node*: see `node_name`.  No other process may give ids with it."""
        assert len(node) == NODE_BYTES
        self._node = node
        self._ms = -1
        self._next = 0
        """The next sequence of that millisecond."""

    def take(self, count: int, wall_ms: int) -> MessageId:
        """The id of a transaction of *count* records that is received at *wall_ms*."""
        if wall_ms > self._ms:
            self._ms, self._next = wall_ms, 0
        elif self._next + count > SEQUENCES:
            self._ms, self._next = self._ms + 1, 0
        taken = message_id(self._ms, self._node, self._next)
        self._next += count
        return taken
