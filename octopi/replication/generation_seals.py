"""Seals of logs: from which generation of its topic on a log takes messages.

When a topic gets other partitions (`octopi.coordination.generations`), each log of the generation
in force is sealed.  The leader appends an entry to the internal log ``~subscriptions`` of its
partition, as for a fence of a producer: with an id that is made from the topic, the number of the
next generation as the producer epoch, and the sequence 0.  From then on it takes nothing of a lower
generation.  Every replica notes the sequences of internal logs as those of topics, keeps them in
its checkpoint and tells them to followers.  So a new leader knows all committed seals before it
takes its first record, and so does a replica that joins later.

A seal that was not committed may be lost with its leader.  So the end of the log is told only when
the seal is committed, and when all that the log holds is.

The record of the topic, which brokers store with the log, says more, and it is told later: a
generation that is in force needs no seal any more, and the seal of one that was cancelled counts no
more.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.generation_record import GenerationState
from octopi.identifiers import ProducerEpoch, ProducerId, TopicId, id_fault
from octopi.limits import SEALS_PER_PARTITION_MAX
from octopi.model import TopicRecord
from octopi.replication.log_state import LogState
from octopi.replication.producer_sequences import SEALER, is_sealer

_KEY: Final = b"g/"


def seal_key(topic_id: TopicId) -> bytes:
    """The key of the entries in the internal log that seal the log of a topic."""
    return _KEY + topic_id.encode()


def is_seal_key(key: bytes) -> bool:
    """Whether an entry with this *key* is a seal."""
    return key.startswith(_KEY)


def seal_id(key: bytes) -> ProducerId:
    """The producer id of the entries with this *key*.

    Raises:
      ValueError: if no seal has such a key.
    """
    topic_id = key.removeprefix(_KEY).decode(errors="replace")
    if not is_seal_key(key) or id_fault(topic_id):
        raise ValueError("it is no seal of a log")
    return ProducerId(SEALER + bytes.fromhex(topic_id))


def check_seal(key: bytes, value: bytes, request_id: bytes) -> None:
    """Check an entry of an internal log whose key is that of a seal.

    Raises:
      ValueError: if it isn't as `octopi.replication.internal_log` writes it.
    """
    producer = seal_id(key)
    if value or not request_id.startswith(producer):
        raise ValueError("it was written by another producer, or in another form")


def note_generations(log: LogState, topic: TopicRecord) -> None:
    """The record of the topic of *log* says this.  What an earlier one said stays known."""
    if not topic.generations:
        return
    states = [(one.number, one.state) for one in topic.generations]
    in_force = max(number for number, state in states if state == GenerationState.IN_FORCE)
    log.generation = max(log.generation, in_force)
    log.cancelled |= {number for number, state in states if state == GenerationState.CANCELLED}


@attrs.frozen
class GenerationSeal:
    """The seal of one log that is led."""

    producer: ProducerId
    """The `seal_id`."""
    internal: LogState
    """The internal log of its partition."""

    @classmethod
    def of(cls, topic_id: TopicId, internal: LogState) -> GenerationSeal | None:
        """That of the log of a topic; None: such an id has no topic that can be sealed."""
        return None if id_fault(topic_id) else cls(seal_id(seal_key(topic_id)), internal)

    @property
    def number(self) -> int:
        """The generation for which the log is sealed; 0: it is not."""
        return self.internal.sequences.last_epoch(self.producer) or ProducerEpoch(0)

    @property
    def has_room(self) -> bool:
        """Whether the internal log can take the seal of this log."""
        return bool(self.number) or (
            self.internal.sequences.count(is_sealer) < SEALS_PER_PARTITION_MAX
        )

    def least_generation(self, log: LogState) -> int:
        """The lowest generation of which *log* takes messages; 0: of any."""
        number, least = self.internal.sequences.last_epoch(self.producer), log.generation
        if number is None or number <= least or number in log.cancelled:
            return least
        return number
