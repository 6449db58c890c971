"""Producers and consumers while leaders die and others take over."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import octopi
from tests.kit.world import BROKER, read_all, running_world

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]


async def leader_of(client: octopi.Client, topic: str) -> str:
    (place,) = (await client.describe_topic(topic)).partitions
    return place.leader_address


async def test_killed_leaders_cost_no_message_and_no_repetition(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders")
        sent = [b"%d" % number for number in range(2000)]
        receipts: list[octopi.Receipt] = []
        read: list[octopi.Message] = []

        async def produce() -> None:
            async with client.producer(batch_bytes=2000) as producer:
                pendings = []
                for number, value in enumerate(sent):
                    pendings.append(await producer.submit("orders", value))
                    if number % 20 == 0:
                        await trio.sleep(0.2)
                receipts.extend([await pending for pending in pendings])

        async def consume() -> None:
            async with client.consumer("orders", start="earliest") as consumer:
                while len(read) < len(sent):
                    read.append(await anext(consumer))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(consume)
            for _ in range(3):
                await trio.sleep(2)
                leader = await leader_of(client, "orders")
                await world.kill(leader)
                await trio.sleep(3)
                await world.start_broker(leader)
        assert [one.value for one in read] == sent
        assert [one.offset for one in read] == [one.offset for one in receipts]
        assert await read_all(client, "orders") == read
        assert len({one.epoch for one in receipts}) > 1


@pytest.mark.parametrize("away", BROKERS)
async def test_a_consumer_reads_on_at_another_replica(away: str, autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders")
        async with (
            client.producer() as producer,
            client.consumer("orders", start="earliest") as consumer,
        ):
            for number in range(5):
                await producer.send("orders", b"%d" % number)
            assert [(await anext(consumer)).value for _ in range(3)] == [b"0", b"1", b"2"]
            await world.kill(away)
            await producer.send("orders", b"5")
            assert [(await anext(consumer)).value for _ in range(3)] == [b"3", b"4", b"5"]
