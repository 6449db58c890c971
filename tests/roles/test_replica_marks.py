"""The marks that a replica knows, and how retention uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from octopi.identifiers import (
    Offset,
    ProducerEpoch,
    ProducerId,
    SubscriptionId,
    SubscriptionName,
    TopicId,
)
from octopi.operating_system import SystemClock
from octopi.replication.internal_log import fence_entry
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_marks import ReplicaMarks
from octopi.subscriptions.entries import MarkEntry, mark_key, to_map
from octopi.subscriptions.known_marks import UNKNOWN, SlowestMark
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.roles.test_crash_points import new_log
from tests.roles.test_internal_logs import CACHED, LED, PARTITION, Broker, broker, restarted

ZERO = SlowestMark(Offset(0), "billing")


def key(number: int) -> str:
    return mark_key(SubscriptionId(f"{number:016x}"), TopicId(CACHED.topic_id))


def value(mark: int, name: str = "billing") -> dict[str, Any]:
    entry = MarkEntry(SubscriptionName(name), CACHED.topic, Offset(mark), expires_ms=None)
    return to_map(entry)


def clicks(here: Broker) -> LocalLog:
    return here.manager.store.logs[CACHED.topic, PARTITION]


def marks_of(here: Broker) -> ReplicaMarks:
    return ReplicaMarks(SystemClock(), here.manager.replica)


async def test_a_leader_knows_the_marks_that_were_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        await here.manager.install_topics([CACHED])
        marks = marks_of(here)
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) is None
        await here.set(key(1), value(70))
        await here.set(key(2), value(30, "slow"))
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == SlowestMark(Offset(30), "slow")
        await here.set(key(2), value(90, "slow"))
        assert marks.slowest(clicks(here)) == SlowestMark(Offset(70), "billing"), "at this moment"
        await here.set(key(1), None)
        await here.set(key(2), None)
        assert marks.slowest(clicks(here)) is None
        assert not caplog.records


async def test_a_replica_reads_the_entries_before_a_snapshot_only_once() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        await here.manager.install_topics([CACHED])
        marks = marks_of(here)
        await here.set(key(1), value(0))
        await marks.refresh(PARTITION)
        for number in range(30):
            await here.set(
                mark_key(SubscriptionId("2" * 16), TopicId("2" * 16)),
                {**value(number), "bulk": bytes(100_000)},
            )
        await trio.testing.wait_all_tasks_blocked()  # until the snapshot is made
        here.log.state.flushed(await here.log.flush())
        await here.internal.apply_retention(here.log)
        assert here.log.start > 0
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == ZERO
        anew = marks_of(here)
        await anew.refresh(PARTITION)
        assert anew.slowest(clicks(here)) == ZERO


async def test_fences_of_producers_among_the_marks_are_passed_over() -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead()
        await here.manager.install_topics([CACHED])
        marks = marks_of(here)
        await here.set(key(1), value(70))
        fence = fence_entry(TopicId(CACHED.topic_id), ProducerId(bytes(16)), ProducerEpoch(1))
        here.internal.append_fence(PARTITION, lambda: fence, lambda answer: None)
        with trio.fail_after(5):
            await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == SlowestMark(Offset(70), "billing")
        await here.set(key(1), value(80))
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == SlowestMark(Offset(80), "billing")


async def test_a_replica_that_may_lack_committed_entries_knows_no_marks() -> None:
    disk = MemoryDisk()
    async with broker(disk) as here:
        await here.lead()
        await here.manager.install_topics([CACHED])
        await here.set(key(1), value(70))
        await here.log.flush()
    async with broker(disk, incarnation=2) as here:
        marks = marks_of(here)
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == UNKNOWN, "it neither leads nor follows"
        await here.lead(restarted(2))
        assert marks.slowest(clicks(here)) == UNKNOWN, "it has yet to read"
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == SlowestMark(Offset(70), "billing")
        elsewhere = m.PartitionRecord(0, 3, 0, 2, 1, [1, 2], [2])
        await here.manager.install_partitions([elsewhere], [])
        assert marks.slowest(clicks(here)) == UNKNOWN, "it leads no more"
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == UNKNOWN


async def test_marks_that_can_not_be_read_are_unknown_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker(MemoryDisk()) as here:
        await here.lead(LED)
        await here.manager.install_topics([CACHED])
        await here.set(key(1), {"mark": 7})
        marks = marks_of(here)
        await marks.refresh(PARTITION)
        assert marks.slowest(clicks(here)) == UNKNOWN
        (record,) = caplog.records
        assert record.message == "retention doesn't know the marks of subscriptions"


async def test_retention_checks_marks_again_when_it_notes_the_new_log_start() -> None:
    """A mark may go back, or come, while the device takes the note."""
    options = m.TopicOptions(segment_bytes=1000, retention_bytes=1000, hold_bytes=10_000)
    log = await new_log(MemoryDisk(), m.TopicRecord("orders", "0a" * 8, [0], options))
    answers: Iterator[SlowestMark | None] = iter([None, ZERO])
    await log.apply_retention(slowest=lambda: next(answers))
    assert log.start == 0
    assert log.held_bytes > 0
    assert log.describe().held_for == "billing"
    await log.apply_retention()
    assert log.start > 0
    assert (log.describe().held_bytes, log.describe().held_for) == (0, "")


async def test_what_is_let_go_while_the_new_start_is_noted_does_not_count_as_held() -> None:
    options = m.TopicOptions(segment_bytes=1000, retention_bytes=1000, hold_bytes=10_000)
    log = await new_log(MemoryDisk(), m.TopicRecord("orders", "0a" * 8, [0], options))
    second = log.end // 4  # all records have one size
    answers: Iterator[SlowestMark | None] = iter([SlowestMark(Offset(second), "billing"), None])
    await log.apply_retention(slowest=lambda: next(answers))
    assert log.start == second, "no more than was noted goes at once"
    assert (log.describe().held_bytes, log.describe().held_for) == (0, "")
    await log.apply_retention()
    assert log.start > second


async def test_removing_records_that_a_subscription_needs_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = await new_log(MemoryDisk())
    caplog.clear()
    await log.apply_retention(slowest=lambda: ZERO)
    (record,) = caplog.records
    assert record.message == "what a subscription has yet to process was removed"
    assert record.__dict__["subscription"] == "billing"
