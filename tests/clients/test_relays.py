"""Questions to relays: how they take part, and whether they hold the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from octopi import Client, connect
from octopi.clients.relays import describe_relays, verify_relays
from octopi.identifiers import BrokerId, TopicName
from octopi.relay.message_ids import MessageId, message_id
from octopi.testing import Cluster, simulated
from tests.kit.relays import RelaysOfHosts

TOPIC = TopicName("prices")


@asynccontextmanager
async def filled(cluster: Cluster, count: int) -> AsyncIterator[tuple[RelaysOfHosts, Client]]:
    """Three relays, with so many transactions of a topic."""
    relays = RelaysOfHosts(cluster, partitions=1)
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with connect(relays.addresses, environment=environment) as client:
        async with client.producer() as producer:
            for number in range(count):
                await producer.send(TOPIC, b"%d" % number)
        await relays.alike()
        yield relays, client


@simulated(brokers=1, oracle=False)
async def test_each_relay_tells_how_it_takes_part(cluster: Cluster) -> None:
    async with filled(cluster, 3) as (relays, client):
        found = await describe_relays(client)
        assert [one.broker.broker for one in found] == [1, 2, 3]
        each = [one for view in found for one in view.relays]
        assert {one.state for one in each} == {"normal"}
        [sequencer] = {one.sequencer for one in each}
        assert sequencer is not None
        assert {one.members for one in each} == {relays.members()["a"].relay_set.ranked}
        assert {(one.streams, one.repairs, one.uncommitted_bytes) for one in each} == {(1, 0, 0)}
        assert len({(one.generation, one.epoch, one.held_bytes) for one in each}) == 1
        cluster.kill("b")
        await cluster.sleep(2.0)
        found = await describe_relays(client)
        assert [bool(one.fault) for one in found] == [False, True, False]
        assert {one.heard for view in found for one in view.relays} == {(1, 3)}


@simulated(brokers=1, oracle=False)
async def test_relays_that_hold_the_same_are_right(cluster: Cluster) -> None:
    async with filled(cluster, 5) as (relays, client):
        verdict = await verify_relays(client, TOPIC)
        assert verdict.is_right
        assert verdict.compared == relays.members()["a"].streams.points[0][1].end
        assert set(verdict.digests) == {1, 2, 3}
        assert len(set(verdict.digests.values())) == 1
        assert len(verdict.digests[BrokerId(1)]) == 32


@simulated(brokers=1, oracle=False)
async def test_a_relay_that_holds_something_else_is_found_with_the_place(cluster: Cluster) -> None:
    async with filled(cluster, 100) as (relays, client):
        [stream] = relays.members()["b"].streams
        held = list(stream.buffer._transactions)
        other = MessageId(message_id(1, b"node-x", 0))
        stream.buffer.cut(held[76].offset if held[76] else stream.buffer.start.end)
        for number, one in enumerate(held[76:]):
            assert one is not None
            name = other if number == 0 else one.id
            stream.buffer.append(name, one.receiver, one.records, 0.0)
        verdict = await verify_relays(client, TOPIC)
        assert not verdict.is_right
        right = held[76]
        assert right is not None
        assert verdict.differs == right.offset, "all before the 77th is alike"
        assert verdict.digests[BrokerId(1)] == verdict.digests[BrokerId(3)]
        assert verdict.digests[BrokerId(1)] != verdict.digests[BrokerId(2)]
