"""A broker's log: its files and its tasks."""

from __future__ import annotations

import trio
import trio.testing

from octopi import record
from octopi.environment import Environment
from octopi.identifiers import Offset, PartitionId
from octopi.operating_system import SystemChance, SystemClock
from octopi.record import BatchBuilder
from octopi.roles.broker.broker_log import BrokerLog, FlushOptions
from octopi.roles.broker.flusher import Flusher
from octopi.wire.messages import TopicOptions, TopicRecord
from tests.fakes.disk import MemoryDisk
from tests.fakes.link import MemoryNet


def open_log(disk: MemoryDisk) -> BrokerLog:
    clock = SystemClock()
    topic = TopicRecord("orders", "0a", [0], TopicOptions())
    return BrokerLog(
        Environment(clock, MemoryNet(), disk, SystemChance()),
        "orders",
        topic,
        PartitionId(0),
        Flusher(clock),
        FlushOptions(),
    )


def append(log: BrokerLog, sequence: int) -> Offset:
    builder = BatchBuilder()
    builder.add(b"value")
    data = builder.encode(b"p" * 16, 0, sequence)  # type: ignore[arg-type]
    return log.append(data, record.scan(data))


async def test_a_flush_ends_though_its_records_are_cut_meanwhile(nursery: trio.Nursery) -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    log = open_log(disk)
    append(log, 0)
    cut_at = append(log, 1)
    done = trio.Event()

    async def flush() -> None:
        await log.flush()
        done.set()

    with disk.syncs_held():
        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        await log.truncate(cut_at)
    with trio.fail_after(5):
        await done.wait()
    assert log.end == cut_at
