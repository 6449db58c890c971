"""A broker goes by the altered options of a topic at once, and after its next start."""

from __future__ import annotations

import errno

import attrs
import trio

from octopi.identifiers import PartitionId
from octopi.record import REQUEST_ID_BYTES, encode_opaque, scan
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.roles.replica_managers import TOPIC, started_on

PLACED = m.PartitionRecord(0, 1, 0, 2, 1, [1, 2], [1, 2])
"""Another broker leads."""
KEPT = m.TopicOptions(retention_ms=60_000, min_insync=2)
FLUSHED = m.TopicOptions(flush_before_ack=True)
DATA = encode_opaque(b"\x01" * REQUEST_ID_BYTES, b"a message")


def altered(options: m.TopicOptions, version: int = 1) -> m.TopicRecord:
    return attrs.evolve(TOPIC, options=options, generation=1, version=version)


async def with_a_topic(disk: MemoryDisk, tasks: trio.Nursery) -> ReplicaManager:
    logs = await started_on(disk, tasks)
    assert not await logs.install_partitions([PLACED], [])
    assert not await logs.install_topics([TOPIC])
    return logs


def log_of(logs: ReplicaManager) -> LocalLog:
    return logs.store.find("orders", PartitionId(0))


async def test_altered_options_are_in_force_at_once_and_after_a_restart() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await with_a_topic(disk, tasks)
        log = log_of(logs)
        assert not await logs.install_topics([altered(KEPT)])
        assert log_of(logs) is log
        assert log.topic.options == KEPT
        assert log.state.min_insync == 2
        assert logs.topics() == [altered(KEPT)]
        disk.crash(keep_page_cache=False)
        again = await started_on(disk, tasks)
        assert again.topics() == [altered(KEPT)]
        assert log_of(again).state.min_insync == 2
        tasks.cancel_scope.cancel()


async def test_a_log_that_is_gone_is_made_anew_with_the_altered_options() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await with_a_topic(disk, tasks)
        assert not await logs.install_topics([altered(KEPT)])
        disk.crash(keep_page_cache=False)
        for name in disk.list_directory("data/logs/0/orders"):
            disk.remove(f"data/logs/0/orders/{name}")
        disk.remove_directory("data/logs/0/orders")
        again = await started_on(disk, tasks)
        assert again.topics() == [altered(KEPT)]
        tasks.cancel_scope.cancel()


async def test_options_that_can_not_be_stored_are_told_again() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await with_a_topic(disk, tasks)
        disk.fail(errno.EIO, "replace_file", path_end="checkpoint", times=9)
        (undone,) = await logs.install_topics([altered(KEPT)])
        assert undone.topic_id == TOPIC.topic_id
        assert logs.topics() == [TOPIC]
        disk.heal()
        assert not await logs.install_topics([altered(KEPT)])
        assert logs.topics() == [altered(KEPT)]
        tasks.cancel_scope.cancel()


async def test_what_was_acknowledged_is_flushed_before_it_is_stored_that_a_topic_flushes() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await with_a_topic(disk, tasks)
        log = log_of(logs)
        log.append(DATA, scan(DATA))
        assert not await logs.install_topics([altered(FLUSHED)])
        assert log.state.flush_before_ack
        disk.crash(keep_page_cache=False)
        again = await started_on(disk, tasks)
        assert log_of(again).end == len(DATA)
        tasks.cancel_scope.cancel()


async def test_that_a_topic_flushes_no_more_is_stored_before_anything_is_acknowledged_so() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as tasks:
        logs = await with_a_topic(disk, tasks)
        assert not await logs.install_topics([altered(FLUSHED)])
        disk.fail(errno.EIO, "replace_file", path_end="checkpoint", times=9)
        assert await logs.install_topics([altered(m.TopicOptions(), version=2)])
        assert log_of(logs).state.flush_before_ack
        disk.heal()
        assert not await logs.install_topics([altered(m.TopicOptions(), version=2)])
        assert not log_of(logs).state.flush_before_ack
        tasks.cancel_scope.cancel()
