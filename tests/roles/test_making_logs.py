"""A new log survives a power failure, even if creating it failed several times before."""

from __future__ import annotations

import errno
from functools import partial

import pytest
import trio

from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.roles.replica_managers import TOPIC, started_on

PLACED = m.PartitionRecord(0, 1, 0, 1, 1, [1], [1])
DIRECTORY = "data/logs/0/orders"
BOTH = ["orders", "~subscriptions"]


async def made_at_last(disk: MemoryDisk, logs: ReplicaManager) -> None:
    """Have the topic made, as often as it takes; the first time fails."""
    assert await logs.install_topics([TOPIC])
    disk.heal()
    assert not await logs.install_topics([TOPIC])


async def partition_made_at_last(disk: MemoryDisk, logs: ReplicaManager) -> None:
    """The same for the replica with its internal log, which is the first one there."""
    assert await logs.install_partitions([PLACED], [])
    assert logs.replica(0) is None, "it neither follows nor leads"
    disk.heal()
    assert not await logs.install_partitions([PLACED], [])
    assert not await logs.install_topics([TOPIC])


def opened(logs: ReplicaManager, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The topics that a broker has after its start, which has nothing to tell."""
    assert not [one.getMessage() for one in caplog.records]
    return sorted(log.topic.topic for log in logs.store)


async def test_a_log_of_a_topic_is_durable_even_if_the_first_directory_sync_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        disk.fail(errno.EIO, "sync_directory", path_end="data/logs/0")
        await made_at_last(disk, logs)
        tasks.cancel_scope.cancel()
    caplog.clear()
    disk.crash(keep_page_cache=False)
    async with trio.open_nursery() as tasks:
        assert opened(await started_on(disk, tasks), caplog) == BOTH
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("parent", ["data/logs/0", "data/logs", "data"])
async def test_a_log_is_durable_even_if_the_first_directory_sync_failed(
    parent: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.metadata.remember([PLACED], [])
        disk.fail(errno.EIO, "sync_directory", path_end=parent)
        await partition_made_at_last(disk, logs)
        tasks.cancel_scope.cancel()
    caplog.clear()
    disk.crash(keep_page_cache=False)
    async with trio.open_nursery() as tasks:
        assert opened(await started_on(disk, tasks), caplog) == BOTH
        tasks.cancel_scope.cancel()


async def test_a_log_is_durable_even_if_the_process_died_while_it_made_the_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.metadata.remember([PLACED], [])
        disk.fail(errno.EIO, "sync_directory", path_end="data")
        assert await logs.install_partitions([PLACED], [])
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=True)
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert not await logs.install_topics([TOPIC])
        tasks.cancel_scope.cancel()
    caplog.clear()
    disk.crash(keep_page_cache=False)
    async with trio.open_nursery() as tasks:
        assert opened(await started_on(disk, tasks), caplog) == BOTH
        tasks.cancel_scope.cancel()


async def test_a_log_is_durable_even_if_the_process_died_while_it_stored_the_first_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        disk.leave_names_unsynced(DIRECTORY)
        assert await logs.install_topics([TOPIC])
        assert "checkpoint" in disk.list_directory(DIRECTORY), "it is there, but not durable"
        tasks.cancel_scope.cancel()
    caplog.clear()
    for keep_page_cache in (True, False):
        disk.crash(keep_page_cache=keep_page_cache)
        async with trio.open_nursery() as tasks:
            assert opened(await started_on(disk, tasks), caplog) == BOTH
            tasks.cancel_scope.cancel()


async def test_a_log_is_listed_durably_even_if_that_failed_at_first() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        disk.fail(errno.EIO, "sync", path_end=".ends", times=9)
        disk.fail(errno.EIO, "replace_file", path_end=".ends", times=9)
        await made_at_last(disk, logs)
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=False)
    for name in disk.list_directory(DIRECTORY):
        disk.remove(f"{DIRECTORY}/{name}")
    disk.remove_directory(DIRECTORY)  # which is noticed, if it is noted
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert sorted(log.topic.topic for log in logs.store) == BOTH
        replica = logs.replica(0)
        assert replica is not None
        assert not replica.machine.state.intact
        tasks.cancel_scope.cancel()


MANY = [m.TopicRecord(f"t{n}", f"{n:016x}", [0], m.TopicOptions()) for n in range(8)]


async def test_logs_of_one_order_share_the_syncs_of_what_names_them() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        before = disk.calls.copy()
        assert not await logs.install_topics(MANY)
        assert disk.calls.count("sync_directory") == before.count("sync_directory") + 1
        assert disk.calls.count("sync") == before.count("sync") + 1, "of the file that lists them"
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=False)
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert {log.topic.topic for log in logs.store} >= {one.topic for one in MANY}
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("operation", "path_end"),
    [("make_directory", "/t3"), ("replace_file", "/t3/checkpoint")],
)
async def test_a_log_that_can_not_be_made_does_not_hold_up_the_others_of_its_order(
    operation: str, path_end: str
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        disk.fail(errno.EIO, operation, path_end=path_end, times=9)
        [undone] = await logs.install_topics(MANY)
        assert undone.topic_id == MANY[3].topic_id
        replica = logs.replica(0)
        assert replica is not None
        made = {one.topic_id for one in MANY} - {undone.topic_id}
        assert made == replica.logs.keys() & {one.topic_id for one in MANY}
        disk.heal()
        assert not await logs.install_topics(MANY)
        assert replica.logs.keys() >= {one.topic_id for one in MANY}
        tasks.cancel_scope.cancel()


async def test_a_topic_that_was_made_before_the_others_of_its_order_stays_as_it_is() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        assert not await logs.install_topics(MANY[:1])
        known = logs.store.logs["t0", 0]
        assert not await logs.install_topics(MANY)
        assert logs.store.logs["t0", 0] is known
        tasks.cancel_scope.cancel()


async def test_everybody_who_waits_for_a_replica_hears_when_it_has_done_what_it_was_told() -> None:
    # An order waits, and beside it the hand-over of the partition.
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert not await logs.install_partitions([PLACED], [])
        assert not await logs.install_topics([TOPIC])
        replica = logs.replica(0)
        assert replica is not None
        with trio.fail_after(10):
            async with trio.open_nursery() as waiting:
                for epoch in (2, 3):
                    decided = m.PartitionRecord(0, epoch, 0, 1, 1, [1], [1])
                    replica.submit(partial(replica.machine.installed, decided, 0.0))
                    assert not replica.is_settled
                    waiting.start_soon(replica.settled)
        assert replica.is_settled
        tasks.cancel_scope.cancel()
