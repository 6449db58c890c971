"""Records that were read and then lost: a consumer is told, and never goes on as if nothing had
happened.

One broker, whose power fails before it flushed ten messages that were read; then it gets ten
others of the same sizes, so that every offset is a record's start again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import octopi
from octopi.testing import Cluster, run

HOST = "broker-1"
COUNT = 10

Test = Callable[[Cluster, octopi.Client], Awaitable[None]]


def with_one_replica(test: Test) -> None:
    """Run *test* where a failure of power takes all that was not flushed."""

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.create_topic("orders", 1)
            await send(client, "first")
            await cluster.sleep(5)  # it is flushed
            await test(cluster, client)

    run(main, seed=1, brokers=1, oracle=False)


async def send(client: octopi.Client, name: str) -> list[octopi.Receipt]:
    """Send ten messages of one size, and return their receipts."""
    values = [f"{name} {number}".encode().ljust(20) for number in range(COUNT)]
    async with client.producer() as producer:
        return [await producer.send("orders", value) for value in values]


async def lose_the_tail(cluster: Cluster, client: octopi.Client) -> octopi.Receipt:
    """Have the second ten messages forgotten, and ten others in their place; return the receipt
    of the first of those."""
    cluster._process(HOST, "cut the power of").host.lose_power()
    assert cluster.restart(HOST)
    return (await send(client, "third"))[0]


async def read(consumer: octopi.Consumer, count: int = COUNT) -> list[str]:
    """The texts of the next *count* messages."""
    return [(await anext(consumer)).value.decode().split()[0] for _ in range(count)]


def test_a_consumer_that_read_lost_records_is_told_when_it_goes_on() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        async with client.consumer("orders", start="earliest") as consumer:
            assert await read(consumer) == ["first"] * COUNT
            lost = (await send(client, "second"))[-1]
            assert await read(consumer) == ["second"] * COUNT
            refound = await lose_the_tail(cluster, client)
            assert refound.offset < lost.next_offset
            await send(client, "fourth")
            error = await fork_of(consumer)
        assert (error.topic, error.partition) == ("orders", lost.partition)
        assert (error.offset, error.read_until) == (refound.offset, lost.next_offset)

    with_one_replica(test)


def test_a_stored_position_behind_lost_records_is_refused() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        lost = (await send(client, "second"))[-1]
        async with client.consumer("orders", start="earliest") as consumer:
            await read(consumer, 2 * COUNT)
            token = str(consumer.position)
        refound = await lose_the_tail(cluster, client)
        await send(client, "fourth")
        async with client.consumer("orders", start=token) as consumer:
            error = await fork_of(consumer)
        assert (error.offset, error.read_until) == (refound.offset, lost.next_offset)

    with_one_replica(test)


def test_a_position_behind_the_end_of_a_shorter_log_is_refused_as_well() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        lost = (await send(client, "second"))[-1]
        async with client.consumer("orders", start="earliest") as consumer:
            await read(consumer, 2 * COUNT)
            token = str(consumer.position)
            cluster._process(HOST, "cut the power of").host.lose_power()
            assert cluster.restart(HOST)
            error = await fork_of(consumer)
            assert error.offset is not None
            assert error.offset < lost.offset
            assert error.read_until == lost.next_offset
        async with client.consumer("orders", start=token) as again:
            assert (await fork_of(again)).offset == error.offset

    with_one_replica(test)


def test_a_consumer_that_resumes_after_a_fork_reads_the_new_records_and_tells_the_range() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        async with client.consumer("orders", start="earliest", on_fork="resume") as consumer:
            lost = (await send(client, "second"))[-1]
            assert await read(consumer, 2 * COUNT) == ["first"] * COUNT + ["second"] * COUNT
            refound = await lose_the_tail(cluster, client)
            await send(client, "third")  # and again, so that there are more
            await cluster.sleep(1)
            assert consumer.forks == []
            assert await read(consumer, 2 * COUNT) == ["third"] * 2 * COUNT
            (fork,) = consumer.forks
            assert (fork.offset, fork.read_until) == (refound.offset, lost.next_offset)
            assert consumer.gaps == []
            await send(client, "fourth")
            assert await read(consumer) == ["fourth"] * COUNT
            token = str(consumer.position)
        async with client.consumer("orders", start=token) as consumer:
            await send(client, "fifth")
            assert await read(consumer) == ["fifth"] * COUNT
        assert len(consumer.forks) == 0

    with_one_replica(test)


def test_batches_that_were_not_looked_at_count_as_read_before_a_fork() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        consumers = client.consumer("orders", start="earliest", on_fork="resume")
        async with consumers as consumer:
            lost = (await send(client, "second"))[-1]
            while consumer.position.offsets[lost.partition] < lost.next_offset:
                await consumer.next_batch()
            refound = await lose_the_tail(cluster, client)
            batch = await consumer.next_batch()
            assert batch is not None
            (fork,) = consumer.forks
            assert (fork.offset, fork.read_until) == (refound.offset, lost.next_offset)
            assert batch.offset == refound.offset
            assert consumer.position.offsets == {batch.partition: batch.next_offset}
            assert {one.split()[0] for one in batch.values()} == {b"third"}

    with_one_replica(test)


def test_a_consumer_of_several_topics_resumes_in_the_topic_that_lost_records() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        await client.create_topic("others", 1)
        async with client.consumer(
            ["or*", "others"], start="earliest", on_fork="resume"
        ) as consumer:

            async def read_topics(count: int) -> list[str]:
                messages = [await anext(consumer) for _ in range(count)]
                return [one.value.decode().split()[0] for one in messages]

            lost = (await send(client, "second"))[-1]
            assert await read_topics(2 * COUNT) == ["first"] * COUNT + ["second"] * COUNT
            refound = await lose_the_tail(cluster, client)
            assert await read_topics(COUNT) == ["third"] * COUNT
            (fork,) = consumer.forks
            assert fork.topic == "orders"
            assert (fork.offset, fork.read_until) == (refound.offset, lost.next_offset)
            token = str(consumer.positions)
        async with client.consumer(["or*", "others"], start=token) as consumer:
            await send(client, "fourth")
            assert await read_topics(COUNT) == ["fourth"] * COUNT

    with_one_replica(test)


def test_messages_received_before_a_fork_are_delivered_before_its_error() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        async with client.consumer("orders", start="earliest", on_fork="resume") as consumer:
            assert await read(consumer) == ["first"] * COUNT
            lost = (await send(client, "second"))[-1]
            assert await read(consumer, 3) == ["second"] * 3
            await cluster.sleep(0.1)
            refound = await lose_the_tail(cluster, client)
            await cluster.sleep(5)
            assert await read(consumer, COUNT - 3) == ["second"] * (COUNT - 3)
            assert consumer.forks == []
            assert consumer.position.offsets[lost.partition] == lost.next_offset
            assert await read(consumer) == ["third"] * COUNT
            assert [one.offset for one in consumer.forks] == [refound.offset]

    with_one_replica(test)


def test_a_consumer_that_began_at_the_log_end_is_told_of_a_fork() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        await send(client, "second")
        async with client.consumer("orders", start="latest") as consumer:
            await cluster.sleep(0.1)
            token = str(consumer.position)
            refound = await lose_the_tail(cluster, client)
            await send(client, "fourth")
            assert (await fork_of(consumer)).offset == refound.offset
        async with client.consumer("orders", start=token) as consumer:
            assert (await fork_of(consumer)).offset == refound.offset

    with_one_replica(test)


def test_a_fetch_with_an_anchor_is_refused() -> None:
    async def test(cluster: Cluster, client: octopi.Client) -> None:
        first = (await send(client, "second"))[0]
        place = (first.next_offset, first.partition)
        found = await client.fetch("orders", first.offset, partition=first.partition, bytes_max=1)
        assert [one.offset for one in found.messages] == [first.offset]
        assert found.anchor
        refound = await lose_the_tail(cluster, client)
        with pytest.raises(octopi.HistoryForkedError) as caught:
            await client.fetch("orders", place[0], partition=place[1], anchor=found.anchor)
        assert (caught.value.offset, caught.value.read_until) == (refound.offset, place[0])

    with_one_replica(test)


def test_a_position_in_a_lost_epoch_goes_back_to_where_the_histories_agree() -> None:
    """The leader of the lost epoch had not heard of the second half of what this log has."""

    async def test(cluster: Cluster, client: octopi.Client) -> None:
        kept = await send(client, "second")
        await cluster.sleep(5)  # it is flushed
        await lose_the_tail(cluster, client)
        third = await lose_the_tail(cluster, client)
        lost_epoch, began = kept[0].epoch + 1, kept[COUNT // 2].offset
        assert third.epoch > lost_epoch
        topic = await client.describe_topic("orders")
        anchor = f"{lost_epoch}-{began}.{kept[0].epoch}-0"
        place = f"{third.partition}={third.next_offset}~{anchor}"
        token = f"v1:orders@{topic.topic_id}:{place}"
        async with client.consumer("orders", start=token, on_fork="resume") as consumer:
            assert await read(consumer) == ["second"] * (COUNT // 2) + ["third"] * (COUNT // 2)
            (fork,) = consumer.forks
            assert (fork.offset, fork.read_until) == (began, third.next_offset)

    with_one_replica(test)


async def fork_of(consumer: octopi.Consumer) -> octopi.HistoryForkedError:
    """The error that has to come, before any other message."""
    with pytest.raises(octopi.HistoryForkedError, match="lost after they were read") as caught:
        await anext(consumer)
    return caught.value
