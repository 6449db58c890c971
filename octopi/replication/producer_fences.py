"""Fences: from which epoch on a log takes records of a named producer.

A log's records tell the last epoch of each producer (`octopi.replication.producer_sequences`), but
a new life of a producer has to be known before it sends a record.  So the leader that begins a new
epoch for it notes that in the partition's internal log: as a record with an id made from the log
and the producer, with the new epoch as the producer epoch, and the sequence 0.  Every replica notes
the sequences of internal logs as those of topics, keeps them in its checkpoint and tells them to
followers.  So a new leader knows all committed fences before it takes its first record, and they
outlast the records that retention removes, from the topic's log and from the internal one.
"""

from __future__ import annotations

import hashlib
from typing import Final

import attrs

from octopi.identifiers import ProducerEpoch, ProducerId, TopicId, id_fault
from octopi.record import PRODUCER_ID_BYTES
from octopi.replication.log_state import LogState

_PREFIX: Final = b"f/"


def fence_key(topic_id: TopicId, producer: ProducerId) -> bytes:
    """The key of the entries in the internal log that fence *producer* in the log of a topic."""
    return _PREFIX + f"{topic_id}/{producer.hex()}".encode()


def fence_id(key: bytes) -> ProducerId:
    """The producer id of the entries with this *key*.  It is a digest, so that nobody can choose a
    producer id that fences a producer in a log of another topic."""
    return ProducerId(hashlib.blake2b(key, digest_size=PRODUCER_ID_BYTES).digest())


def is_fence_key(key: bytes) -> bool:
    """Whether an entry with this *key* is a fence."""
    return key.startswith(_PREFIX)


def check_fence(key: bytes, value: bytes, request_id: bytes) -> None:
    """Check an entry of an internal log whose key is that of a fence.

    Raises:
      ValueError: if it isn't as `octopi.replication.internal_log` writes it.
    """
    topic_id, slash, producer = key.removeprefix(_PREFIX).decode(errors="replace").partition("/")
    if id_fault(topic_id) or not slash or len(producer) != 2 * PRODUCER_ID_BYTES or value:
        raise ValueError("it is no fence of a producer")
    if request_id[:PRODUCER_ID_BYTES] != fence_id(key):
        raise ValueError("it was written by another producer, or in another form")


@attrs.frozen
class ProducerFences:
    """The fences of one log that is led."""

    topic_id: TopicId
    internal: LogState
    """The internal log of its partition."""

    def epoch(self, producer: ProducerId) -> ProducerEpoch | None:
        """The epoch below which records of *producer* are refused; None: there is no fence."""
        key = fence_key(self.topic_id, producer)
        return self.internal.sequences.last_epoch(fence_id(key))


def last_epoch(log: LogState, fences: ProducerFences, producer: ProducerId) -> ProducerEpoch | None:
    """The last epoch of *producer* in *log*, whether it has sent a record in it or not; None: the
    log doesn't know the producer."""
    known = (log.sequences.last_epoch(producer), fences.epoch(producer))
    return max((one for one in known if one is not None), default=None)
