"""Messages go in on one side and come out on the other, whoever sends and reads."""

from pathlib import Path

import pytest

import octopi
from tests.kit.named_clusters import Deciders, NamedBrokers, each_way, local_cluster
from tests.kit.replicas import identical, same
from tests.kit.traffic import Producing, traffic


async def send(cluster: NamedBrokers, topic: str, *names: str, turns: int = 1) -> list[Producing]:
    """Producers that send in turns, each a few messages at a time."""
    producing = [Producing(name) for name in names]
    async with octopi.connect(cluster.url) as client, client.producer() as producer:
        for _ in range(turns):
            for one in producing:
                await one.burst(producer, topic)
    return producing


@each_way
async def test_one_producer_one_consumer_and_one_broker_see_the_same_messages(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers=1, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders") as flow:
            await flow.progress(200)
        await flow.check_replicas(cluster.data_dirs, replica_count=1)


@each_way
async def test_a_leader_without_followers_stores_what_it_acknowledges(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers=1, deciders=deciders) as cluster:
        await cluster.create("orders")
        (sent,) = await send(cluster, "orders", "alice", turns=5)
        partition = sent.receipts[0].partition
        held = same("orders", partition, cluster.data_dirs, replica_count=1)
        assert [one.value for one in held] == [sent.value(number) for number in range(40)]
        assert [one.offset for one in held] == [receipt.offset for receipt in sent.receipts]


@pytest.mark.parametrize("brokers", [2, 3])
@each_way
async def test_followers_store_what_the_leader_stores(
    tmp_path: Path, brokers: int, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers, deciders=deciders) as cluster:
        await cluster.create("orders")
        (sent,) = await send(cluster, "orders", "alice", turns=5)
        ((held),) = (await identical(cluster.url, "orders", cluster.data_dirs, brokers)).values()
        assert [one.value for one in held] == [sent.value(number) for number in range(40)]


@each_way
async def test_many_producers_many_consumers_and_many_brokers_agree(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers=4, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=4, consumers=4, partitions=4) as flow:
            await flow.progress(400)
        await flow.check_replicas(cluster.data_dirs, replica_count=3)


@each_way
async def test_alternating_producers_are_stored_in_the_order_of_their_turns(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        await cluster.create("orders")
        alice, bob = await send(cluster, "orders", "alice", "bob", turns=4)
        (held,) = (await identical(cluster.url, "orders", cluster.data_dirs, 3)).values()
        turns = [range(turn * 8, turn * 8 + 8) for turn in range(4)]
        assert [one.value for one in held] == [
            one.value(number) for turn in turns for one in (alice, bob) for number in turn
        ]


@each_way
async def test_concurrent_producers_each_keep_their_order(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=5) as flow:
            await flow.progress(300)
        await flow.check_replicas(cluster.data_dirs, replica_count=3)


@each_way
async def test_topics_written_one_after_another_stay_apart(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        topics = ["orders", "clicks", "visits"]
        sent = {}
        for topic in topics:
            await cluster.create(topic)
            (sent[topic],) = await send(cluster, topic, f"{topic}-producer", turns=3)
        for topic in topics:
            (held,) = (await identical(cluster.url, topic, cluster.data_dirs, 3)).values()
            assert [one.value for one in held] == [sent[topic].value(n) for n in range(24)]


@each_way
async def test_topics_written_at_the_same_time_stay_apart(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        async with (
            traffic(cluster.url, "orders", producers=2) as orders,
            traffic(cluster.url, "clicks", producers=2, partitions=3) as clicks,
            traffic(cluster.url, "visits") as visits,
        ):
            for flow in (orders, clicks, visits):
                await flow.progress(100)
        for flow in (orders, clicks, visits):
            await flow.check_replicas(cluster.data_dirs, replica_count=3)


@each_way
async def test_consumers_that_leave_and_come_back_go_on_where_they_were(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=4, partitions=2) as flow:
            positions: list[octopi.Position | None] = [None] * 3
            seen: list[list[tuple[int, int, int]]] = [[] for _ in positions]
            for _ in range(4):
                await flow.progress(50)
                for number, position in enumerate(positions):
                    async with (
                        octopi.connect(cluster.url) as client,
                        client.consumer(
                            "orders", start=position or "earliest", stop_at_end=True
                        ) as consumer,
                    ):
                        async for message in consumer:
                            seen[number].append(
                                (message.partition, message.offset, message.next_offset)
                            )
                        positions[number] = consumer.position
        for places in seen:
            assert len(places) >= 150
            for partition in {partition for partition, *_ in places}:
                spans = [(start, end) for one, start, end in places if one == partition]
                assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
