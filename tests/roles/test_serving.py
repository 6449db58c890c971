"""Brokers report which replicas serve, partition by partition, and report it again: a disk failure
that is over keeps a broker from nothing, and a replica that takes no records does not lead while
another one could."""

import errno
from pathlib import Path

import trio

import octopi
from octopi.wire import messages as m
from tests.kit.cluster import describe, eventually, running_cluster
from tests.kit.disk import MemoryDisk
from tests.roles.test_handing_over import Member, members


async def leads(client: octopi.Client, topic: str) -> int | None:
    """The leader of the topic's first partition, if there is one."""
    return (await client.describe_topic(topic)).partitions[0].leader


async def led_by_another(client: octopi.Client, topic: str, broker: int | None) -> None:
    """Wait until another broker than *broker* leads the topic's first partition."""
    with trio.fail_after(20):
        while await leads(client, topic) in {None, broker}:  # noqa: ASYNC110
            await trio.sleep(0.02)  # nothing announces it to clients


async def test_a_broker_whose_first_orders_failed_serves_when_its_disk_has_space_again(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        node = await cluster.start_broker("broker-1", disk=disk)
        await client.create_topic("orders", 5)
        await cluster.stop(node)
        disk.fail(errno.ENOSPC, "replace_file", path_end="/partitions", times=3)
        disk.fail(errno.ENOSPC, "replace_file", path_end="orders/checkpoint", times=3)
        await cluster.start_broker("broker-1", disk=disk)
        topic = await describe(cluster, "orders")
        assert {one.leader for one in topic.partitions} == {1}
        async with client.producer() as producer:
            with trio.fail_after(20):
                for number in range(20):
                    await producer.send("orders", b"value", key=b"%d" % number)


async def test_decisions_that_a_full_disk_did_not_take_are_told_again(tmp_path: Path) -> None:
    """Several partitions are new to a broker, and it can't store that they are."""
    disk = MemoryDisk()
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        await cluster.start_broker("broker-1", disk=disk)
        disk.fail(errno.ENOSPC, "replace_file", path_end="/partitions", times=4)
        disk.fail(errno.ENOSPC, "make_directory", path_end="/orders", times=4)
        await client.create_topic("orders", 5)
        assert {one.leader for one in (await client.describe_topic("orders")).partitions} == {None}
        topic = await describe(cluster, "orders")
        async with client.producer() as producer:
            with trio.fail_after(20):
                for partition in topic.partitions:
                    await producer.send("orders", b"value", partition=partition.partition)


async def test_a_log_that_can_not_be_made_does_not_keep_other_partitions_from_serving(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        node = await cluster.start_broker("broker-1", disk=disk)
        await client.create_topic("orders", partition_ids=[1])
        disk.fail(errno.EIO, "replace_file", path_end="broken/checkpoint", times=1 << 30)
        await client.create_topic("broken", partition_ids=[0])
        await cluster.stop(node)
        await cluster.start_broker("broker-1", disk=disk)
        assert (await describe(cluster, "orders")).partitions[0].leader == 1
        async with client.producer() as producer:
            await producer.send("orders", b"value")
        told: list[octopi.PartitionInfo] = []
        with trio.fail_after(10):
            while not (told and told[0].troubles):
                told = (await client.admin.describe_cluster()).partitions
                await trio.sleep(0.02)  # nothing announces it to clients
        (trouble,) = told[0].troubles
        assert (trouble.broker, told[1].troubles) == (1, [])
        assert "broken/checkpoint" in trouble.reason


async def test_a_leader_whose_disk_is_full_is_replaced_even_without_producers(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        disks = await cluster.start_on_memory_disks(3)
        await client.create_topic("orders", partition_ids=[0])
        full = await leads(client, "orders")
        assert full is not None
        disks[full].capacity_bytes = 0
        await client.create_topic(
            "new", partition_ids=[0]
        )  # has no place there, so the broker looks
        await led_by_another(client, "orders", full)
        async with client.producer() as producer:
            await producer.send("new", b"value")


async def test_a_leader_that_takes_no_records_stays_if_no_other_replica_takes_any(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        members(cluster, 3) as (first, second, third),
        octopi.connect(cluster.register.url) as client,
    ):
        await client.create_topic("orders", partition_ids=[0])
        for member in (second, third, first):
            member.connection.post(m.BrokerStatus("full", 0, 100, []))
        with trio.fail_after(10):
            while len((await client.admin.describe_cluster()).partitions[0].troubles) < 3:  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert await leads(client, "orders") == 1
        assert not first.announced
        second.connection.post(m.BrokerStatus("", 50, 100, []))
        await eventually(lambda: bool(first.announced))
        for member in (first, second, third):
            await member.accept(log_end=9 if member is first else 0)
        await eventually(lambda: second.records[0].leader == 2)
        assert second.records[0].in_sync == [1, 2, 3]


async def test_a_replica_that_missed_an_announcement_hears_of_it_again(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        members(cluster, 2) as (first, second),
        octopi.connect(cluster.register.url) as client,
    ):
        await client.create_topic("orders", partition_ids=[0])
        await first.connection.close()
        await eventually(lambda: bool(second.announced))
        second.announced.clear()
        await second.accept()  # as soon as it hears of it once more
        await eventually(lambda: second.records[0].leader == 2)


async def test_clients_are_sent_to_replicas_that_take_records_if_there_are_any(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        members(cluster, 2) as (first, second),
        octopi.connect(cluster.register.url) as client,
    ):
        topic = await client.create_topic("orders", partition_ids=[0])
        assert len(topic.partitions[0].readers) == 2

        async def readers_with(*troubled: Member) -> set[str]:
            for member in (first, second):
                why = "its disk failed" if member in troubled else ""
                status = m.BrokerStatus("", None, None, [m.ReplicaTrouble(0, why)])
                member.connection.post(status)
            with trio.fail_after(10):
                while True:
                    place = (await client.describe_topic("orders")).partitions[0]
                    if {one.broker for one in place.troubles} == {one.broker for one in troubled}:
                        return set(place.readers)
                    await trio.sleep(0.02)

        both = set(topic.partitions[0].readers)
        assert len(await readers_with(second)) == 1
        assert await readers_with(first, second) == both
