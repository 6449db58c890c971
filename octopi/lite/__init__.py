"""Octopi Lite: a topic of messages of 256 bytes, numbered 0, 1, 2, ... in each partition.

A thin layer over the client, with the calls of a small Kafka: a producer that names the partition
of each message, and a group of consumers that reads by number or polls::

    from octopi import lite

    async with lite.mount_producer("ws://127.0.0.1:7000") as producer:
        number = await producer.add_message(0, b"paid")
    async with lite.mount_consumer_group("ws://127.0.0.1:7000", 3) as group:
        read = await group.consume([0, 1], 0, 10)     # {partition id: messages}
        for record in await group.poll(2.0):
            print(record.partition_id, record.messages)
"""

from octopi.lite.consumer_group import ConsumerGroup, ConsumerRecord, mount_consumer_group
from octopi.lite.errors import (
    BrokerDisconnectError,
    InvalidPartitionIdError,
    LeaderNotFoundError,
    LiteError,
    NotLiteError,
)
from octopi.lite.numbers import MESSAGE_BYTES
from octopi.lite.producer import LiteProducer, mount_producer

__all__ = [
    "MESSAGE_BYTES",
    "BrokerDisconnectError",
    "ConsumerGroup",
    "ConsumerRecord",
    "InvalidPartitionIdError",
    "LeaderNotFoundError",
    "LiteError",
    "LiteProducer",
    "NotLiteError",
    "mount_consumer_group",
    "mount_producer",
]
