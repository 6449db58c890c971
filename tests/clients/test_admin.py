"""A client as an operator's tool: looking at replicas, draining, adding, moving."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.identifiers import is_internal
from octopi.wire import messages as m
from tests.kit.world import BROKER, REGISTER, World, running_world

SECOND, THIRD = "ws://broker-2:7100", "ws://broker-3:7100"


async def replicated_topic(world: World, client: octopi.Client) -> octopi.PartitionInfo:
    """A topic with three replicas and a message; where it is."""
    await world.start_broker(SECOND)
    await world.start_broker(THIRD)
    info = await client.create_topic("orders")
    async with client.producer() as producer:
        await producer.send("orders", b"value")
    return info.partitions[0]


async def test_every_replica_of_a_log_is_described_with_its_broker(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        place = await replicated_topic(world, client)
        logs = await client.admin.describe_logs("orders")
        assert [one.broker for one in logs] == sorted(place.replicas) == [1, 2, 3]
        assert [one.address for one in logs] == [BROKER, SECOND, THIRD]
        assert len({one.log.log_end for one in logs}) == 1
        described = await client.admin.describe_logs()
        assert [one for one in described if not is_internal(one.log.topic)] == logs
        assert len(described) == 2 * len(logs)
        brokers = (await client.admin.describe_cluster()).brokers
        assert await client.admin.describe_logs("orders", brokers=brokers[:1]) == logs[:1]
        with pytest.raises(octopi.UnknownTopicError):
            await client.admin.describe_logs("nothing")


async def test_messages_are_counted_in_every_replica_of_a_log(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await replicated_topic(world, client)
        async with client.producer() as producer:
            for _ in range(3):
                await producer.send("orders", b"value")
        logs = await client.admin.describe_logs("orders")
        counts = await client.admin.count_messages("orders")
        assert [(one.broker, one.address) for one in counts] == [
            (one.broker, one.address) for one in logs
        ]
        assert counts[0].log.count == 4
        assert all((one.log.count or 0) <= 4 for one in counts)
        everything = await client.admin.count_messages()
        assert [one for one in everything if not is_internal(one.log.topic)] == counts
        with pytest.raises(octopi.UnknownTopicError):
            await client.admin.count_messages("nothing")


async def test_a_drained_broker_leads_nothing(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        leader = (await replicated_topic(world, client)).leader
        assert leader is not None
        await client.admin.drain_broker(leader)
        cluster = await client.admin.describe_cluster()
        assert {one.broker: one.partitions_led for one in cluster.brokers}[leader] == 0
        assert cluster.partitions[0].leader not in {None, leader}
        assert leader in cluster.partitions[0].replicas
        with pytest.raises(octopi.RefusedError) as caught:
            await client.admin.drain_broker(77)
        assert caught.value.status is octopi.Status.INVALID_OPTION


async def test_a_broker_is_forgotten_when_it_is_gone_and_holds_nothing(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        place = await replicated_topic(world, client)
        await world.start_broker("ws://broker-4:7100")
        leaving = next(one for one in place.replicas if one != place.leader)
        address = {1: BROKER, 2: SECOND, 3: THIRD}[leaving]
        with pytest.raises(octopi.RefusedError, match=f"runs, at {address}"):
            await client.admin.remove_broker(leaving)
        await world.kill(address)
        await trio.testing.wait_all_tasks_blocked()  # the register has asked its address
        with pytest.raises(octopi.RefusedError, match="holds replicas of partitions ") as caught:
            await client.admin.remove_broker(leaving)
        assert caught.value.status is octopi.Status.BROKER_IN_USE
        await client.admin.move_replica(place.partition, leaving, 4)
        fault = world.net.fault(m.Done, "break before")
        await client.admin.remove_broker(leaving)
        assert fault.struck
        known = [one.broker for one in (await client.admin.describe_cluster()).brokers]
        assert known == sorted({1, 2, 3, 4} - {leaving})


async def test_partitions_are_added_once_even_if_the_answer_is_lost(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        before = (await client.admin.describe_cluster()).partition_count
        assert await client.admin.add_partitions(3) == before + 3
        fault = world.net.fault(m.Done, "break before")
        assert await client.admin.add_partitions(2) == before + 5
        assert fault.struck
        await client.create_topic("orders", partition_ids=[before + 4])


async def test_a_replica_moves_to_another_broker(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        place = await replicated_topic(world, client)
        await world.start_broker("ws://broker-4:7100")
        leaving = next(one for one in place.replicas if one != place.leader)
        await client.admin.move_replica(place.partition, leaving, 4)
        (moved,) = (await client.describe_topic("orders")).partitions
        assert sorted(moved.in_sync) == sorted({*place.replicas, 4} - {leaving})
        with pytest.raises(octopi.RefusedError) as caught:
            await client.admin.move_replica(place.partition, leaving, 4)
        assert caught.value.status is octopi.Status.INVALID_OPTION
        with pytest.raises(octopi.RefusedError) as caught:
            await client.admin.move_replica(7777, leaving, 4)
        assert caught.value.status is octopi.Status.UNKNOWN_PARTITION


async def test_a_move_goes_on_when_the_register_is_lost_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        place = await replicated_topic(world, client)
        await world.start_broker("ws://broker-4:7100")
        leaving = next(one for one in place.replicas if one != place.leader)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.admin.move_replica, place.partition, leaving, 4)
            await trio.testing.wait_all_tasks_blocked()
            world.net.cut(REGISTER)
        (moved,) = (await client.describe_topic("orders")).partitions
        assert sorted(moved.replicas) == sorted({*place.replicas, 4} - {leaving})
        assert 4 in moved.in_sync
        with trio.fail_after(5):  # whom the register lost may have left the in-sync set
            while sorted(moved.in_sync) != sorted(moved.replicas):
                await trio.sleep(0.1)
                (moved,) = (await client.describe_topic("orders")).partitions


async def test_a_move_that_was_made_before_its_answer_was_lost_is_no_error(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        place = await replicated_topic(world, client)
        await world.start_broker("ws://broker-4:7100")
        leaving = next(one for one in place.replicas if one != place.leader)
        await client.admin.move_replica(place.partition, leaving, 4)
        fault = world.net.fault(m.MoveReplica, "break before")
        await client.admin.move_replica(place.partition, leaving, 4)
        assert fault.struck


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.create_topic("t", -1),
        lambda client: client.create_topic("t", partition_ids=[0, -1]),
        lambda client: client.create_topic("t", retention=timedelta(seconds=-1)),
        lambda client: client.create_topic("t", retention_bytes=-1),
        lambda client: client.create_topic("t", segment_bytes=2**63),
        lambda client: client.create_topic("t", min_insync=-1),
        lambda client: client.admin.drain_broker(-1),
        lambda client: client.admin.remove_broker(-1),
        lambda client: client.admin.add_partitions(-1),
        lambda client: client.admin.move_replica(-1, 1, 2),
        lambda client: client.fetch("t", -1, partition=0),
    ],
)
async def test_an_invalid_number_is_refused_before_it_is_sent(
    ask: Callable[[octopi.Client], Awaitable[object]], autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        with pytest.raises(octopi.InvalidOptionError, match="it must be from 0 to"):
            await ask(client)
