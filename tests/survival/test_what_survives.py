"""What survives what: real processes lose machines, disks and power while clients go on.

The lines of README's table that no other test shows; docs/test-plan.md says which test shows
which line.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import octopi
from harness.machines import Machine
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.operating_system import SystemDisk
from octopi.record import decode
from octopi.storage.ends_file import load_ends
from tests.kit.named_clusters import ProcessCluster, process_cluster
from tests.kit.replicas import DataDirectory, at_rest
from tests.kit.traffic import traffic

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 3
HEALED_S = 90.0
"""A cluster whose nodes all run is healthy sooner, also on a busy machine."""


async def healthy(cluster: ProcessCluster) -> None:
    """Wait until each partition has a leader, and all its replicas are in sync."""
    async with octopi.connect(cluster.url) as client:
        with trio.fail_after(HEALED_S):
            while True:
                places = (await client.admin.describe_cluster()).partitions
                if all(
                    one.leader is not None and sorted(one.in_sync) == sorted(one.replicas)
                    for one in places
                ):
                    return
                await trio.sleep(0.05)  # nothing announces it to clients


def machine_of(cluster: ProcessCluster, name: str) -> Machine:
    machine = cluster.brokers[name].machine
    assert machine is not None
    return machine


async def lose_power_everywhere(cluster: ProcessCluster) -> None:
    """All machines, that of the register too, go dark at once, and come back."""
    nodes = [cluster.register, *cluster.brokers.values()]
    for node in nodes:
        node.kill9()
    for number, node in enumerate(nodes):
        node.lose_power(random.Random(number))
    for node in nodes:
        node.launch()
    for node in nodes:
        await trio.to_thread.run_sync(node.wait_ready)


async def test_brokers_are_restarted_one_after_the_other_and_no_message_is_refused(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path) as cluster:
        async with traffic(
            cluster.url, "orders", partitions=PARTITIONS, producers=3, consumers=2
        ) as flow:
            await flow.progress()
            for name in cluster.names:
                await healthy(cluster)
                assert await trio.to_thread.run_sync(cluster.brokers[name].terminate) == 0
                await flow.progress()
                async with octopi.connect(cluster.url) as client:
                    places = (await client.describe_topic("orders")).partitions
                assert all(place.leader is not None for place in places)
                await cluster.restart(name)
            await healthy(cluster)
            await flow.progress()
        await flow.check_replicas(cluster.data_dirs, 3)


async def test_two_of_three_disks_may_be_lost_one_after_the_other(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster:
        async with traffic(
            cluster.url, "orders", partitions=PARTITIONS, producers=3, consumers=2
        ) as flow:
            await flow.progress()
            await healthy(cluster)
            for name in cluster.names[:2]:
                await cluster.kill(name)
                shutil.rmtree(cluster.data_dir(name))
                await flow.progress()
        last = DataDirectory(cluster.data_dir(cluster.names[2]))
        async with octopi.connect(cluster.url) as client:
            places = (await client.describe_topic("orders")).partitions
        held = 0
        for place in places:
            content = last.log("orders", place.partition) or b""
            log = TopicName("orders"), PartitionId(place.partition)
            held += len(decode(content, Offset(0), *log))
        assert held == flow.acknowledged_count


async def test_with_min_insync_two_the_last_broker_serves_consumers_and_producers_wait(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path) as cluster, octopi.connect(cluster.url) as client:
        await client.create_topic("orders", min_insync=2)
        await healthy(cluster)
        async with client.producer() as producer:
            for number in range(100):
                await producer.send("orders", b"%d" % number)
            # The last broker serves what it has heard to be committed: a moment after the receipt.
            await at_rest(cluster.url, "orders", 3)
            for name in cluster.names[:2]:
                await cluster.kill(name)
            waiting = await producer.submit("orders", b"100")
            with trio.fail_after(HEALED_S):
                async with client.consumer("orders", start="earliest") as consumer:
                    stored = [(await anext(consumer)).value for _ in range(100)]
            assert stored == [b"%d" % number for number in range(100)]
            assert not waiting.is_settled
            await cluster.restart(cluster.names[0])
            with trio.fail_after(HEALED_S):
                await waiting


async def test_power_lost_everywhere_at_once_costs_nothing_that_was_flushed_before_its_receipt(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path, on_machines=True) as cluster:
        async with octopi.connect(cluster.url) as client:
            await client.create_topic("orders", PARTITIONS, flush_before_ack=True)
        async with traffic(cluster.url, "orders", producers=3, consumers=2) as flow:
            await flow.progress()
            await healthy(cluster)
            await flow.progress()
            await lose_power_everywhere(cluster)
            await flow.progress()
        await healthy(cluster)
        await flow.check_replicas(cluster.data_dirs, 3)


async def test_power_lost_everywhere_at_once_costs_nothing_that_was_on_the_devices(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path, on_machines=True) as cluster:
        async with octopi.connect(cluster.url) as client:
            await client.create_topic("orders", PARTITIONS)
            await client.create_topic("others", PARTITIONS)
            await healthy(cluster)
            async with client.producer() as producer:
                receipts = [await producer.send("orders", b"%d" % number) for number in range(200)]
                for name in cluster.names:
                    with trio.fail_after(HEALED_S):
                        while machine_of(cluster, name).unsynced(cluster.data_dir(name)):  # noqa: ASYNC110
                            await trio.sleep(0.05)
                for number in range(200):
                    await producer.send("others", b"%d" % number)
        await lose_power_everywhere(cluster)
        await healthy(cluster)
        async with octopi.connect(cluster.url) as client:
            async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
                stored = {(one.partition, one.offset): one.value async for one in consumer}
            async with client.producer() as producer:
                await producer.send("others", b"taken")
        assert stored == {
            (one.partition, one.offset): b"%d" % number for number, one in enumerate(receipts)
        }


def noted_end(data_dir: Path, partition: int, topic: str) -> int:
    """Up to where a broker has noted that a log is committed: what it knows a second later."""
    stored = load_ends(SystemDisk(), str(data_dir / "replicas" / f"{partition}.ends"))
    assert stored is not None
    return next(one.highwater for one in stored.logs.values() if one.topic["topic"] == topic)


def cut_in_half(log: Path, noted: int) -> None:
    [segment] = log.glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(noted // 2)


def lose_checkpoint(log: Path, noted: int) -> None:
    (log / "checkpoint").unlink()


def lose_directory(log: Path, noted: int) -> None:
    shutil.rmtree(log)


@pytest.mark.parametrize("harm", [cut_in_half, lose_checkpoint, lose_directory])
async def test_a_broker_with_damaged_files_that_comes_back_first_takes_nothing_from_the_others(
    tmp_path: Path, harm: Callable[[Path, int], None]
) -> None:
    async with process_cluster(tmp_path) as cluster:
        async with traffic(cluster.url, "orders", producers=3, consumers=2) as flow:
            await flow.progress(450)
            await healthy(cluster)
            partition = (await cluster.place("orders")).partition
            with trio.fail_after(HEALED_S):
                while not noted_end(cluster.data_dir(cluster.names[0]), partition, "orders"):  # noqa: ASYNC110
                    await trio.sleep(0.05)
            for name in cluster.names:
                await cluster.kill(name)
            damaged, *others = cluster.names
            noted = noted_end(cluster.data_dir(damaged), partition, "orders")
            harm(cluster.data_dir(damaged) / "logs" / str(partition) / "orders", noted)
            await cluster.restart(damaged)
            for name in others:
                await cluster.restart(name)
            await healthy(cluster)
            await flow.progress()
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.parametrize("fault", [Machine.fill, Machine.break_disk], ids=["full", "failing"])
async def test_a_full_or_failing_disk_gives_its_partitions_to_other_brokers(
    tmp_path: Path, fault: Callable[[Machine], None]
) -> None:
    async with process_cluster(tmp_path, on_machines=True) as cluster:
        async with octopi.connect(cluster.url) as client:
            # Flushed before receipts: a disk whose fsyncs fail is noticed at the next message.
            await client.create_topic("orders", flush_before_ack=True)
        async with traffic(cluster.url, "orders", producers=3, consumers=2) as flow:
            await flow.progress()
            await healthy(cluster)
            leader = await cluster.leader("orders")
            machine = machine_of(cluster, leader)
            fault(machine)
            await flow.progress()
            assert await cluster.leader("orders") != leader
            machine.fill(full=False)
            machine.break_disk(broken=False)
            if fault is Machine.break_disk:  # what its disk holds is unknown until it looks
                await cluster.kill(leader)
                await cluster.restart(leader)
            await healthy(cluster)
            await flow.progress()
        await flow.check_replicas(cluster.data_dirs, 3)
