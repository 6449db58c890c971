"""The effects of a producer's session, which its driver performs."""

from __future__ import annotations

import attrs

from octopi.clients.producing.batches import Batch
from octopi.errors import OctopiError, RefusedError
from octopi.identifiers import PartitionId, ProducerEpoch, TopicName
from octopi.wire.messages import Produce


def on_the_wire(generation: int) -> int:
    """The field `Produce.generation`, which brokers of earlier versions can't decode: only a topic
    that got other partitions has later generations than the first."""
    return generation if generation > 1 else 0


@attrs.frozen
class Send:
    """Send *records* to the leader, and report the answer with *batch* and *attempt*."""

    batch: Batch
    attempt: int
    records: bytes
    epoch: ProducerEpoch
    """The producer epoch of the sequences in *records*."""
    generation: int = 1
    """The generation of the topic by which the log was chosen."""

    def request(self, number: int, topic: TopicName, partition: PartitionId) -> Produce:
        """The message to send."""
        condition, generation = self.batch.condition, on_the_wire(self.generation)
        if condition is None:
            return Produce(number, topic, partition, self.records, generation=generation)
        end, after = condition.expected_end, condition.after
        return Produce(number, topic, partition, self.records, end, after, generation)


@attrs.frozen
class Settled:
    """The batch has its outcome."""

    batch: Batch
    count: int
    """The number of its messages."""
    size_bytes: int


@attrs.frozen
class FindLeader:
    """The connection isn't usable: find the leader (again), then call `connected`."""

    why: OctopiError
    address: str
    """The leader's address, according to the broker that refused; may be empty."""
    silent: bool
    """Whether the connection is open, but no answer came in time: close it."""


@attrs.frozen
class AskLeader:
    """The leader is silent: ask the register whether it still leads."""


@attrs.frozen
class BeginEpoch:
    """Have the leader begin a new epoch of the named producer in this log, then call `began`."""

    after: ProducerEpoch | None
    """The epoch of this life that ends with it; None: this life has none in this log yet."""


@attrs.frozen
class Fenced:
    """Another life of this producer has begun: the producer is closed."""

    why: RefusedError


Effect = Send | Settled | FindLeader | AskLeader | BeginEpoch | Fenced
