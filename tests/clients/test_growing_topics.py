"""Topics get other partitions while producers of the library write to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.errors import NotReadyError, Status
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import decode
from octopi.roles.register.generations import Generations
from octopi.wire import messages as m
from tests.kit.world import BROKER, World, connection, describe, running_world

Stored = list[tuple[int, bytes | None, bytes]]
"""Offset, key and value of each message of a log."""


@asynccontextmanager
async def topic_on(world: World, *partitions: int) -> AsyncIterator[octopi.Client]:
    async with world.client() as client:
        await client.admin.add_partitions(8)
        await client.create_topic("orders", partition_ids=list(partitions))
        yield client


async def stored(world: World, topic: str = "orders") -> dict[int, Stored]:
    """What each log of the topic holds."""
    logs: dict[int, Stored] = {}
    info = await describe(world, topic)
    async with connection(world, BROKER) as broker:
        for place in [*info.partitions, *info.sealed_partitions]:
            partition = PartitionId(place.partition)
            log, at, highwater = logs.setdefault(partition, []), Offset(0), 1
            while at < highwater:
                question = m.Fetch(broker.next_request(), topic, partition, at, 10**6, 0)
                found = await broker.request(question, m.Fetched, 5)
                highwater = found.highwater
                for one in decode(found.records, at, TopicName(topic), partition):
                    log.append((one.offset, one.key, one.value))
                    at = one.next_offset
    return logs


async def in_order(world: World, key: bytes) -> list[bytes]:
    """The values of a key, as a consumer hands them out that goes by generations."""
    logs, info = await stored(world), await describe(world, "orders")
    values: list[bytes] = []
    position: dict[int, int] = {}
    for generation in info.generations:
        ends = generation.sealed or [Offset(2**62)] * len(generation.partitions)
        for partition, end in zip(generation.partitions, ends, strict=True):
            begin, position[partition] = position.get(partition, 0), end
            values += [
                value
                for offset, one, value in logs.get(partition, [])
                if one == key and begin <= offset < end
            ]
    return values


KEYS = [b"key-%d" % number for number in range(12)]


async def test_messages_that_wait_go_where_their_keys_choose_when_a_topic_has_grown(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        async with client.producer(linger_s=5.0) as producer:
            first = [await producer.send("orders", b"0", key=key) for key in KEYS]
            pending = [await producer.submit("orders", b"1", key=key) for key in KEYS]
            info = await client.admin.grow_topic("orders", 4)
            assert [one.number for one in info.generations] == [1, 2]
            pending += [await producer.submit("orders", b"2", key=key) for key in KEYS]
            receipts = [await one.receipt() for one in pending]
        assert {one.partition for one in first} == {0}
        assert {one.partition for one in receipts} == {one.partition for one in info.partitions}
        logs = await stored(world)
        for number, receipt in enumerate(receipts):
            value = b"%d" % (1 + number // len(KEYS))
            assert (receipt.offset, KEYS[number % len(KEYS)], value) in logs[receipt.partition]
        for key in KEYS:
            assert await in_order(world, key) == [b"0", b"1", b"2"]
        assert sum(map(len, logs.values())) == 3 * len(KEYS)


async def test_what_was_stored_without_a_receipt_stays_where_it_is(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        async with client.producer() as producer:
            lost = world.net.fault(m.Produced, "break before")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: producer.send("orders", b"0", key=b"key"))
                await trio.sleep(0.2)
                assert lost.struck
                await client.admin.move_topic("orders", 5)
            second = await producer.send("orders", b"1", key=b"key")
        assert second.partition == 5
        logs = await stored(world)
        assert [value for _, _, value in logs[0]] == [b"0"]
        assert await in_order(world, b"key") == [b"0", b"1"]


@pytest.mark.parametrize("name", [None, "shop"])
async def test_producers_write_on_while_a_topic_grows_again_and_again(
    name: str | None, autojump_clock: MockClock
) -> None:
    async with running_world() as world, topic_on(world, 0, 1) as client:
        topics = ["orders"] if name else []
        async with (
            client.producer(name=name, topics=topics, linger_s=0.0) as producer,
            trio.open_nursery() as nursery,
        ):

            async def write(key: bytes) -> None:
                for number in range(60):
                    await producer.submit("orders", b"%d" % number, key=key)
                    await trio.sleep(0.01)

            for key in KEYS:
                nursery.start_soon(write, key)
            for count in (3, 4, 8):
                await trio.sleep(0.1)
                await client.admin.grow_topic("orders", count)
        for key in KEYS:
            assert await in_order(world, key) == [b"%d" % number for number in range(60)]
        assert producer.acknowledged_count == 60 * len(KEYS)


async def test_a_message_for_a_partition_that_is_gone_is_refused_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        async with client.producer(linger_s=5.0) as producer:
            await producer.send("orders", b"0", partition=0)
            pinned = await producer.submit("orders", b"1", key=b"key", partition=0)
            await client.admin.move_topic("orders", 5)
            free = await producer.submit("orders", b"2", key=b"key")  # by the former list
            with pytest.raises(octopi.NotDeliveredError, match="no more messages in partition 0"):
                await pinned.receipt()
            assert (await free.receipt()).partition == 5
            with pytest.raises(octopi.RefusedError, match="got other partitions, 5;") as refused:
                await producer.submit("orders", b"3", partition=0)
            assert refused.value.status is Status.UNKNOWN_PARTITION
        assert [value for _, _, value in (await stored(world))[5]] == [b"2"]


async def test_messages_without_keys_and_to_named_partitions_go_on_when_a_topic_has_grown(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        async with client.producer(linger_s=5.0) as producer:
            await producer.send("orders", b"0")
            await producer.submit_many("orders", [b"a", b"b"])
            await producer.submit_many("orders", [b"c", b"d"], partition=0)
            await client.admin.grow_topic("orders", 3)
            await producer.submit_many("orders", [b"e"], partition=0)
        logs = await stored(world)
        assert [value for _, _, value in logs[0] if value in b"cde"] == [b"c", b"d", b"e"]
        assert sorted(value for log in logs.values() for _, _, value in log) == [
            b"0", b"a", b"b", b"c", b"d", b"e"
        ]  # fmt: skip


async def test_a_condition_counts_in_the_log_that_a_key_still_has(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        async with client.producer() as producer:
            end = 0
            for key in KEYS:
                end = (await producer.send("orders", b"0", key=key, expected_end=end)).next_offset
            info = await client.admin.grow_topic("orders", 2)
            outcomes: list[int] = []
            for key in KEYS:
                with suppress(octopi.ConditionFailedError):
                    receipt = await producer.send("orders", b"1", key=key, expected_end=end)
                    assert receipt.offset == end
                    end = receipt.next_offset
                    outcomes.append(receipt.partition)
                    continue
                outcomes.append(-1)
        assert set(outcomes) == {0, -1}
        logs = await stored(world)
        assert logs[info.partitions[1].partition] == []


async def test_a_batch_whose_time_is_up_while_the_topic_is_sealed_is_reported(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        release = trio.Event()
        original = Generations._advanced

        async def held(self: Generations, *arguments: object) -> None:
            if arguments[-1] == "in_force":
                await release.wait()
            await original(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Generations, "_advanced", held)
        async with client.producer(delivery_timeout_s=3.0) as producer:
            await producer.send("orders", b"0", key=b"key")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.admin.grow_topic, "orders", 2)
                await trio.sleep(1)
                began_at = trio.current_time()
                receipt = await producer.send("orders", b"1", key=b"key")
                assert trio.current_time() - began_at < 3
                assert receipt.partition in (0, 1, 2, 3, 4, 5, 6, 7)
                release.set()
            assert await in_order(world, b"key") == [b"0", b"1"]


# --- orders ------------------------------------------------------------------------------------


async def test_an_order_that_was_carried_out_before_its_answer_was_lost_is_no_error(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        fault = world.net.fault(m.TopicDescription, "break before", skip=0)
        info = await client.admin.grow_topic("orders", 4)
        assert fault.struck
        assert [one.number for one in info.generations] == [1, 2]
        fault = world.net.fault(m.GrowTopic, "break before")
        await client.admin.grow_topic("orders", 5)
        assert fault.struck
        assert len((await client.describe_topic("orders")).partitions) == 5


@pytest.mark.parametrize(
    ("order", "status", "text"),
    [
        (lambda admin: admin.grow_topic("orders", 1), Status.INVALID_OPTION, "not to 1"),
        (lambda admin: admin.grow_topic("orders", 500), Status.INVALID_OPTION, "partitions add"),
        (lambda admin: admin.grow_topic("other", 2), Status.UNKNOWN_TOPIC, "no topic"),
        (lambda admin: admin.move_topic("orders", 999), Status.UNKNOWN_PARTITION, "partition 999"),
        (lambda admin: admin.move_topic("orders", 0), Status.INVALID_OPTION, "no other partitions"),
    ],
)
async def test_what_can_not_be_done_is_refused_with_the_reason(
    order: Callable[[octopi.Admin], Awaitable[object]],
    status: Status,
    text: str,
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        with pytest.raises(octopi.RefusedError, match=text) as refused:
            await order(client.admin)
        assert refused.value.status is status
        assert (await client.describe_topic("orders")).generations == []


async def test_an_order_that_was_cancelled_is_not_given_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world() as world, topic_on(world, 0) as client:
        orders = 0

        async def never(self: Generations, *arguments: object) -> None:
            nonlocal orders
            orders += 1

        monkeypatch.setattr(Generations, "_seal", never)
        async with client.producer() as producer, trio.open_nursery() as nursery:

            async def order() -> None:
                with pytest.raises(NotReadyError, match="keeps its partitions"):
                    await client.admin.grow_topic("orders", 2)

            nursery.start_soon(order)
            await trio.sleep(1)
            await producer.send("orders", b"0", key=b"key")
        assert orders == 1
        assert 20 <= trio.current_time() < 30
        async with client.producer() as producer:
            assert (await producer.send("orders", b"1", key=b"key")).partition == 0


# --- pipes -------------------------------------------------------------------------------------


async def bill(pipe: octopi.Pipe, until: int, at: Callable[[int], Awaitable[None]]) -> None:
    """Send two results of each message, up to that of number *until*; *at* is called before."""
    async for order in pipe:
        number = int(order.value)
        await at(number)
        for index in range(2):
            await pipe.send(b"%d.%d" % (number, index), key=b"key")
        if number == until:
            return


@pytest.mark.parametrize("is_killed", [False, True])
async def test_the_output_of_a_pipe_moves_and_grows_and_gets_each_result_once(
    is_killed: bool, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await client.admin.add_partitions(8)
        await client.create_topic("orders", partition_ids=[1])
        await client.create_topic("invoices", partition_ids=[0])
        async with client.producer() as producer:
            for number in range(60):
                await producer.submit("orders", b"%d" % number)

        async def at(number: int) -> None:
            if number == 10:
                await client.admin.move_topic("invoices", 5)
            if number == 20:
                await client.admin.grow_topic("invoices", 3)
            if number % 7 == 0 and is_killed:
                await world.restart()

        for until in (4, 29, 59):
            async with client.pipe("orders", "billing", into="invoices", batch_bytes=1) as pipe:
                await bill(pipe, until, at)
        logs = await stored(world, "invoices")
        assert [value for _, _, value in [*logs[0], *logs[5]]] == [
            b"%d.%d" % (number, index) for number in range(60) for index in range(2)
        ]
        assert logs[0]
        assert sum(map(len, logs.values())) == 120


async def test_a_pipe_that_is_opened_when_its_output_has_moved_goes_on_behind_the_last_result(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await client.admin.add_partitions(8)
        await client.create_topic("orders", partition_ids=[1])
        await client.create_topic("invoices", partition_ids=[0])
        async with client.producer() as producer:
            for number in range(20):
                await producer.submit("orders", b"%d" % number)

        async def nothing(number: int) -> None:
            pass

        async with client.pipe("orders", "billing", into="invoices") as pipe:
            await bill(pipe, 9, nothing)
            # Stored behind this mark, which the next one begins at, is the last result.
            lost = world.net.fault(m.SetMark, "lose", times=1000)
        lost.times = 0
        await client.admin.move_topic("invoices", 5)
        await client.admin.move_topic("invoices", 6)
        async with client.pipe("orders", "billing", into="invoices") as pipe:
            await bill(pipe, 19, nothing)
        logs = await stored(world, "invoices")
        assert [value for _, _, value in [*logs[0], *logs[5], *logs[6]]] == [
            b"%d.%d" % (number, index) for number in range(20) for index in range(2)
        ]
