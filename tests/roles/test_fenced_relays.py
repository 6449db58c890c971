"""What a relay without a quorum says to producers and readers, and that they go elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from octopi import connect
from octopi.errors import NoQuorumError, RefusedError, Status
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.relay.buffer import BufferBounds
from octopi.testing import Cluster, simulated
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.relays import RelaysOfHosts
from tests.relay.parts import produced

TOPIC = TopicName("prices")
CUT_OFF = "a"
OTHERS = {"ws://b:9101", "ws://c:9101"}


@asynccontextmanager
async def connected(
    cluster: Cluster, bounds: BufferBounds | None = None
) -> AsyncIterator[tuple[RelaysOfHosts, Connection, PartitionId]]:
    """Three relays, and a connection to the first of them."""
    relays = RelaysOfHosts(cluster, partitions=1, bounds=bounds)
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with connect(relays.addresses[0], environment=environment) as client:
        await client.describe_topic(TOPIC, create=True)
        connection = await client._cluster.connections.get(relays.addresses[0])
        yield relays, connection, PartitionId(0)


async def cut_off(cluster: Cluster, relays: RelaysOfHosts) -> None:
    """Have the first relay hear no other one, while the client still reaches it."""
    cluster.split([CUT_OFF, "client"], ["b", "c"])
    fenced = relays.running()[CUT_OFF].partitions[0]
    await cluster.eventually(lambda: fenced.is_fenced, "it is fenced")


@simulated(brokers=1, oracle=False)
async def test_a_relay_without_a_quorum_refuses_producers_and_names_another_one(
    cluster: Cluster,
) -> None:
    async with connected(cluster) as (relays, connection, partition):
        await cut_off(cluster, relays)
        produce = m.Produce(connection.next_request(), TOPIC, partition, produced(1, [b"0"]))
        with pytest.raises(NoQuorumError) as caught:
            await connection.request(produce, m.Produced, 5.0)
        assert caught.value.address in OTHERS
        assert caught.value.meaning.before_append, "so it is certainly not stored"
        cluster.heal()
        await relays.alike()
        assert not relays.members()["b"].streams.by_topic, "nothing was stored"


@simulated(brokers=1, oracle=False)
async def test_a_relay_without_a_quorum_ends_readings_and_closes_their_connection(
    cluster: Cluster,
) -> None:
    async with connected(cluster) as (relays, connection, partition):
        ended: list[object] = []
        request = connection.next_request()
        opened = trio.Event()

        def take(message: object) -> None:
            opened.set() if isinstance(message, m.Subscribed) else ended.append(message)

        connection.ask(m.Subscribe(request, TOPIC, partition, Offset(0), 1_000), take)
        await opened.wait()
        await cut_off(cluster, relays)
        await cluster.eventually(lambda: connection.end_reason is not None, "it is closed")
        failure = ended[0]
        assert isinstance(failure, m.Failure)
        assert failure.status == Status.NO_QUORUM
        assert failure.address in OTHERS
        reason = str(connection.end_reason)
        assert "4409" in reason
        assert all(one in reason for one in OTHERS)
        assert relays.addresses[0] not in reason


@simulated(seeds=2, brokers=1, oracle=False)
async def test_clients_of_a_relay_that_is_cut_off_go_on_at_the_others(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster, partitions=1)
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with (
        connect(relays.addresses, environment=environment) as client,
        client.producer() as producer,
        client.consumer(TOPIC, start="earliest", create=True) as consumer,
    ):
        for number in range(3):
            for name in relays.names:  # each in turn hears nobody but the client
                await producer.send(TOPIC, b"%d %s" % (number, name.encode()))
                await consumer.__anext__()
                cluster.split([name], [one for one in relays.names if one != name])
                await producer.send(TOPIC, b"%d without %s" % (number, name.encode()))
                message = await consumer.__anext__()
                assert message.value == b"%d without %s" % (number, name.encode())
                cluster.heal()
                await relays.alike()


@simulated(brokers=1, oracle=False)
async def test_what_waits_for_a_quorum_is_bounded_and_more_is_refused_as_buffer_full(
    cluster: Cluster,
) -> None:
    bounds = BufferBounds(2_000, 1_000, 600.0)
    async with connected(cluster, bounds) as (relays, connection, partition):
        answers: list[Status | int] = []

        async def send(number: int) -> None:
            records = produced(number, [bytes(300)])
            message = m.Produce(connection.next_request(), TOPIC, partition, records)
            try:
                answers.append((await connection.request(message, m.Produced, 5.0)).offset)
            except RefusedError as error:
                answers.append(error.status)

        async with trio.open_nursery() as nursery:
            for number in range(1, 9):
                nursery.start_soon(send, number)
        stored = [one for one in answers if not isinstance(one, Status)]
        assert set(answers) - set(stored) == {Status.BUFFER_FULL}
        assert 1 <= len(stored) < 8
        await relays.alike()
        [stream] = relays.members()["a"].streams
        assert len(stored) == sum(1 for _ in stream.buffer.read(Offset(0), stream.highwater, 9_999))


@simulated(brokers=1, oracle=False)
async def test_what_topics_in_memory_do_not_do_is_refused_as_such(cluster: Cluster) -> None:
    async with connected(cluster) as (_, connection, partition):
        ask = m.DescribeMarks(connection.next_request(), TOPIC, partition, "0" * 16)
        with pytest.raises(RefusedError, match="topics in memory know no describe_marks") as caught:
            await connection.request(ask, m.Done, 5.0)
        assert caught.value.status == Status.WRONG_KIND
