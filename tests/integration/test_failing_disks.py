"""A replica's disk is full, broken or read-only: the others go on, it says why it does not,
and nothing that was acknowledged is missing anywhere in the end."""

import errno
from pathlib import Path
from typing import Literal

import pytest
import trio

import octopi
from tests.kit.disk import MemoryDisk
from tests.kit.named_clusters import LocalCluster, local_cluster
from tests.kit.traffic import traffic

Role = Literal["leader", "follower"]
Fault = Literal["full", "broken", "read-only"]


def strike(disk: MemoryDisk, fault: Fault) -> None:
    if fault == "full":
        disk.capacity_bytes = 0
    elif fault == "broken":
        disk.fail(errno.EIO, "append", path_end=".log", times=1 << 30)
    else:
        disk.read_only = True


def repair(disk: MemoryDisk) -> None:
    disk.heal()
    disk.capacity_bytes = None
    disk.read_only = False


async def with_memory_disks(cluster: LocalCluster) -> dict[str, MemoryDisk]:
    disks = [MemoryDisk() for _ in range(3)]
    return {await cluster.add(disk): disk for disk in disks}


async def without(cluster: LocalCluster, name: str) -> None:
    """Wait until *name* is not in sync and does not lead."""
    number = int(name.removeprefix("broker-"))
    with trio.fail_after(15):
        while True:
            place = await cluster.place("orders")
            if number not in place.in_sync and place.leader != number:
                return
            await trio.sleep(0.02)  # nothing announces it to clients


async def complaint(cluster: LocalCluster, name: str) -> str:
    """What the broker says is wrong with its log."""
    async with octopi.connect(cluster.url) as client:
        logs = await client.admin.describe_logs("orders")
    (fault,) = [one.log.fault for one in logs if one.address == cluster.address(name)]
    return fault


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("fault", ["full", "broken", "read-only"])
async def test_other_replicas_go_on_without_a_failed_disk_and_the_repaired_one_catches_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, role: Role, fault: Fault
) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        disks = await with_memory_disks(cluster)
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(50)
            leader = await cluster.leader("orders")
            struck = leader if role == "leader" else (await cluster.followers("orders"))[0]
            strike(disks[struck], fault)
            await flow.progress(100, reading=False)
            await without(cluster, struck)
            said = " ".join(str(vars(record)) for record in caplog.records)
            assert {"full": "space", "broken": "Input/output", "read-only": "Read-only"}[
                fault
            ] in said
            await flow.progress(100, reading=False)
            await cluster.kill(struck)
            repair(disks[struck])
            await cluster.restart(struck)
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_disk_that_has_space_again_needs_no_restart(tmp_path: Path, role: Role) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        disks = await with_memory_disks(cluster)
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(50)
            leader = await cluster.leader("orders")
            struck = leader if role == "leader" else (await cluster.followers("orders"))[0]
            strike(disks[struck], "full")
            await flow.progress(100, reading=False)
            await without(cluster, struck)
            disks[struck].capacity_bytes = None
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_broken_log_refuses_requests_with_the_reason(tmp_path: Path, role: Role) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        disks = await with_memory_disks(cluster)
        async with traffic(cluster.url, "orders") as flow:
            await flow.progress(20)
            leader = await cluster.leader("orders")
            struck = leader if role == "leader" else (await cluster.followers("orders"))[0]
            strike(disks[struck], "broken")
            await without(cluster, struck)
            assert "read-only" in await complaint(cluster, struck)
            await flow.progress(20, reading=False)
