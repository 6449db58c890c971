"""A broker carries out what the register decided as far as it can, and the register tells it the
rest again: what is deleted goes first, and nothing that fails keeps the rest from being done."""

import errno
from pathlib import Path

import pytest
import trio

import octopi
from octopi.identifiers import PartitionId
from tests.kit.cluster import Cluster, eventually, running_cluster
from tests.kit.disk import MemoryDisk


async def create(client: octopi.Client, *names: str) -> None:
    for name in names:
        await client.create_topic(name, partition_ids=[0])


async def in_sync(client: octopi.Client, topic: str, count: int) -> None:
    """Wait until *count* replicas of the topic's first partition are in sync, and hold it."""
    with trio.fail_after(20):
        while True:
            place = (await client.describe_topic(topic)).partitions[0]
            holders = {one.broker for one in await client.admin.describe_logs(topic)}
            if len(place.in_sync) == count and holders.issuperset(place.in_sync):
                return
            await trio.sleep(0.02)  # nothing announces it to clients


def topic_ids(disk: MemoryDisk, topic: str) -> list[bool]:
    """Whether each directory of *topic* on the disk has not been renamed to be deleted."""
    names = {path.rpartition("/")[0].rpartition("/")[2] for path in disk.files()}
    return [name == topic for name in names if name.split("!")[0] == topic]


async def without_a_follower(
    cluster: Cluster, client: octopi.Client, disks: dict[int, MemoryDisk]
) -> int:
    """Two brokers with two topics in one partition; then the one that follows is stopped."""
    nodes = {
        number: await cluster.start_broker(f"broker-{number}", disk=disk)
        for number, disk in disks.items()
    }
    await create(client, "orders", "other")
    async with client.producer() as producer:
        await producer.send("orders", b"of the first topic")
    place = (await client.describe_topic("orders")).partitions[0]
    assert place.leader is not None
    away = 3 - place.leader
    await in_sync(client, "orders", 2)
    await cluster.stop(nodes[away])
    return away


async def test_a_topic_made_anew_while_a_broker_is_away_gets_in_sync_there_again(
    tmp_path: Path,
) -> None:
    disks = {number: MemoryDisk() for number in (1, 2)}
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        away = await without_a_follower(cluster, client, disks)
        await client.delete_topic("orders")
        await create(client, "orders")
        async with client.producer() as producer:
            await producer.send("orders", b"of the second topic")
            await producer.send("other", b"beside it")
        await cluster.start_broker(f"broker-{away}", disk=disks[away])
        for topic in ("orders", "other"):
            await in_sync(client, topic, 2)
        told = await client.describe_topic("orders")
        held = await client.admin.describe_logs("orders")
        assert {one.log.topic_id for one in held} == {told.topic_id}


async def test_a_topic_made_anew_while_its_leaders_connection_is_broken_takes_the_next_messages(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        await create(client, "orders")
        async with client.producer() as producer:
            await producer.send("orders", b"of the first topic")
        [member] = cluster.registers[-1].members.values()
        await member._connection.close()
        await client.delete_topic("orders")
        await create(client, "orders")
        async with client.producer() as producer:
            await producer.send("orders", b"of the second topic")
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            assert [message.value async for message in consumer] == [b"of the second topic"]


async def test_a_topic_made_anew_while_its_deletion_is_under_way_takes_the_next_messages(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        octopi.connect(cluster.register.url) as client,
        client.producer() as producer,
    ):
        topics = cluster.registers[-1].topics
        await create(client, "orders")
        for number in range(20):
            # Both are decided before the journal has taken either, so both wait for the same flush.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(topics.delete, "orders")
                while cluster.registers[-1].controller.state.topic("orders") is not None:
                    await trio.lowlevel.checkpoint()
                made = await topics.create("orders", partitions=[PartitionId(0)])
                held = await client.admin.describe_logs("orders")
                assert [one.log.topic_id for one in held] == [made.topic_id], number
                await producer.send("orders", b"of topic %d" % number)
            async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
                assert [one.value async for one in consumer] == [b"of topic %d" % number]


@pytest.mark.parametrize("operation", ["rename", "sync_directory", "remove", "remove_directory"])
async def test_a_removal_that_fails_at_first_is_done_later_and_holds_up_no_other_topic(
    tmp_path: Path, operation: str
) -> None:
    disks = {number: MemoryDisk() for number in (1, 2)}
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        octopi.connect(cluster.register.url) as client,
    ):
        away = await without_a_follower(cluster, client, disks)
        await client.delete_topic("orders")
        await create(client, "orders")
        disks[away].fail(errno.EIO, operation, path_end="", times=3)
        await cluster.start_broker(f"broker-{away}", disk=disks[away])
        await in_sync(client, "other", 2)
        await in_sync(client, "orders", 2)
        await eventually(lambda: topic_ids(disks[away], "orders") == [True])


async def test_a_topic_made_anew_is_held_as_soon_as_the_older_one_can_be_removed(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with running_cluster(tmp_path, brokers=0) as cluster:
        await cluster.start_broker("broker-1", disk=disk)
        async with octopi.connect(cluster.register.url) as client:
            await create(client, "orders")
            disk.fail(errno.EIO, "rename", times=1 << 30)
            await client.delete_topic("orders")
            await create(client, "orders")
            assert not await client.admin.describe_logs("orders")
            disk.heal()
            with trio.fail_after(10):
                while not await client.admin.describe_logs("orders"):  # noqa: ASYNC110
                    await trio.sleep(0.02)
