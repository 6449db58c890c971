"""The digest of a stream: at each end of a transaction it covers all that lies before.

``D0 = SHA-256("octopi relay" | topic id | partition (8))``
``Dk = SHA-256(Dk-1 | id (16) | length of the records (8) | records)``

Equal digests at equal offsets mean equal histories, as with the commits of git.  Each relay
computes them itself, and they are sent only to be compared.  SHA-256, because browsers have it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NewType

from octopi.identifiers import PartitionId, TopicId
from octopi.relay.message_ids import MessageId

Digest = NewType("Digest", bytes)
"""32 bytes."""

DIGEST_BYTES: Final = 32


def first_digest(topic_id: TopicId, partition: PartitionId) -> Digest:
    """The digest of an empty stream."""
    begin = b"octopi relay" + topic_id.encode() + partition.to_bytes(8, "big")
    return Digest(sha256(begin).digest())


def next_digest(before: Digest, message: MessageId, records: bytes) -> Digest:
    """The digest behind a transaction, from the one before it."""
    chained = sha256(before + message + len(records).to_bytes(8, "big"))
    chained.update(records)
    return Digest(chained.digest())
