"""Programs that read a topic by other means, and keep the marks of a durable subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.identifiers import Offset, PartitionId
from octopi.position import Anchor, Place
from tests.kit.world import BROKER, REGISTER, World, running_world

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]


@asynccontextmanager
async def program(world: World, url: str) -> AsyncIterator[octopi.Client]:
    """A client whose connections can be struck by the url, which is also what it is called."""
    environment = world.environment(url=url)
    async with octopi.connect(REGISTER, name=url[5:], environment=environment) as client:
        yield client


async def send(client: octopi.Client, topic: str, count: int) -> dict[PartitionId, list[Place]]:
    """Messages on all partitions; where each one ends."""
    info = await client.describe_topic(topic)
    partitions = [PartitionId(one.partition) for one in info.partitions]
    async with client.producer() as producer:
        for number in range(count):
            for one in partitions:
                await producer.submit(topic, b"%d" % number, partition=one)
    places: dict[PartitionId, list[Place]] = {one: [] for one in partitions}
    async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
        async for message in consumer:
            anchor = consumer.position.places[message.partition].anchor
            places[message.partition].append(Place(message.next_offset, anchor))
    return places


async def marks(client: octopi.Client, topic: str, name: str) -> dict[int, int]:
    status = await client.admin.describe_subscription(topic, name)
    return {int(one.partition): int(one.mark) for one in status.logs}


def offsets(places: dict[PartitionId, Place]) -> dict[int, int]:
    return {int(partition): int(place.offset) for partition, place in places.items()}


async def test_marks_are_found_where_they_were_stored(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 3)
        ends = await send(client, "orders", 10)
        async with client.mark_keeper("orders", "billing", member="copier") as keeper:
            assert set(offsets(keeper.places).values()) == {0}
            assert keeper.losses == []
            fourth = {one: places[3] for one, places in ends.items()}
            assert await keeper.store(fourth) == []
            assert await marks(client, "orders", "billing") == offsets(fourth)
            second = {one: places[1] for one, places in ends.items()}
            assert await keeper.store(second) == []  # marks only go forward
            assert offsets(keeper.places) == offsets(fourth)
        async with client.mark_keeper("orders", "billing", member="copier") as keeper:
            assert keeper.places == fourth


async def test_a_new_subscription_begins_where_it_is_told_and_another_one_where_it_is(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 2)
        ends = {one: places[-1] for one, places in (await send(client, "orders", 3)).items()}
        async with client.mark_keeper("orders", "late", member="copier", start="latest") as keeper:
            assert offsets(keeper.places) == offsets(ends)
        await client.admin.create_subscription(
            "orders", "early", mode="failover", session_timeout_s=3
        )
        async with client.mark_keeper("orders", "early", member="copier", start="latest") as keeper:
            assert set(offsets(keeper.places).values()) == {0}


async def test_a_later_copy_replaces_the_earlier_one_which_is_told_who_that_is(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        program(world, "ws://first") as first,
        program(world, "ws://second") as second,
    ):
        await first.create_topic("orders", 2)
        ends = await send(first, "orders", 3)
        async with first.mark_keeper("orders", "billing", member="copier") as old:
            await old.store({one: places[0] for one, places in ends.items()})
            async with second.mark_keeper("orders", "billing", member="copier") as new:
                assert offsets(new.places) == {one: p[0].offset for one, p in ends.items()}
                with pytest.raises(octopi.MemberFencedError) as told:
                    await old.store({one: places[1] for one, places in ends.items()})
                assert "another program has joined the subscription billing" in str(told.value)
                assert "copier (second)" in str(told.value)
                assert "give each a subscription of its own" in str(told.value)
                await new.store({one: places[2] for one, places in ends.items()})


async def test_a_copy_that_was_cut_off_does_not_take_the_marks_back(
    autojump_clock: MockClock,
) -> None:
    async with (
        running_world() as world,
        program(world, "ws://first") as first,
        program(world, "ws://second") as second,
    ):
        await first.create_topic("orders", 2)
        ends = await send(first, "orders", 3)
        async with (
            first.mark_keeper("orders", "billing", member="copier") as old,
            AsyncExitStack() as stack,
        ):
            with world.net.hang("ws://first"):
                for link in world.net.links:
                    if link.owner == "ws://first":
                        link.cut()
                new = await stack.enter_async_context(
                    second.mark_keeper("orders", "billing", member="copier")
                )
                await new.store({one: places[1] for one, places in ends.items()})
            await trio.sleep(30)
            await new.store({one: places[2] for one, places in ends.items()})
            with pytest.raises(octopi.MemberFencedError, match=r"as the same member, copier \(sec"):
                await old.store({one: places[2] for one, places in ends.items()})


async def test_other_members_are_named_and_left_alone(autojump_clock: MockClock) -> None:
    async with (
        running_world() as world,
        program(world, "ws://first") as first,
        program(world, "ws://second") as second,
    ):
        await first.create_topic("orders", 2)
        ends = await send(first, "orders", 3)
        async with first.subscription("orders", "billing", mode="failover", member="ann") as orders:
            await trio.sleep(1)
            assert len(claims := orders.claims) == 2
            with pytest.raises(octopi.SubscriptionBusyError, match=r"the member ann \(first\)"):
                async with second.mark_keeper("orders", "billing", member="copier"):
                    pass
            assert orders.claims == claims
        await trio.sleep(11)  # she had a name, and may have come back
        async with (
            second.mark_keeper("orders", "billing", member="copier") as keeper,
            first.subscription("orders", "billing", mode="failover", member="ann"),
        ):
            await trio.sleep(1)
            with pytest.raises(octopi.MemberFencedError, match=r"the member ann \(first\)"):
                await keeper.store({one: places[2] for one, places in ends.items()})


async def test_after_a_reset_the_next_places_are_stored(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 2)
        ends = await send(client, "orders", 3)
        async with client.mark_keeper("orders", "billing", member="copier") as keeper:
            await keeper.store({one: places[1] for one, places in ends.items()})
            await client.admin.reset_subscription("orders", "billing", "earliest", force=True)
            last = {one: places[2] for one, places in ends.items()}
            assert await keeper.store(last) == []
            assert await marks(client, "orders", "billing") == offsets(last)


async def test_a_subscription_that_was_deleted_is_named(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        ends = await send(client, "orders", 1)
        async with client.mark_keeper("orders", "billing", member="copier") as keeper:
            await client.admin.delete_subscription("orders", "billing")
            with pytest.raises(octopi.UnknownSubscriptionError, match="billing"):
                await keeper.store({one: places[0] for one, places in ends.items()})


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
async def test_only_the_mode_failover_will_do(
    autojump_clock: MockClock, mode: Literal["exclusive", "shared"]
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await client.admin.create_subscription("orders", "billing", mode=mode)
        with pytest.raises(octopi.InvalidOptionError, match=f"has the mode {mode}"):
            async with client.mark_keeper("orders", "billing", member="copier"):
                pass


async def test_a_leader_that_dies_costs_no_mark(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders", 3)
        ends = await send(client, "orders", 3)
        async with client.mark_keeper("orders", "billing", member="copier") as keeper:
            await keeper.store({one: places[0] for one, places in ends.items()})
            (place, *_) = (await client.describe_topic("orders")).partitions
            await world.kill(place.leader_address)
            last = {one: places[2] for one, places in ends.items()}
            await keeper.store(last)
            assert await marks(client, "orders", "billing") == offsets(last)


async def test_without_a_leader_a_store_is_given_up(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client(request_timeout_s=5) as client:
        await client.create_topic("orders")
        ends = await send(client, "orders", 1)
        async with client.mark_keeper("orders", "billing", member="copier") as keeper:
            await world.kill(BROKER)
            began = trio.current_time()
            with pytest.raises(octopi.OctopiError, match="could not be stored within 5 s"):
                await keeper.store({one: places[0] for one, places in ends.items()})
            assert trio.current_time() - began == pytest.approx(5)
            await world.restart(BROKER)
            await keeper.store({one: places[0] for one, places in ends.items()})


async def test_a_place_in_a_lost_history_is_told_and_the_others_are_stored(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", 2)
        ends = await send(client, "orders", 3)
        one, other = ends
        async with client.mark_keeper("orders", "billing", member="copier") as keeper:
            lost = Place(Offset(ends[one][-1].offset + 500), ends[one][-1].anchor)
            assert lost.anchor != Anchor("")
            (fork,) = await keeper.store({one: lost, other: ends[other][1]})
            assert f"orders/{one}: the records that were read before" in str(fork)
            assert await marks(client, "orders", "billing") == {
                one: 0,
                other: ends[other][1].offset,
            }
            assert await keeper.store({one: ends[one][1]}) == []
            assert offsets(keeper.places)[one] == ends[one][1].offset
