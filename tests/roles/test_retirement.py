"""A replica that was moved to another broker leaves no files, even if the disk fails meanwhile."""

from __future__ import annotations

import errno

import pytest
import trio

from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.roles.replica_managers import TOPIC, started_on


def left(disk: MemoryDisk) -> list[str]:
    """Files of the replica."""
    return [path for path in disk.files() if path.startswith(("data/logs/0", "data/replicas/0"))]


@pytest.mark.parametrize("operation", ["rename", "remove", "sync_directory"])
@pytest.mark.parametrize("fails_again", [False, True])
async def test_a_replica_whose_giving_up_was_interrupted_is_gone_after_the_next_start(
    operation: str, *, fails_again: bool
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([m.PartitionRecord(0, 1, 0, 1, 1, [1, 2], [1, 2])], [])
        await logs.install_topics([TOPIC])
        disk.fail(errno.EIO, operation, times=100)
        moved = m.PartitionRecord(0, 2, 0, 2, 2, [2], [2])
        assert await logs.install_partitions([moved], [])
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=True)
    assert left(disk)
    async with trio.open_nursery() as tasks:
        if fails_again:
            disk.fail(errno.EIO, operation, path_end="data/logs/0/orders", times=100)
            await started_on(disk, tasks)
            disk.crash(keep_page_cache=True)
        logs = await started_on(disk, tasks)
        assert not left(disk)
        assert not list(logs.store)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("gone", ["data/replicas/0.ends", "data/replicas/0", "data/logs/0/orders"])
async def test_files_of_a_removed_replica_that_a_power_failure_brought_back_are_removed(
    gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Names that are removed and not synced may come back, each by itself."""
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([m.PartitionRecord(0, 1, 0, 1, 1, [1, 2], [1, 2])], [])
        await logs.install_topics([TOPIC])
        before = {path: disk.content(path) for path in left(disk)}
        await logs.install_partitions([m.PartitionRecord(0, 2, 0, 2, 2, [2], [2])], [])
        assert not left(disk)
        tasks.cancel_scope.cancel()
    disk.make_directory("data/logs/0/~subscriptions")
    if not gone.startswith("data/logs"):
        disk.make_directory("data/logs/0/orders")
    for path, content in before.items():
        if not path.startswith(gone):
            disk.plant(path, content)
    caplog.clear()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert not left(disk)
        assert not caplog.records
        tasks.cancel_scope.cancel()
