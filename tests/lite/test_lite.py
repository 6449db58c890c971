"""Producers and groups of Octopi Lite beside nodes: what the source document tried by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from octopi import lite
from octopi.errors import ClosedError, HistoryLostError, InvalidOptionError
from octopi.limits import LITE_MEMBERS_MAX, RETENTION_CHECK_INTERVAL_S
from octopi.lite import consumer_group
from octopi.lite.numbers import number_at, padded
from tests.kit.world import REGISTER, World, running_world


@asynccontextmanager
async def producing() -> AsyncIterator[tuple[World, lite.LiteProducer]]:
    """A cluster in virtual time, and a producer of Lite."""
    async with (
        running_world() as world,
        lite.mount_producer(REGISTER, environment=world.environment()) as producer,
    ):
        yield world, producer


def grouped(world: World, members: int = 1) -> AbstractAsyncContextManager[lite.ConsumerGroup]:
    return lite.mount_consumer_group(REGISTER, members, environment=world.environment())


async def test_messages_are_numbered_in_each_partition_and_read_by_number(
    autojump_clock: MockClock,
) -> None:
    async with producing() as (world, producer):
        for number in range(5):
            assert await producer.add_message(0, b"a%d" % number) == number
        assert await producer.add_message(2, b"c0") == 0
        async with grouped(world, 2) as group:
            assert group.manifest == [[0, 2], [1]]
            found = await group.consume([0, 1, 2], 1, 3)
            assert found == {0: [padded(b"a%d" % one) for one in (1, 2, 3)], 1: [], 2: []}
            everything = await group.consume([0, 2], 0, 0)
            assert [len(one) for one in everything.values()] == [5, 1]
            assert await group.consume([0], 5, 1) == {0: []}
            assert await group.consume([0], 99, 1) == {0: []}


async def test_a_poll_returns_what_there_is_then_waits_then_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with (
        producing() as (world, producer),
        grouped(world, 3) as group,
        trio.open_nursery() as nursery,
    ):
        await producer.add_message(0, b"first")
        await producer.add_message(1, b"second")
        assert await group.poll(0) == [
            lite.ConsumerRecord(0, [padded(b"first")], 0),
            lite.ConsumerRecord(1, [padded(b"second")], 0),
        ]
        assert await group.poll(0.05) == []
        nursery.start_soon(producer.add_message, 1, b"third")
        assert await group.poll(30) == [lite.ConsumerRecord(1, [padded(b"third")], 1)]


async def test_a_poll_that_is_cancelled_loses_nothing(autojump_clock: MockClock) -> None:
    async with (
        producing() as (world, producer),
        grouped(world) as group,
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await group.poll(30)
        await producer.add_message(0, b"kept")
        [record] = await group.poll(0)
        assert record.messages == [padded(b"kept")]


async def test_what_retention_took_is_named_and_the_next_poll_goes_on_behind_it(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("lite", 1, retention_bytes=15_000, segment_bytes=5000)
        async with (
            lite.mount_producer(REGISTER, environment=world.environment()) as producer,
            grouped(world) as group,
        ):
            await producer.add_message(0, b"0")
            [first] = await group.poll(0)
            for number in range(1, 300):
                await producer.add_message(0, b"%d" % number)
            await trio.sleep(RETENTION_CHECK_INTERVAL_S * 2)
            with pytest.raises(HistoryLostError) as lost:
                await group.poll(0)
            assert number_at(lost.value.wanted) == first.last + 1
            oldest = number_at(lost.value.available_from)
            assert oldest > 200
            [record] = await group.poll(0)
            assert record.messages == [padded(b"%d" % one) for one in range(oldest, 300)]
            assert record.last == 299


async def test_a_poll_returns_a_bounded_number_of_messages_of_a_partition(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_group, "LITE_POLL_MESSAGES_MAX", 3)
    async with producing() as (world, producer), grouped(world) as group:
        for number in range(5):
            await producer.add_message(0, b"%d" % number)
        polls = [await group.poll(0) for _ in range(3)]
        assert [[len(one.messages) for one in records] for records in polls] == [[3], [2], []]


async def test_a_group_has_members_within_bounds(autojump_clock: MockClock) -> None:
    async with running_world() as world:
        for members in (0, LITE_MEMBERS_MAX + 1):
            with pytest.raises(InvalidOptionError, match="members"):
                async with grouped(world, members):
                    pass


async def test_partitions_that_do_not_exist_and_wrong_numbers_are_refused(
    autojump_clock: MockClock,
) -> None:
    async with (
        producing() as (world, producer),
        grouped(world) as group,
    ):
        for attempt in (
            lambda: producer.add_message(3, b""),
            lambda: producer.add_message(-1, b""),
            lambda: producer.get_leader_ip(3),
            lambda: group.consume([0, 3], 0, 1),
        ):
            with pytest.raises(lite.InvalidPartitionIdError, match="its ids are 0 to 2"):
                await attempt()
        for wrong in ((-1, 1), (0, -1)):
            with pytest.raises(InvalidOptionError):
                await group.consume([0], *wrong)
        with pytest.raises(InvalidOptionError, match="above 0"):
            await producer.add_message_timeout(0, b"", 0)


async def test_records_of_another_program_are_told_and_not_numbered(
    autojump_clock: MockClock,
) -> None:
    async with (
        producing() as (world, producer),
        world.client() as client,
        client.producer() as other,
        grouped(world) as group,
    ):
        await producer.add_message(0, b"ours")
        place = producer._topic.place(0)
        await other.send("lite", b"short", partition=place)
        with pytest.raises(lite.NotLiteError):
            await group.consume([0], 0, 0)
        with pytest.raises(lite.NotLiteError):
            await producer.add_message(0, b"behind it")
        assert await group.consume([1], 0, 0) == {1: []}


async def test_who_waits_less_than_an_election_takes_is_told_and_nothing_is_doubled(
    autojump_clock: MockClock,
) -> None:
    async with producing() as (world, producer):
        await producer.add_message(0, b"before")
        await world.kill()
        with pytest.raises(lite.LiteError) as refused:
            await producer.add_message_timeout(0, b"late", 0.2)
        assert isinstance(refused.value, lite.LeaderNotFoundError | lite.BrokerDisconnectError)
        await world.start_broker()
        assert await producer.add_message_timeout(0, b"after", 20) == 2
        async with grouped(world) as group:
            found = await group.consume([0], 0, 0)
        assert found == {0: [padded(one) for one in (b"before", b"late", b"after")]}


async def test_unmounting_twice_is_harmless_and_nothing_works_afterwards(
    autojump_clock: MockClock,
) -> None:
    async with (
        producing() as (world, producer),
        grouped(world) as group,
    ):
        for mounted in (producer, group):
            assert await mounted.unmount() is None
            assert await mounted.unmount() is None
        for attempt in (
            lambda: producer.add_message(0, b""),
            lambda: producer.get_leader_ip(0),
            lambda: group.consume([0], 0, 1),
            lambda: group.poll(0),
        ):
            with pytest.raises(ClosedError):
                await attempt()
