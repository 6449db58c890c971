"""Brokers join: the register's tables say who is where; clients are sent to fitting ones."""

from collections import Counter
from pathlib import Path

import pytest

import octopi
from octopi.identifiers import BrokerId
from tests.kit.named_clusters import (
    Deciders,
    LocalCluster,
    each_way,
    each_with_registers,
    local_cluster,
)


async def described(cluster: LocalCluster, topic: str, partitions: int) -> octopi.TopicInfo:
    await cluster.create(topic, partitions)
    async with octopi.connect(cluster.url) as client:
        return await client.describe_topic(topic)


async def check_tables(cluster: LocalCluster, info: octopi.TopicInfo, partitions: int) -> None:
    """What the register tells is what was started: every broker once, live, at its address;
    every partition on as many of them as there can be, spread evenly."""
    count = len(cluster.names)
    async with octopi.connect(cluster.url) as client:
        table = await client.admin.describe_cluster()
    addresses = {number: cluster.address(f"broker-{number}") for number in range(1, count + 1)}
    assert {one.broker: one.address for one in table.brokers} == addresses
    assert all(one.live and one.incarnation == 1 for one in table.brokers)
    assert [one.partition for one in table.partitions] == sorted(
        one.partition for one in info.partitions
    )
    assert len(info.partitions) == len(table.partitions) == partitions
    for place in info.partitions:
        assert place.epoch == 1
        assert place.leader in place.replicas
        assert place.leader_address == addresses[place.leader]
        assert len(set(place.replicas)) == min(3, count)
        assert place.in_sync == sorted(place.replicas)
        assert sorted(place.readers) == sorted(addresses[one] for one in place.in_sync)
    led = Counter(place.leader for place in info.partitions)
    assert {one.broker: one.partitions_led for one in table.brokers} == {
        number: led[BrokerId(number)] for number in addresses
    }
    held = Counter(broker for place in info.partitions for broker in place.replicas)
    for counts in (led, held):
        most = max(counts.values())
        assert most - min(counts[BrokerId(number)] for number in addresses) <= 1


@each_with_registers
async def test_a_single_broker_registers_and_leads_all_partitions(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers=1, deciders=deciders) as cluster:
        await check_tables(cluster, await described(cluster, "orders", 1), 1)


@pytest.mark.parametrize("brokers", [2, 3, 5])
@each_with_registers
async def test_brokers_register_for_one_partition(
    tmp_path: Path, brokers: int, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers, deciders=deciders) as cluster:
        await check_tables(cluster, await described(cluster, "orders", 1), 1)


@pytest.mark.parametrize(("brokers", "partitions"), [(2, 4), (3, 8), (5, 7)])
@each_with_registers
async def test_brokers_register_for_several_partitions(
    tmp_path: Path, brokers: int, partitions: int, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers, deciders=deciders) as cluster:
        info = await described(cluster, "orders", partitions)
        await check_tables(cluster, info, partitions)


@pytest.mark.parametrize(
    ("brokers", "partitions"),
    [(1, 1), (3, 1), (4, 6)],
    ids=["one broker, one partition", "brokers, one partition", "brokers and partitions"],
)
async def test_consumers_are_sent_to_live_in_sync_brokers_spread_evenly(
    tmp_path: Path, brokers: int, partitions: int
) -> None:
    async with local_cluster(tmp_path, brokers) as cluster:
        await described(cluster, "orders", partitions)
        asked = 12
        first: list[Counter[str]] = [Counter() for _ in range(partitions)]
        async with octopi.connect(cluster.url) as client:
            for _ in range(asked):
                info = await client.describe_topic("orders")
                for place, counts in zip(info.partitions, first, strict=True):
                    counts[place.readers[0]] += 1
        for place, counts in zip(info.partitions, first, strict=True):
            in_sync = {cluster.address(f"broker-{number}") for number in place.in_sync}
            assert counts.keys() == in_sync, "each gets its share of consumers, nobody else"
            assert max(counts.values()) - min(counts.values()) <= 1


@each_way
async def test_no_consumer_is_sent_to_a_broker_that_is_away(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers=3, deciders=deciders) as cluster:
        await described(cluster, "orders", 1)
        (away, _) = await cluster.followers("orders")
        address = cluster.address(away)
        await cluster.kill(away)
        async with octopi.connect(cluster.url) as client:
            await cluster.in_sync("orders", 2)
            for _ in range(6):
                (place,) = (await client.describe_topic("orders")).partitions
                assert len(place.readers) == 2
                assert address not in place.readers
