"""Relays of a static list serve topics in memory: produced by quorum, read anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from octopi import Client, Receipt, connect
from octopi.environment import Environment
from octopi.identifiers import TopicName
from octopi.relay.message_ids import id_sequence
from octopi.testing import Cluster, simulated
from tests.kit.relays import RelaysOfHosts

TOPIC = TopicName("prices")


def values(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


async def read(client: Client, count: int, start: str = "earliest") -> list[bytes]:
    async with client.consumer(TOPIC, start=start) as consumer:
        return [(await consumer.__anext__()).value for _ in range(count)]


def sequencer(relays: RelaysOfHosts) -> str:
    """The host of the sequencer of the topic."""
    node = next(iter(relays.running().values()))
    partition = node.mesh.partition_of(TOPIC)
    found = {
        one.member.sequencer
        for running in relays.running().values()
        if (one := running.partitions[partition]).member is not None and one.member.is_normal
    }
    [only] = found
    return relays.name_of(only)


@asynccontextmanager
async def started(
    cluster: Cluster, names: str = "abc", *, partitions: int = 2
) -> AsyncIterator[tuple[RelaysOfHosts, Environment]]:
    relays = RelaysOfHosts(cluster, names, partitions=partitions)
    relays.start()
    await relays.alike()
    yield relays, await cluster.environment("client")


@simulated(seeds=2, brokers=1, oracle=False)
async def test_what_is_produced_at_one_relay_is_read_at_all(cluster: Cluster) -> None:
    async with started(cluster, partitions=8) as (relays, environment):
        async with (
            connect(relays.addresses[0], environment=environment) as client,
            client.producer() as producer,
        ):
            receipts = [await producer.send(TOPIC, one) for one in values(20)]
        ids = [one.id for one in receipts]
        assert None not in ids
        assert sorted(ids) == ids, "one receiver gives growing ids"  # type: ignore[type-var]
        assert len({one.digest for one in receipts}) == 20
        for address in relays.addresses:
            async with connect(address, environment=environment) as client:
                assert await read(client, 20) == values(20)
                assert [one.topic for one in await client.topics()] == [TOPIC]


@simulated(brokers=1, oracle=False)
async def test_messages_that_are_sent_together_have_ids_in_a_row_and_one_digest(
    cluster: Cluster,
) -> None:
    async with (
        started(cluster) as (relays, environment),
        connect(relays.addresses, environment=environment) as client,
        client.producer(linger_s=0.05) as producer,
    ):
        pending = [await producer.submit(TOPIC, one) for one in values(5)]
        receipts = [await one for one in pending]
        assert len({one.digest for one in receipts}) == 1
        first = receipts[0].id
        assert first is not None
        found = [id_sequence(one.id) for one in receipts if one.id is not None]  # type: ignore[arg-type]
        assert found == list(range(found[0], found[0] + 5))
        assert {one.id[:-2] for one in receipts if one.id is not None} == {first[:-2]}


@simulated(seeds=4, brokers=1, oracle=False)
async def test_the_sequencer_is_killed_and_nothing_is_lost_or_doubled(cluster: Cluster) -> None:
    async with started(cluster) as (relays, environment):
        receipts: list[Receipt] = []
        seen: list[bytes] = []

        async def produce() -> None:
            async with (
                connect(relays.addresses, environment=environment) as client,
                client.producer() as producer,
            ):
                for one in values(60):
                    receipts.append(await producer.send(TOPIC, one))
                    await cluster.sleep(0.02)

        async def consume() -> None:
            async with (
                connect(relays.addresses[::-1], environment=environment) as client,
                client.consumer(TOPIC, start="earliest", create=True) as consumer,
            ):
                while len(seen) < 60:
                    seen.append((await consumer.__anext__()).value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(consume)
            await cluster.sleep(0.4)
            cluster.kill(sequencer(relays), restart_s=3.0)
        assert seen == values(60)
        await relays.alike()
        for address in relays.addresses:
            async with connect(address, environment=environment) as client:
                assert await read(client, 60) == values(60)
