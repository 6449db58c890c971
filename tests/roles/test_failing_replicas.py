"""A replica whose disk fails does not take the partition with it."""

import errno
from pathlib import Path

import pytest
import trio

import octopi
from octopi.environment import Trace, TraceEvent
from octopi.storage import checkpoint
from octopi.tracing import steps
from tests.kit.cluster import Died, Node, describe, running_cluster
from tests.kit.disk import MemoryDisk


@pytest.mark.parametrize("which", ["leader", "follower"])
@pytest.mark.parametrize("fault", ["full", "broken write", "failed fsync", "read-only"])
async def test_the_other_replicas_carry_on_when_the_disk_of_one_fails(
    tmp_path: Path, which: str, fault: str
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        disks = await cluster.start_on_memory_disks(3)
        topic = await describe(cluster, "orders")
        leader = topic.partitions[0].leader
        assert leader is not None
        chosen = leader if which == "leader" else leader % 3 + 1
        disk = disks[chosen]
        receipts: list[octopi.Receipt] = []
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            receipts += [await producer.send("orders", b"%d" % number) for number in range(5)]
            if fault == "full":
                disk.capacity_bytes = 0
            elif fault == "broken write":
                disk.fail(errno.EIO, "append", path_end=".log", times=1000)
            elif fault == "failed fsync":
                disk.fail(errno.EIO, "sync", times=1000)
            else:
                disk.read_only = True
            with trio.fail_after(20):
                for number in range(5, 40):
                    receipts.append(await producer.send("orders", b"%d" % number))
                    await trio.sleep(0.05)  # long enough for flushes and lag to show
            async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
                seen = [message async for message in consumer]
            assert [message.value for message in seen] == [b"%d" % number for number in range(40)]
            assert [message.offset for message in seen] == [one.offset for one in receipts]
            after = (await client.describe_topic("orders")).partitions[0]
            if fault != "failed fsync" or which == "leader":
                assert chosen not in after.in_sync
            assert after.leader != chosen or which == "follower"


async def test_an_accepted_epoch_is_told_only_once_it_is_on_the_disk(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        disks = await cluster.start_on_memory_disks(3)
        topic = await describe(cluster, "orders")
        before = topic.partitions[0]
        assert before.leader is not None
        others = [number for number in disks if number != before.leader]
        for number in others:
            path_end = f"replicas/{before.partition}"
            disks[number].fail(errno.ENOSPC, "replace_file", path_end=path_end, times=3)
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            await producer.send("orders", b"before")
            await client.admin.drain_broker(before.leader)
            await producer.send("orders", b"after")
            after = (await client.describe_topic("orders")).partitions[0]
            assert after.leader in others
            for number in others:
                path = next(one for one in disks[number].files() if "/replicas/" in one)
                stored = checkpoint.load(disks[number], path)
                assert stored is not None
                assert stored["promised"] == after.epoch


async def test_a_follower_that_had_no_space_for_a_moment_follows_again(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        disks = await cluster.start_on_memory_disks(3)
        place = (await describe(cluster, "orders")).partitions[0]
        assert place.leader is not None
        follower = place.leader % 3 + 1
        # The log's epoch has to be stored before the first record of it.
        disks[follower].fail(errno.ENOSPC, "replace_file", path_end="orders/checkpoint", times=2)
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            await producer.send("orders", b"first")
            await producer.send("orders", b"second")
            await all_hold_the_same(client)
            await producer.send("orders", b"third")
            await all_hold_the_same(client)


async def all_hold_the_same(client: octopi.Client) -> None:
    """Wait until three replicas are in sync and hold as much."""
    with trio.fail_after(20):
        while True:
            in_sync = (await client.describe_topic("orders")).partitions[0].in_sync
            ends = {one.log.log_end for one in await client.admin.describe_logs("orders")}
            if len(in_sync) == 3 and len(ends) == 1:
                return
            await trio.sleep(0.05)  # nothing announces it to clients


async def test_replicas_without_space_for_an_epoch_accept_it_when_there_is_space(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        disks: dict[int, MemoryDisk] = {}
        nodes: dict[int, Node] = {}
        for number in (1, 2, 3):
            disks[number] = MemoryDisk()
            nodes[number] = await cluster.start_broker(f"broker-{number}", disk=disks[number])
        place = (await describe(cluster, "orders")).partitions[0]
        assert place.leader is not None
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            await producer.send("orders", b"before")
            for number in disks.keys() - {place.leader}:
                path_end = f"replicas/{place.partition}"
                disks[number].fail(errno.ENOSPC, "replace_file", path_end=path_end, times=2)
            await cluster.kill(nodes[place.leader])
            with trio.fail_after(20):
                await producer.send("orders", b"after")


async def test_a_message_committed_while_the_disk_was_full_is_given_to_consumers(
    tmp_path: Path,
) -> None:
    """The follower dies with a message that it has not appended; the leader, alone now, has no
    space for the record that says so, and for a moment only."""
    disks = {number: MemoryDisk() for number in (1, 2)}
    armed_for = 0

    def observer(number: int) -> Trace:
        def observe(step: TraceEvent) -> None:
            nonlocal armed_for
            if isinstance(step, steps.P3Replicating) and armed_for == number:
                armed_for = 0
                raise Died

        return observe

    async with running_cluster(tmp_path, brokers=0) as cluster:
        for number, disk in disks.items():
            await cluster.start_broker(f"broker-{number}", disk=disk, trace=observer(number))
        topic = await describe(cluster, "orders")
        place = topic.partitions[0]
        assert place.leader is not None
        disks[place.leader].fail(
            errno.ENOSPC, "replace_file", path_end=f"replicas/{place.partition}", calls_before=1
        )
        armed_for = 3 - place.leader
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            with trio.fail_after(20):
                receipt = await producer.send("orders", b"acknowledged")
            async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
                seen = [message async for message in consumer]
        assert [message.offset for message in seen] == [receipt.offset]
