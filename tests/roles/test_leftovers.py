"""Deleted topics and given-up replicas leave no files, even if the disk fails at a bad moment."""

from __future__ import annotations

import errno

import attrs
import pytest
import trio

from octopi.identifiers import PartitionId, is_internal
from octopi.replication.effects import SyncLogs
from octopi.roles.broker.log_store import LogStore
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.storage import checkpoint
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.roles.replica_managers import TOPIC, started_on
from tests.roles.test_retirement import left

PLACED = m.PartitionRecord(0, 1, 0, 1, 1, [1, 2], [1, 2])
MOVED = m.PartitionRecord(0, 2, 0, 2, 2, [2], [2])
REMOVED = m.RemovedTopic(TOPIC.topic, TOPIC.topic_id)


def of_topic(disk: MemoryDisk) -> list[str]:
    names = disk.list_directory("data/logs/0") if disk.list_directory("data/logs") else []
    return [name for name in names if not (name.endswith(".damaged") or is_internal(name))]


def topic_ids(logs: ReplicaManager) -> list[str]:
    """Of the topics that have a log in the store."""
    return [log.topic_id for log in logs.store if not is_internal(log.topic_id)]


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("replace_file", "0.ends"),
        ("replace_file", "checkpoint"),
        ("sync_directory", "data/logs/0"),
    ],
)
async def test_a_deleted_topic_that_could_not_be_made_is_gone_at_once_and_for_good(
    operation: str, path: str
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        disk.fail(errno.ENOSPC, "append", path_end=".ends", times=9)
        disk.fail(errno.ENOSPC, operation, path_end=path, times=9)
        assert await logs.install_topics([TOPIC])
        disk.heal()
        assert of_topic(disk)
        assert not await logs.remove_topics([REMOVED])
        assert not of_topic(disk)
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=True)
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert not topic_ids(logs)
        assert not of_topic(disk)
        replica = logs.replica(0)
        assert replica is not None
        assert replica.machine.state.intact
        tasks.cancel_scope.cancel()


async def test_a_deleted_topic_that_could_not_be_read_at_the_start_is_gone() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        await logs.install_topics([TOPIC])
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=True)
    disk.fail(errno.EIO, "read_file", path_end="orders/checkpoint", times=9)
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert not topic_ids(logs)
        assert [one.reason for one in await logs.remove_topics([REMOVED])]
        assert of_topic(disk)
        disk.heal()
        assert not await logs.remove_topics([REMOVED])
        assert not of_topic(disk)
        tasks.cancel_scope.cancel()


async def test_a_topic_that_two_orders_delete_at_a_time_is_deleted_once() -> None:
    """Without a register, each partition of a topic reads by itself that the topic is gone."""
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        places = [attrs.evolve(PLACED, partition=number) for number in (0, 1)]
        await logs.install_partitions(places, [])
        await logs.install_topics([attrs.evolve(TOPIC, partitions=[0, 1])])
        assert topic_ids(logs) == [TOPIC.topic_id] * 2
        async with trio.open_nursery() as nursery:
            for one in logs.replicas:
                one.submit(lambda: [SyncLogs()])  # which it waits for when the orders come
            for _ in range(3):
                nursery.start_soon(logs.remove_topics, [REMOVED])
        assert not topic_ids(logs)
        assert not of_topic(disk)
        tasks.cancel_scope.cancel()


async def test_files_of_another_creation_of_a_deleted_topic_stay() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        await logs.install_topics([TOPIC])
        assert not await logs.remove_topics([m.RemovedTopic(TOPIC.topic, "another one")])
        assert of_topic(disk) == ["orders"]
        assert topic_ids(logs) == [TOPIC.topic_id]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("operation", ["remove", "remove_directory"])
async def test_a_deleted_directory_that_could_not_be_removed_at_the_start_goes_later(
    operation: str,
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        await logs.install_topics([TOPIC])
        disk.fail(errno.EIO, operation, path_end="", times=99)
        assert await logs.remove_topics([REMOVED])
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=True)
    disk.fail(errno.EIO, operation, path_end="", times=99)
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        assert of_topic(disk)
        replica = logs.replica(0)
        assert replica is not None
        assert replica.machine.state.intact
        disk.heal()
        await logs.delete_again()
        assert not of_topic(disk)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("operation", ["rename", "remove", "sync_directory"])
@pytest.mark.parametrize("dies", [False, True])
async def test_a_replica_that_could_not_be_given_up_is_gone_when_its_disk_is_sound_again(
    operation: str, *, dies: bool
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.install_partitions([PLACED], [])
        await logs.install_topics([TOPIC])
        disk.fail(errno.EIO, operation, times=99)
        assert await logs.install_partitions([MOVED], [])
        if not dies:
            disk.heal()
            await logs.delete_again()
            assert not left(disk)
            assert not disk.list_directory("data/logs")
        tasks.cancel_scope.cancel()
    if not dies:
        return
    disk.crash(keep_page_cache=True)
    disk.fail(errno.EIO, operation, path_end="", times=99)
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        disk.heal()
        await logs.delete_again()
        assert not left(disk)
        assert not disk.list_directory("data/logs")
        tasks.cancel_scope.cancel()


async def test_a_replica_that_a_killed_process_left_to_begin_has_its_state_before_its_first_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await started_on(disk, tasks)
        await logs.metadata.remember([PLACED], [])  # and was killed then
        tasks.cancel_scope.cancel()
    disk.crash(keep_page_cache=True)
    make, had_states = LogStore.create_internal, []

    async def noted(store: LogStore, partition: PartitionId) -> None:
        had_states.append(checkpoint.load(disk, f"data/replicas/{partition}") is not None)
        await make(store, partition)

    monkeypatch.setattr(LogStore, "create_internal", noted)
    async with trio.open_nursery() as tasks:
        await started_on(disk, tasks)
        tasks.cancel_scope.cancel()
    assert had_states == [True]
