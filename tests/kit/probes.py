"""Requests to a broker, sent message by message without the client library."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from octopi.errors import RefusedError
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.record import BatchBuilder, decode
from octopi.transport.connection import Connection
from octopi.wire import messages as m

ALICE = ProducerId(b"a" * 16)


def batch(first: int, *values: bytes, producer: ProducerId = ALICE, epoch: int = 0) -> bytes:
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.add(value, timestamp_ms=1000 * (first + number))
    return builder.encode(producer, ProducerEpoch(epoch), Sequence(first))


async def produce(connection: Connection, topic: m.TopicInfo, records: bytes) -> m.Produced:
    partition = topic.partitions[0].partition
    message = m.Produce(connection.next_request(), topic.topic, partition, records)
    return await connection.request(message, m.Produced, 5)


async def fetch(
    connection: Connection, topic: m.TopicInfo, offset: int, wait_ms: int = 0, bytes_max: int = 1000
) -> m.Fetched:
    partition = topic.partitions[0].partition
    message = m.Fetch(
        connection.next_request(), topic.topic, partition, Offset(offset), bytes_max, wait_ms
    )
    return await connection.request(message, m.Fetched, 5)


async def fetch_all(connection: Connection, topic: m.TopicInfo) -> bytes:
    """All committed records: each answer has those of one epoch."""
    found = b""
    while True:
        fetched = await fetch(connection, topic, len(found))
        if not fetched.records:
            return found
        found += fetched.records


def values(records: bytes | memoryview) -> list[bytes]:
    found = decode(records, Offset(0), TopicName("t"), PartitionId(0))
    return [message.value for message in found]


async def refusal_of(call: Awaitable[object]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await call
    return caught.value
