"""The client: connecting, asking, trying again, and how its blocks end."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.background import background_tasks
from octopi.identifiers import SUBSCRIPTIONS_LOG, is_internal
from octopi.wire import messages as m
from tests.kit.world import BROKER, REGISTER, running_world, values


async def test_topics_are_created_described_listed_and_deleted(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        made = await client.create_topic(
            "orders",
            3,
            retention=timedelta(days=1),
            retention_bytes=10_000_000,
            segment_bytes=1_000_000,
            flush_before_ack=True,
            min_insync=2,
            hold=timedelta(hours=1),
            hold_bytes=20_000_000,
        )
        assert made.options == m.TopicOptions(
            86_400_000, 10_000_000, 1_000_000, True, 2, 3_600_000, 20_000_000
        )
        assert len({one.partition for one in made.partitions}) == 3
        assert await client.describe_topic("orders") == made
        await client.create_topic("another", partition_ids=[5, 2])
        assert [one.topic for one in await client.topics()] == ["another", "orders"]
        await client.delete_topic("orders")
        assert [one.topic for one in await client.topics()] == ["another"]
        with pytest.raises(octopi.UnknownTopicError):
            await client.delete_topic("orders")
        with pytest.raises(octopi.UnknownTopicError):
            await client.describe_topic("orders")
        assert (await client.describe_topic("orders", create=True)).topic == "orders"


async def test_a_long_list_of_topics_comes_in_pages(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        names = [f"topic-{number:04}" for number in range(1200)]
        for name in names:
            await client.create_topic(name)
        assert [one.topic for one in await client.topics()] == names
        assert world.net.count(m.TopicList) == 3
        logs = await client.admin.describe_logs()
        assert [one.log.topic for one in logs if not is_internal(one.log.topic)] == names


async def test_creating_an_existing_topic_is_an_error_unless_exist_ok_is_given(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        made = await client.create_topic("orders")
        with pytest.raises(octopi.TopicExistsError):
            await client.create_topic("orders")
        assert await client.create_topic("orders", 2, exist_ok=True) == made
        with pytest.raises(octopi.InvalidTopicError):
            await client.create_topic("no such/name")
        with pytest.raises(octopi.RefusedError) as caught:
            await client.create_topic("too-wide", 5000)
        assert caught.value.status is octopi.Status.INVALID_OPTION


async def test_creating_and_deleting_survive_a_lost_answer(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        world.net.fault(m.TopicDescription, "break before")
        await client.create_topic("orders", 2)
        fault = world.net.fault(m.Done, "break before")
        await client.delete_topic("orders")
        assert fault.struck
        assert await client.topics() == []


async def test_the_cluster_and_its_logs_are_described(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders", partition_ids=[1])
        await client.create_topic("bills", partition_ids=[2])
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"value")
        cluster = await client.admin.describe_cluster()
        assert [one.address for one in cluster.brokers] == [BROKER]
        assert cluster.topic_count == 2
        (mine,) = await client.admin.describe_logs("orders")
        assert (mine.address, mine.log.partition) == (BROKER, 1)
        assert mine.log.highwater == receipt.next_offset
        described = [one.log.topic for one in await client.admin.describe_logs()]
        assert described == ["bills", "orders", *[SUBSCRIPTIONS_LOG] * 2]


async def test_open_readings_are_described_those_that_are_farthest_behind_first(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client(name="here") as client:
        for topic, value in (("orders", b"x"), ("bills", b"x" * 100)):
            async with client.producer() as producer:
                await producer.send(topic, value)
        async with (
            client.consumer("orders", start="earliest"),
            client.consumer("bills", start="earliest"),
        ):
            await trio.sleep(1)
            found = await client.admin.describe_readings()
            assert [one.reading.topic for one in found] == ["bills", "orders"]
            assert {(one.address, one.reading.name) for one in found} == {(BROKER, "here")}
            [mine] = await client.admin.describe_readings("orders")
            assert mine.reading.lag_bytes == mine.reading.highwater > 0
        with pytest.raises(octopi.UnknownTopicError):
            await client.admin.describe_readings("nothing")


async def test_fetch_reads_once_and_waits_if_asked_to(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        async with client.producer() as producer:
            first = await producer.send("orders", b"0")
            partition = first.partition
            got = await client.fetch("orders", 0, partition=partition)
            assert [one.value for one in got.messages] == [b"0"]
            assert (got.log_start, got.highwater) == (0, first.next_offset)
            before = trio.current_time()
            end = first.next_offset
            got = await client.fetch("orders", end, partition=partition, wait_s=20)
            assert got.messages == []
            assert trio.current_time() - before == pytest.approx(20, abs=0.1)

            async def wait() -> None:
                nonlocal got
                got = await client.fetch("orders", end, partition=partition, wait_s=20)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(1)
                await producer.send("orders", b"1")
            assert [one.value for one in got.messages] == [b"1"]
        with pytest.raises(octopi.OffsetInsideRecordError):
            await client.fetch("orders", 1, partition=partition)
        with pytest.raises(octopi.RefusedError, match="no partition"):
            await client.fetch("orders", 0, partition=partition + 1)
        with pytest.raises(octopi.InvalidOptionError, match="offset already"):
            await client.find_offset("orders", 5, partition=partition)


async def test_an_error_about_unreachable_nodes_says_what_was_tried(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await world.kill(REGISTER)
        before = trio.current_time()
        tried = r"list topics: given up after 15 s and \d+ failed attempts; last: .*register:7000"
        with pytest.raises(octopi.UnreachableError, match=tried):
            await client.topics()
        assert trio.current_time() - before == pytest.approx(15, abs=0.1)


async def test_a_register_that_comes_back_in_time_is_found(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await client.create_topic("orders")
        await world.kill(REGISTER)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.topics)
            await trio.sleep(5)
            await world.start_register()


async def test_a_silent_register_is_given_up_for_another_attempt(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        world.net.fault(m.TopicList, "lose")
        before = trio.current_time()
        assert await client.topics() == []
        assert 7 < trio.current_time() - before < 10


async def test_the_second_server_is_asked_when_the_first_is_away(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        servers = ["ws://nobody:1", REGISTER]
        async with octopi.connect(servers, environment=world.environment()) as client:
            before = trio.current_time()
            assert await client.topics() == []
            assert trio.current_time() - before < 1


@pytest.mark.parametrize("servers", [[], "http://localhost:1", "localhost", "ws://localhost"])
def test_an_invalid_address_is_refused_before_anything_is_done(servers: str | list[str]) -> None:
    with pytest.raises(octopi.InvalidOptionError):
        octopi.connect(servers)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a" * 201, "201 bytes; the name of a connection has at most 200"),
        ("\u00e9" * 101, "202 bytes; the name of a connection has at most 200"),
        ("bill\ning", "it has a control character"),
        ("bill\x00ing", "it has a control character"),
        ("\u202egnillib", "it has a control character"),
        ("\ud800", "it has a control character"),
    ],
)
def test_a_connections_name_is_checked_by_the_client(name: str, fault: str) -> None:
    with pytest.raises(octopi.InvalidOptionError, match=fault):
        octopi.connect("ws://a:1", name=name)
    octopi.connect("ws://a:1", name="\u00e9" * 100)  # it fits


async def test_the_blocks_own_exception_comes_out_as_it_was_raised(
    autojump_clock: MockClock,
) -> None:
    async def fail() -> None:
        async with (
            world.client() as client,
            client.producer() as producer,
            client.consumer("orders"),
        ):
            await producer.send("orders", b"value")
            raise mine

    mine = ValueError("mine")
    async with running_world() as world:
        async with world.client() as client:
            await client.create_topic("orders")
        with pytest.raises(ValueError, match="mine") as caught:
            await fail()
        assert caught.value is mine


async def test_cancelling_a_block_ends_it_like_any_other_code(autojump_clock: MockClock) -> None:
    async with running_world() as world:
        with trio.move_on_after(3) as scope:
            async with world.client() as client:
                await client.create_topic("orders")
                async with client.producer() as producer, client.consumer("orders") as consumer:
                    await producer.submit("orders", b"value")
                    await anext(consumer)
                    try:
                        await anext(consumer)
                    except trio.Cancelled:
                        was_cancelled = True
                        raise
        assert scope.cancelled_caught
        assert was_cancelled
        async with world.client() as client:
            assert await values(client, "orders") == [b"value"]


async def test_a_client_is_closed_after_its_block(autojump_clock: MockClock) -> None:
    async with running_world() as world:
        async with world.client() as client:
            pass
        with pytest.raises(octopi.ClosedError):
            await client.topics()


async def test_a_failing_background_task_ends_the_block_with_its_exception() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def use() -> None:
        async with background_tasks() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()

    with pytest.raises(ZeroDivisionError):
        await use()


async def test_an_error_of_a_block_that_is_cancelled_meanwhile_is_raised_as_it_is() -> None:
    async def wait_within() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)

    async def use() -> None:
        with trio.CancelScope() as scope:
            async with background_tasks() as nursery:
                nursery.start_soon(wait_within)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                raise LookupError

    with pytest.raises(LookupError):
        await use()


async def test_two_simultaneous_errors_are_raised_together() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def use() -> None:
        async with background_tasks() as nursery:
            nursery.start_soon(fail)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError

    with pytest.raises(ExceptionGroup) as caught:
        await use()
    assert {type(one) for one in caught.value.exceptions} == {ZeroDivisionError, ValueError}


async def test_callers_share_one_connection_attempt_and_its_failure(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client(request_timeout_s=0.001) as client:
        world.net.unreachable.add(REGISTER)
        before = world.net.connect_count

        async def ask() -> None:
            with pytest.raises(octopi.UnreachableError):
                await client.topics()

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
        assert world.net.connect_count - before < 10


async def test_a_cancelled_caller_leaves_the_connection_to_the_others(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.topics)
            with trio.CancelScope() as scope:
                scope.cancel()
                await client.topics()
        assert scope.cancelled_caught
        assert await client.topics() == []
