"""A client that reaches one broker only has its messages passed on to the leaders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.errors import (
    STATUS_MEANINGS,
    ConditionFailedError,
    InvalidOptionError,
    NotDeliveredError,
    Status,
)
from octopi.identifiers import PartitionId
from octopi.limits import FORWARD_TIMEOUT_S, MEMBERSHIP_HEARTBEAT_TIMEOUT_S
from octopi.transport.connection import Connection
from octopi.transport.handshake import open_node_connection
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import PEER
from tests.kit.join_secrets import MEMBER
from tests.kit.probes import batch, refusal_of
from tests.kit.world import BROKER, REGISTER, World, connection, describe, read_all, running_world

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]
PARTITIONS = 6


@asynccontextmanager
async def three_brokers() -> AsyncIterator[World]:
    """A cluster in which each broker leads some partition of the topic."""
    async with running_world() as world:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        async with world.client() as client:
            await client.create_topic("orders", PARTITIONS)
        await trio.sleep(10)
        assert {one.leader_address for one in await places(world)} == set(BROKERS)
        yield world


@asynccontextmanager
async def forwarding(
    world: World, *servers: str, **options: float
) -> AsyncIterator[octopi.Producer]:
    """A producer of a client that is told *servers* alone."""
    async with (
        octopi.connect(
            servers or (BROKER,), on_wrong_node="forward", environment=world.environment(url="far")
        ) as client,
        client.producer(**options) as producer,  # type: ignore[arg-type]
    ):
        yield producer


async def places(world: World) -> list[m.PartitionInfo]:
    return (await describe(world, "orders")).partitions


async def led_by(world: World, url: str) -> PartitionId:
    return next(one.partition for one in await places(world) if one.leader_address == url)


def reached(world: World) -> set[str]:
    """The nodes that the client has connected to."""
    return {link.peer for link in world.net.links if link.owner == "far"}


@asynccontextmanager
async def peer(world: World, url: str) -> AsyncIterator[Connection]:
    """A connection to a broker as another broker has it."""
    opened = await open_node_connection(world.environment(), url, PEER, "test", MEMBER)
    async with trio.open_nursery() as nursery:
        await nursery.start(opened.run, lambda message: None)
        yield opened
        nursery.cancel_scope.cancel()


async def test_a_client_that_reaches_one_broker_produces_to_every_leader(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as world:
        receipts = []
        partitions = [one.partition for one in await places(world)]
        async with forwarding(world) as producer:
            for number in range(60):
                partition = partitions[number % PARTITIONS]
                receipts.append(await producer.send("orders", b"%d" % number, partition=partition))
        assert reached(world) == {BROKER}
        async with world.client() as client:
            stored = await read_all(client, "orders")
        assert sorted((one.partition, one.offset, one.next_offset) for one in stored) == sorted(
            (one.partition, one.offset, one.next_offset) for one in receipts
        )
        assert sorted(int(one.value) for one in stored) == list(range(60))
        assert 0 < world.net.count(m.ForwardProduce) < 60  # what the broker leads is not passed on


async def test_messages_stay_in_order_and_are_stored_once_when_their_leader_is_killed(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as world:
        partition = await led_by(world, BROKERS[1])
        async with forwarding(world, linger_s=0) as producer, trio.open_nursery() as nursery:

            async def produce() -> None:
                pending = []
                for number in range(300):
                    value = b"%d" % number
                    pending.append(await producer.submit("orders", value, partition=partition))
                    await trio.sleep(0.005)
                for one in pending:
                    await one

            nursery.start_soon(produce)
            await trio.sleep(0.5)
            before = world.net.count(m.ForwardProduce)
            await world.kill(BROKERS[1])
        assert 0 < before < world.net.count(m.ForwardProduce)
        assert reached(world) == {BROKER}
        async with world.client() as client:
            stored = await read_all(client, "orders")
        assert [int(one.value) for one in stored] == list(range(300))
        assert {one.partition for one in stored} == {partition}


async def test_messages_for_a_leader_that_hangs_are_stored_by_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as world:
        partition = await led_by(world, BROKERS[1])
        async with forwarding(world) as producer:
            await producer.send("orders", b"first", partition=partition)
            began = trio.current_time()
            with world.net.hang(BROKERS[1]):
                await producer.send("orders", b"second", partition=partition)
                took_s = trio.current_time() - began
        assert took_s < 4 * MEMBERSHIP_HEARTBEAT_TIMEOUT_S
        async with world.client() as client:
            assert [one.value for one in await read_all(client, "orders")] == [b"first", b"second"]


async def test_an_answer_that_is_lost_costs_no_repetition(autojump_clock: MockClock) -> None:
    async with three_brokers() as world:
        partition = await led_by(world, BROKERS[1])
        async with forwarding(world, delivery_timeout_s=60) as producer:
            await producer.send("orders", b"first", partition=partition)
            world.net.fault(m.Answer, "lose")
            began = trio.current_time()
            receipt = await producer.send("orders", b"second", partition=partition)
            assert trio.current_time() - began >= FORWARD_TIMEOUT_S
            assert receipt.duplicate
        async with world.client() as client:
            assert [one.value for one in await read_all(client, "orders")] == [b"first", b"second"]


async def test_another_server_is_tried_when_the_broker_that_passes_on_is_killed(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as world:
        partition = await led_by(world, BROKERS[2])
        async with forwarding(world, BROKERS[0], BROKERS[1]) as producer:
            await producer.send("orders", b"first", partition=partition)
            await world.kill(BROKERS[0])
            await producer.send("orders", b"second", partition=partition)
        assert reached(world) == {BROKERS[0], BROKERS[1]}
        async with world.client() as client:
            assert [one.value for one in await read_all(client, "orders")] == [b"first", b"second"]


async def test_a_condition_holds_or_not_at_the_leader(autojump_clock: MockClock) -> None:
    async with three_brokers() as world:
        partition = await led_by(world, BROKERS[1])
        async with forwarding(world) as producer:
            first = await producer.send("orders", b"a", partition=partition, expected_end=0)
            with pytest.raises(ConditionFailedError) as caught:
                await producer.send("orders", b"b", partition=partition, expected_end=0)
            assert caught.value.end == first.next_offset


async def test_what_was_passed_on_is_passed_on_no_further(autojump_clock: MockClock) -> None:
    async with three_brokers() as world:
        partition = await led_by(world, BROKERS[1])
        async with peer(world, BROKERS[2]) as opened:
            message = m.Produce(7, "orders", partition, batch(0, b"x"), forward=True)
            forward = m.ForwardProduce(opened.next_request(), encode(message))
            answer = await opened.request(forward, m.Answer, 5)
        told = decode(answer.message, frozenset({m.Failure, m.Produced}))
        assert isinstance(told, m.Failure)
        assert (told.request, told.status) == (7, Status.NOT_LEADER)
        assert told.address == BROKERS[1]
        assert world.net.count(m.ForwardProduce) == 1


async def test_a_leader_takes_nothing_but_produces_from_a_broker(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as world, peer(world, BROKERS[2]) as opened:
        order = encode(m.DeleteTopic(7, "orders"))
        error = await refusal_of(
            opened.request(m.ForwardProduce(opened.next_request(), order), m.Answer, 5)
        )
        assert error.status in {Status.WRONG_ENDPOINT, Status.UNKNOWN_MESSAGE}
        async with world.client() as client:
            assert await client.topics()


async def test_a_client_can_not_pass_anything_on_itself(autojump_clock: MockClock) -> None:
    async with three_brokers() as world, connection(world, BROKER) as opened:
        forward = m.ForwardProduce(opened.next_request(), encode(m.DeleteTopic(7, "orders")))
        error = await refusal_of(opened.request(forward, m.Answer, 5))
        assert error.status is Status.WRONG_ENDPOINT


@pytest.mark.parametrize(
    ("limit", "bound"),
    [("FORWARDS_IN_FLIGHT_MAX", 3), ("FORWARDS_IN_FLIGHT_BYTES_MAX", 3 * len(batch(0, b"x")))],
)
async def test_a_broker_has_a_bound_of_what_it_has_passed_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, limit: str, bound: int
) -> None:
    monkeypatch.setattr(f"octopi.roles.broker.forwarded_produces.{limit}", bound)
    async with three_brokers() as world:
        partition = await led_by(world, BROKERS[1])
        with world.net.hang(BROKERS[1]):
            async with connection(world, BROKER) as opened:
                answers: list[object] = []
                for number in range(5):
                    request = opened.next_request()
                    records = batch(number, b"x")
                    opened.ask(
                        m.Produce(request, "orders", partition, records, forward=True),
                        answers.append,
                    )
                await trio.sleep(0.1)
                statuses = [one.status for one in answers if isinstance(one, m.Failure)]
                assert statuses == [Status.TOO_MANY, Status.TOO_MANY]
                await trio.sleep(FORWARD_TIMEOUT_S)
                later = [one.status for one in answers[2:] if isinstance(one, m.Failure)]
                assert later == [Status.ANSWER_LOST] * 3
                assert not STATUS_MEANINGS[Status.ANSWER_LOST].before_append
        async with forwarding(world) as producer:  # the places are free again
            await producer.send("orders", b"y", partition=partition)


async def test_a_leader_takes_only_so_many_from_one_broker(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three_brokers() as world:
        monkeypatch.setattr("octopi.roles.broker.forwarded_produces.FORWARDS_IN_FLIGHT_MAX", 2)
        partition = await led_by(world, BROKERS[1])
        answers: list[object] = []
        with world.net.hang(BROKERS[0]), world.net.hang(BROKERS[2]):  # nothing is committed
            async with peer(world, BROKERS[1]) as opened:
                for number in range(3):
                    message = m.Produce(number, "orders", partition, batch(number, b"x"))
                    forward = m.ForwardProduce(opened.next_request(), encode(message))
                    opened.ask(forward, answers.append)
                await trio.sleep(0.1)
        [refused] = [one for one in answers if isinstance(one, m.Failure)]
        assert refused.status == Status.TOO_MANY


async def test_without_the_option_a_client_is_sent_to_the_leader(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as world:
        async with world.client(BROKER) as client, client.producer() as producer:
            for one in await places(world):
                await producer.send("orders", b"x", partition=one.partition)
        assert world.net.count(m.ForwardProduce) == 0


async def test_registers_alone_pass_nothing_on(autojump_clock: MockClock) -> None:
    async with three_brokers() as world:
        with pytest.raises(NotDeliveredError, match="none of the servers is a broker"):
            async with forwarding(world, REGISTER) as producer:
                await producer.send("orders", b"x", key=b"k")


async def test_a_named_producer_is_not_passed_on(autojump_clock: MockClock) -> None:
    async with running_world() as world:
        with pytest.raises(InvalidOptionError, match="a named producer asks each leader itself"):
            async with (
                octopi.connect(
                    BROKER, on_wrong_node="forward", environment=world.environment()
                ) as client,
                client.producer(name="billing"),
            ):
                pass
        with pytest.raises(InvalidOptionError, match="must be redirect or forward"):
            octopi.connect(BROKER, on_wrong_node="elsewhere", environment=world.environment())
