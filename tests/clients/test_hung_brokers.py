"""Clients of a broker that hangs: its connections stay open, and it says nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.limits import (
    HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    READER_SILENCE_S,
)
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.kit.world import BROKER, REGISTER, World, read_all, running_world

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]

BACK_S = 1.5
"""Within this after a broker hung, others have taken its place for everybody."""


@asynccontextmanager
async def three_brokers() -> AsyncIterator[tuple[World, octopi.Client]]:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        yield world, client


async def leaders(client: octopi.Client, topic: str) -> dict[int, str]:
    places = (await client.describe_topic(topic)).partitions
    return {place.partition: place.leader_address for place in places}


class Stream:
    """Messages to one partition, one every *interval_s*, and when each was acknowledged."""

    def __init__(self, topic: str, partition: int, interval_s: float = 0.05) -> None:
        self.topic = topic
        self.partition = partition
        self.interval_s = interval_s
        self.values: list[bytes] = []
        self.receipts: dict[bytes, octopi.Receipt] = {}
        self.acknowledged_at: list[float] = []
        self._is_over = False

    async def run(self, client: octopi.Client) -> None:
        async with client.producer(linger_s=0) as producer, trio.open_nursery() as nursery:
            while not self._is_over:
                value = b"%s/%d %d" % (self.topic.encode(), self.partition, len(self.values))
                self.values.append(value)
                pending = await producer.submit(self.topic, value, partition=self.partition)
                nursery.start_soon(self._wait, value, pending)
                await trio.sleep(self.interval_s)

    async def _wait(self, value: bytes, pending: octopi.PendingReceipt) -> None:
        self.receipts[value] = await pending
        self.acknowledged_at.append(trio.current_time())

    def stop(self) -> None:
        self._is_over = True

    def longest_gap_s(self, since: float) -> float:
        times = [since, *(at for at in self.acknowledged_at if at >= since), trio.current_time()]
        return max(after - before for before, after in pairwise(times))


@asynccontextmanager
async def flowing(client: octopi.Client, *streams: Stream) -> AsyncIterator[None]:
    """Within the block messages flow; behind it all have their receipts."""
    async with trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(stream.run, client)
        await trio.sleep(1)
        yield
        for stream in streams:
            stream.stop()


async def check(client: octopi.Client, *streams: Stream) -> None:
    """Every message is there once, in order, where its receipt says."""
    for stream in streams:
        stored = [
            one for one in await read_all(client, stream.topic) if one.partition == stream.partition
        ]
        assert [one.value for one in stored] == stream.values
        assert {one.value: one.offset for one in stored} == {
            value: receipt.offset for value, receipt in stream.receipts.items()
        }


# --- producing ---------------------------------------------------------------------------


async def test_a_hung_leaders_partition_takes_messages_again_as_soon_as_another_leads(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        await client.create_topic("orders")
        ((partition, leader),) = (await leaders(client, "orders")).items()
        stream = Stream("orders", partition)
        async with flowing(client, stream):
            hung_at = trio.current_time()
            with world.net.hang(leader):
                await trio.sleep(4)
                gap_s = stream.longest_gap_s(hung_at)
                assert MEMBERSHIP_HEARTBEAT_TIMEOUT_S / 2 < gap_s < BACK_S
            await trio.sleep(5)  # what it left unread reaches a leader that is none any more
        await check(client, stream)
        assert not any(one.duplicate for one in stream.receipts.values())


async def test_all_logs_of_a_hung_broker_move_and_those_of_others_are_undisturbed(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        await client.create_topic("wide", 6)
        await client.create_topic("narrow", partition_ids=[0])
        await client.create_topic("other", partition_ids=[1])
        by_log = {
            (topic, one): at
            for topic in ("wide", "narrow", "other")
            for one, at in (await leaders(client, topic)).items()
        }
        streams = {log: Stream(*log) for log in by_log}
        hung = by_log["narrow", 0]
        assert hung != by_log["other", 1]
        async with flowing(client, *streams.values()):
            since, hung_at = len(world.net.passed), trio.current_time()
            with world.net.hang(hung):
                await trio.sleep(4)
                for stream in streams.values():
                    assert stream.longest_gap_s(hung_at) < BACK_S
            passed = world.net.passed[since:]
        await check(client, *streams.values())
        sent = [
            (one.topic, one.partition, one.records) for one in passed if isinstance(one, m.Produce)
        ]
        repeated = {
            (topic, partition)
            for topic, partition, records in sent
            if sent.count((topic, partition, records)) > 1
        }
        assert repeated == {log for log, at in by_log.items() if at == hung}


async def test_a_slow_leader_is_waited_for(autojump_clock: MockClock) -> None:
    async with three_brokers() as (world, client):
        await client.create_topic("orders")
        ((partition, leader),) = (await leaders(client, "orders")).items()
        stream = Stream("orders", partition)
        async with flowing(client, stream):
            sent, connections = world.net.count(m.Produce), world.net.connect_count
            with world.net.hang(leader, CLIENT.path):
                await trio.sleep(8)
                assert stream.longest_gap_s(trio.current_time() - 8) > 7
            await trio.sleep(1)
            assert world.net.connect_count == connections
        await check(client, stream)
        batches = {one.records for one in world.net.passed if isinstance(one, m.Produce)}
        assert len(batches) == world.net.count(m.Produce) > sent


async def test_a_client_asks_one_question_at_a_time_however_many_logs_wait(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        for number in range(20):
            await client.create_topic(f"topic-{number}", partition_ids=[0])
        streams = [Stream(f"topic-{number}", 0) for number in range(20)]
        (leader,) = (await leaders(client, "topic-0")).values()
        async with flowing(client, *streams):
            before = world.net.count(m.DescribeTopic)
            with world.net.hang(leader, CLIENT.path):
                await trio.sleep(8)
            asked = world.net.count(m.DescribeTopic) - before
        assert 5 <= asked <= 40
        await check(client, *streams)


async def test_a_client_leaves_a_leader_only_if_the_register_names_another(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        await client.create_topic("orders")
        ((partition, leader),) = (await leaders(client, "orders")).items()
        stream = Stream("orders", partition)
        async with flowing(client, stream):
            with world.net.away(REGISTER), world.net.hang(leader, CLIENT.path):
                await trio.sleep(8)
                assert stream.longest_gap_s(trio.current_time() - 8) > 7
        await check(client, stream)
        batches = {one.records for one in world.net.passed if isinstance(one, m.Produce)}
        assert len(batches) == world.net.count(m.Produce)


async def test_a_client_that_connects_to_a_hung_leader_soon_finds_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        await client.create_topic("orders")
        (leader,) = (await leaders(client, "orders")).values()
        with world.net.hang(leader):
            await trio.sleep(0.2)
            async with world.client() as late, late.producer() as producer:
                with trio.fail_after(BACK_S - 0.2):
                    await producer.send("orders", b"from somebody new")
        assert [one.value for one in await read_all(client, "orders")] == [b"from somebody new"]


async def test_a_request_to_a_hung_leader_is_soon_sent_to_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"here")
        (leader,) = (await leaders(client, "orders")).values()
        await client.find_offset("orders", "latest", partition=receipt.partition)
        with world.net.hang(leader), trio.fail_after(BACK_S):
            await client.find_offset("orders", "latest", partition=receipt.partition)
        (leader,) = (await leaders(client, "orders")).values()
        with world.net.hang(leader), trio.fail_after(2 * BACK_S):
            found = await client.fetch("orders", 0, partition=receipt.partition)
        assert [one.value for one in found.messages] == [b"here"]


# --- consuming ---------------------------------------------------------------------------


@pytest.mark.parametrize("hung", BROKERS)
async def test_a_consumer_goes_on_at_another_broker_when_its_own_one_hangs(
    hung: str, autojump_clock: MockClock
) -> None:
    async with three_brokers() as (world, client):
        await client.create_topic("orders")
        ((partition, _),) = (await leaders(client, "orders")).items()
        stream = Stream("orders", partition)
        read: list[octopi.Message] = []
        read_at: list[float] = []
        async with (
            client.consumer("orders", start="earliest") as consumer,
            flowing(client, stream),
            trio.open_nursery() as nursery,
        ):

            async def consume() -> None:
                async for message in consumer:
                    read.append(message)
                    read_at.append(trio.current_time())

            nursery.start_soon(consume)
            await trio.sleep(1)
            hung_at = trio.current_time()
            with world.net.hang(hung):
                await trio.sleep(4)
                times = [hung_at, *(at for at in read_at if at > hung_at)]
                assert max(after - before for before, after in pairwise(times)) < BACK_S
                assert len(times) > 40
            stream.stop()
            await trio.sleep(3)
            nursery.cancel_scope.cancel()
        assert [one.value for one in read] == stream.values
        await check(client, stream)


@pytest.mark.parametrize("hung", BROKERS)
@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_subscribe_request_without_an_answer_is_sent_to_another_broker(
    hung: str, is_connected: bool, autojump_clock: MockClock
) -> None:
    async with three_brokers() as (world, other), world.client() as client:
        async with other.producer() as producer:
            receipt = await producer.send("orders", b"0")
        if is_connected:
            await client.admin.describe_logs("orders")
        for number in range(3):  # readers take turns
            with world.net.hang(hung), trio.fail_after(BACK_S):
                async with client.consumer("orders", start=receipt.offset) as consumer:
                    assert (await anext(consumer)).value == b"0"
            await trio.sleep(10 * (number + 1))


@pytest.mark.parametrize("hung", BROKERS)
async def test_an_idle_consumer_notices_a_hung_broker_by_its_missing_heartbeat(
    hung: str, autojump_clock: MockClock
) -> None:
    async with three_brokers() as (world, client):
        async with client.producer() as producer:
            await producer.send("orders", b"0")
        async with (
            client.consumer("orders", start="earliest") as consumer,
            world.client() as other,
            other.producer() as producer,
        ):
            assert (await anext(consumer)).value == b"0"
            await trio.sleep(60)
            with world.net.hang(hung):
                await producer.send("orders", b"1")
                with trio.fail_after(HEARTBEAT_INTERVAL_S + READER_SILENCE_S):
                    assert (await anext(consumer)).value == b"1"


async def test_an_idle_consumer_soon_stops_asking_the_register_and_probing(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        await client.create_topic("wide", 6)
        async with client.consumer("wide"):
            asked = world.net.count(m.DescribeTopic)
            connections = world.net.connect_count
            probed = world.net.count(m.FindOffset)
            await trio.sleep(180)
            assert world.net.count(m.DescribeTopic) == asked
            assert 3 <= world.net.count(m.FindOffset) - probed <= 3 * 3  # three brokers
            assert world.net.connect_count == connections
