"""A client that was given brokers: they pass on what only the register answers."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.entrances import Entrances
from octopi.errors import NotReadyError, UnreachableError
from octopi.identifiers import BrokerId
from octopi.limits import ENTRANCE_SILENCE_S, ENTRANCES_LEARNED_MAX
from octopi.roles.broker.node import BrokerOptions, run_broker
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS
from tests.kit.world import BROKER, REGISTER, running_world, values

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]
A, B, C, D = "ws://a:1", "ws://b:1", "ws://c:1", "ws://d:1"


# --- which node is asked ---------------------------------------------------------------


def test_the_node_that_was_named_first_is_asked_until_it_fails() -> None:
    entrances = Entrances([A, B])
    entrances.answered()
    assert entrances.current == A
    entrances.failed(A)
    assert entrances.current == B
    entrances.answered()
    assert entrances.current == B
    entrances.failed(B)
    assert entrances.current == A


def test_a_node_that_another_request_found_away_is_not_passed_over_twice() -> None:
    entrances = Entrances([A, B, C])
    entrances.failed(A)
    entrances.failed(A)
    assert entrances.current == B


def test_brokers_of_answers_are_asked_when_all_nodes_that_were_named_fail() -> None:
    entrances = Entrances([A, B])
    entrances.learn([C, "", A, D, C])
    entrances.failed(A)
    assert entrances.current == B
    entrances.failed(B)
    assert entrances.current == C
    entrances.answered()
    assert entrances.current == C
    entrances.failed(C)
    assert entrances.current == D
    entrances.failed(D)
    assert entrances.current == A


def test_only_so_many_brokers_are_remembered() -> None:
    entrances = Entrances([A])
    entrances.learn(f"ws://broker-{number}:1" for number in range(100))
    asked = []
    for _ in range(100):
        asked.append(entrances.current)
        entrances.failed(entrances.current)
    assert len(set(asked)) == 1 + ENTRANCES_LEARNED_MAX


def test_a_node_without_others_has_all_the_time() -> None:
    assert Entrances([A]).patience_s is None
    entrances = Entrances([A])
    entrances.learn([A])
    assert entrances.patience_s is None


def test_when_all_nodes_are_silent_each_gets_more_time_in_the_next_round() -> None:
    entrances = Entrances([A, B])
    waits = []
    for _ in range(4):
        waits.append(entrances.patience_s)
        entrances.failed(entrances.current, was_silent=True)
    first = ENTRANCE_SILENCE_S
    assert waits == [first, first, 2 * first, 2 * first]
    entrances.answered()
    assert entrances.patience_s == first


# --- what a client of a broker can do --------------------------------------------------


async def test_a_client_of_a_broker_makes_lists_describes_and_deletes_topics(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client(BROKER) as client:
        made = await client.create_topic("orders", 2, retention_bytes=4096)
        assert [one.topic for one in await client.topics()] == ["orders"]
        assert await client.describe_topic("orders") == made
        created = await client.describe_topic("lazily", create=True)
        assert created.topic == "lazily"
        await client.delete_topic("lazily")
        with pytest.raises(octopi.UnknownTopicError, match="lazily"):
            await client.describe_topic("lazily")
        with pytest.raises(octopi.TopicExistsError):
            await client.create_topic("orders")


async def test_a_client_of_a_broker_produces_and_consumes(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client(BROKER) as client:
        async with client.producer() as producer:
            for number in range(10):
                await producer.send("orders", b"%d" % number)
        assert await values(client, "orders") == [b"%d" % number for number in range(10)]


async def test_an_operator_orders_through_a_broker(autojump_clock: MockClock) -> None:
    async with running_world() as world:
        await world.start_broker(BROKERS[1])
        async with world.client(BROKER) as client, world.client() as direct:
            await client.create_topic("orders")
            before = await client.admin.describe_cluster()
            assert before.brokers == (await direct.admin.describe_cluster()).brokers
            assert await client.admin.add_partitions(2) == before.partition_count + 2
            await client.admin.drain_broker(1)
            with pytest.raises(octopi.RefusedError) as refused:
                await client.admin.remove_broker(1)
            with pytest.raises(octopi.RefusedError) as refused_directly:
                await direct.admin.remove_broker(1)
            assert refused.value.status == refused_directly.value.status
            assert str(refused.value) == str(refused_directly.value)


async def test_a_slow_register_costs_no_connection_to_the_broker(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        await world.start_broker(BROKERS[1])
        async with world.client(BROKER) as client:
            info = await client.create_topic("orders")
            await world.kill(BROKERS[1])
            await trio.sleep(10)  # it is not in sync any more, so a move to it lasts
            before = await client._cluster.connections.get(BROKER)
            place = info.partitions[0].partition
            with pytest.raises(octopi.ConnectionLostError, match="no answer within 3 s"):
                await client._router.ask_register_once(
                    lambda request: m.MoveReplica(request, place, BrokerId(1), BrokerId(2)),
                    m.Done,
                    3.0,
                )
            assert await client._cluster.connections.get(BROKER) is before
            assert before.end_reason is None


# --- away, and back --------------------------------------------------------------------


async def test_a_broker_without_its_register_says_so_soon(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client(BROKER, request_timeout_s=1.0) as client:
        await client.create_topic("orders")
        await world.kill(REGISTER)
        began = trio.current_time()
        with pytest.raises(NotReadyError, match="can't reach its register"):
            await client.topics()
        assert trio.current_time() - began < 2.0


async def test_a_client_of_a_broker_goes_on_when_the_register_is_back(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client(BROKER) as client:
        await client.create_topic("orders")
        await world.kill(REGISTER)

        async def back() -> None:
            await trio.sleep(3)
            await world.start_register()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(back)
            assert [one.topic for one in await client.topics()] == ["orders"]


async def test_a_client_with_several_addresses_uses_one_that_answers(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        async with world.client(["ws://nowhere:1", BROKER]) as client:
            await client.create_topic("orders")
        await world.start_broker(BROKERS[1])
        await world.kill(BROKER)
        async with world.client([BROKER, BROKERS[1]]) as client:
            assert [one.topic for one in await client.topics()] == ["orders"]


async def test_a_client_asks_brokers_that_it_has_learnt_of_when_its_own_node_is_away(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        async with world.client(BROKER) as client:
            await client.create_topic("orders", 3)
            await client.admin.describe_cluster()
            await world.kill(BROKER)
            await client.create_topic("more")
            assert [one.topic for one in await client.topics()] == ["more", "orders"]


async def test_a_client_that_knows_no_living_node_is_told_which_it_tried(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client("ws://nowhere:1") as client:
        with pytest.raises(UnreachableError, match="nowhere"):
            await client.topics()


async def test_a_client_with_nodes_of_two_clusters_is_told_so(autojump_clock: MockClock) -> None:
    other, foreign = "ws://other:7000", "ws://broker-9:7100"
    async with running_world() as world:
        disk = MemoryDisk()
        register = RegisterOptions("other:7000", "data", gather_s=0.05, secrets=SECRETS)
        await world._start(
            other, disk, partial(run_register, world.environment(disk, other), register)
        )
        disk = MemoryDisk()
        broker = BrokerOptions("broker-9:7100", "data", [other], SECRETS)
        await world._start(
            foreign, disk, partial(run_broker, world.environment(disk, foreign), broker)
        )
        async with world.client([BROKER, foreign], request_timeout_s=2.0) as client:
            await client.create_topic("orders")
            await world.kill(BROKER)
            await world.kill(REGISTER)
            told: set[str] = set()
            for _ in range(20):
                try:
                    await client.create_topic("more")
                except octopi.OctopiError as error:
                    told.add(str(error))
            assert any("name nodes of one cluster" in one for one in told), told
        async with world.client(foreign) as client:
            assert await client.topics() == []
