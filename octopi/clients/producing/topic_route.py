"""The logs of a topic, and which of them gets a message."""

from __future__ import annotations

from octopi.clients.leader_lookup import partition_of
from octopi.clients.producing.batches import Batch
from octopi.clients.producing.log_sender import LogSender
from octopi.clients.producing.partitioner import StickyPartitioner, place_for_key
from octopi.errors import RefusedError, Status
from octopi.wire.messages import TopicInfo


def check_partition(info: TopicInfo, partition: int) -> None:
    """Check that a topic takes messages in *partition*.

    Raises:
      RefusedError: UNKNOWN_PARTITION, if it doesn't.
    """
    if any(one.partition == partition for one in info.sealed_partitions):
        has = ", ".join(str(one.partition) for one in info.partitions)
        raise RefusedError(
            f"topic {info.topic} takes no more messages in partition {partition}: it got other "
            f"partitions, {has}; name one of them, or give a key instead",
            Status.UNKNOWN_PARTITION,
        )
    partition_of(info, partition)


class TopicRoute:
    """The senders for one topic, and the choice between them."""

    __slots__ = ("info", "partitioner", "places", "senders", "sticky_batch")

    def __init__(self, info: TopicInfo, senders: list[LogSender], first: int) -> None:
        self.info = info
        self.senders = senders
        self.places: dict[int, int] = {
            one.partition: place for place, one in enumerate(info.partitions)
        }
        self.partitioner = StickyPartitioner(len(senders), first)
        self.sticky_batch: Batch | None = None
        """The batch that got the last message without a key."""

    def sender_for(self, key: bytes | None, partition: int | None) -> LogSender:
        """The sender for the next message.

        Raises:
          RefusedError: UNKNOWN_PARTITION, if the topic is not on *partition*.
        """
        if partition is not None:
            if partition not in self.places:
                check_partition(self.info, partition)
            return self.senders[self.places[partition]]
        if key is not None:
            return self.senders[place_for_key(key, len(self.senders))]
        if self.sticky_batch is not None and self.sticky_batch.sealed:
            self.partitioner.move_on()
        return self.senders[self.partitioner.place]
