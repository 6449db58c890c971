"""A broker's log: its files and its tasks."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing

from octopi import record
from octopi.environment import Environment, Trace, TraceEvent
from octopi.errors import DiskFullError, StorageError
from octopi.identifiers import (
    Epoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicId,
)
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.record import BatchBuilder, Run
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.prior_state import PriorState
from octopi.replication.producer_sequences import Duplicate, Fresh, ProducerSequences
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.local_log import LocalLog
from octopi.simulation.disk.image import Fate
from octopi.storage.flush_policy import FlushOptions
from octopi.subscriptions.known_marks import SlowestMark
from octopi.tracing import steps
from octopi.wire.messages import TopicOptions, TopicRecord
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet


async def open_log(
    disk: MemoryDisk,
    flush: FlushOptions | None = None,
    flusher: Flusher | None = None,
    *,
    options: TopicOptions | None = None,
    trace: Trace | None = None,
) -> LocalLog:
    clock = SystemClock()
    topic = TopicRecord("orders", "0a" * 8, [0], options or TopicOptions())
    return await LocalLog.open(
        Environment(clock, MemoryNet(), disk, SystemRandomness(), trace=trace),
        "orders",
        topic,
        PartitionId(0),
        flusher or Flusher(clock),
        flush or FlushOptions(),
    )


def repeated(sequence: int) -> Run:
    return Run(ProducerId(b"p" * 16), ProducerEpoch(0), Sequence(sequence), 1, 0, 10)


def append(log: LocalLog, sequence: int) -> Offset:
    builder = BatchBuilder()
    builder.add(b"value")
    data = builder.encode(b"p" * 16, 0, sequence)
    return log.append(data, record.scan(data))


async def test_a_flush_ends_even_if_its_records_are_cut_meanwhile(nursery: trio.Nursery) -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    log = await open_log(disk)
    append(log, 0)
    cut_at = append(log, 1)
    done = trio.Event()

    async def flush() -> None:
        await log.flush()
        done.set()

    with disk.syncs_held():
        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.truncate, cut_at)
        await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(5):
        await done.wait()
    assert log.end == cut_at


async def test_a_log_restarted_at_a_later_offset_keeps_epochs_and_producers_before_it() -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    log = await open_log(disk)
    append(log, 0)
    log.state.end = log.end
    known = ProducerSequences()
    known.record(repeated(7), Offset(200))
    log.state.restart(Offset(500), PriorState(EpochHistory.load([[1, 0]]), known))
    disk.fail(errno.EIO, "remove", path_end=".log")
    with pytest.raises(StorageError):
        await log.restart(Offset(500))
    found = await open_log(disk)
    assert (found.start, found.end) == (500, 500)
    assert found.state.sequences.check(repeated(7)) == Duplicate(Offset(200), 0)
    assert found.state.epochs.epoch_at(Offset(200)) == 1


async def test_retention_passes_over_a_log_that_is_being_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    log = await open_log(disk)
    append(log, 0)
    await log.discard()
    await log.apply_retention()
    assert not caplog.records


async def test_a_log_begins_behind_removed_segments_even_if_the_disk_failed_meanwhile() -> None:
    told: list[Offset] = []

    def trace(event: TraceEvent) -> None:
        if isinstance(event, steps.D4Retired):
            told.append(Offset(event.log_start))

    disk = MemoryDisk()
    disk.make_directory("orders")
    options = TopicOptions(segment_bytes=1, retention_bytes=0)
    log = await open_log(disk, options=options, trace=trace)
    bases = [append(log, sequence) for sequence in range(4)]
    await log.flush()
    log.publish(log.end)
    disk.fail(errno.EIO, "remove", path_end=".log", calls_before=1)
    await log.apply_retention()
    assert log.start == log.state.start == bases[1]
    await log.apply_retention()
    assert log.start == log.state.start == bases[3]
    assert told == [bases[1], bases[3]]


async def log_of_four(
    disk: MemoryDisk, hold_bytes: int | None = None
) -> tuple[LocalLog, list[Offset]]:
    """A log of four records, each in a segment of its own, and where they begin."""
    disk.make_directory("orders")
    options = TopicOptions(segment_bytes=1, retention_bytes=0, hold_bytes=hold_bytes)
    log = await open_log(disk, options=options)
    bases = [append(log, sequence) for sequence in range(4)]
    await log.flush()
    log.publish(log.end)
    return log, bases


async def test_what_a_failing_disk_keeps_does_not_count_as_held() -> None:
    disk = MemoryDisk()
    log, bases = await log_of_four(disk)
    disk.fail(errno.EIO, "remove", path_end=".log", calls_before=1)
    await log.apply_retention()
    assert log.start == bases[1]
    assert log.held_bytes == log.kept.held_bytes(log.start) == 0


async def test_what_is_held_for_a_subscription_counts_alone_though_a_removal_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    log, bases = await log_of_four(disk, hold_bytes=1)
    needed = SlowestMark(bases[1], "billing")
    held_bytes = bases[3] - bases[2]  # of the three closed segments, the bound permits one
    told = "what a subscription has yet to process was removed"
    disk.fail(errno.EIO, "remove", path_end=".log", calls_before=1)
    await log.apply_retention(slowest=lambda: needed)
    assert log.start == bases[1]
    assert (log.describe().held_bytes, log.describe().held_for) == (held_bytes, "billing")
    assert log.kept.held_bytes(needed.offset) == held_bytes
    assert told not in caplog.messages, "it could not be removed"
    await log.apply_retention(slowest=lambda: needed)
    assert log.start == bases[2]
    assert log.held_bytes == log.kept.held_bytes(needed.offset) == held_bytes
    assert told in caplog.messages


async def test_a_checkpoint_never_lands_in_the_next_topic_of_that_name() -> None:
    may_replace = trio.Event()

    class SlowDisk(MemoryDisk):
        async def replace_file(self, path: str, data: bytes) -> None:
            await may_replace.wait()
            await super().replace_file(path, data)

    disk = SlowDisk()
    disk.make_directory("orders")
    log = await open_log(disk)
    append(log, 0)

    async def make_anew() -> None:
        await log.discard()
        disk.rename("orders", "deleted")
        disk.make_directory("orders")

    with trio.fail_after(5):
        async with trio.open_nursery() as tasks:
            for do in (log.store_checkpoint, make_anew):
                tasks.start_soon(do)
                await trio.testing.wait_all_tasks_blocked()
            may_replace.set()
    assert "deleted/checkpoint" in disk.files()
    assert "orders/checkpoint" not in disk.files()


async def test_a_log_that_is_cut_keeps_the_epochs_of_removed_segments() -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    log = await open_log(disk)
    known = ProducerSequences()
    known.record(repeated(7), Offset(200))
    log.state.restart(Offset(500), PriorState(sequences=known))
    await log.restart(Offset(500))
    cut_at = append(log, 8)
    log.state.sequences.record(repeated(8), cut_at)
    await log.store_checkpoint()  # which knows too much then
    await log.truncate(cut_at)
    assert log.state.sequences.check(repeated(7)) == Duplicate(Offset(200), 0)
    assert log.state.sequences.check(repeated(8)) == Fresh()


async def test_a_checkpoint_stored_in_spite_of_an_error_is_not_believed_behind_a_cut() -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    log = await open_log(disk)
    cut_at = append(log, 0)
    log.state.sequences.record(repeated(0), cut_at)
    disk.fail(errno.ENOSPC, "replace_file", done=True)
    with pytest.raises(DiskFullError):
        await log.store_checkpoint()
    await log.truncate(cut_at)
    assert log.state.sequences.check(repeated(0)) == Fresh()
    disk.crash(keep_page_cache=True)
    found = await open_log(disk)
    assert found.end == cut_at
    assert found.state.sequences.check(repeated(0)) == Fresh()


async def test_a_checkpoint_in_progress_is_not_stored_after_a_cut() -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    log = await open_log(disk)
    append(log, 0)
    cut_at = append(log, 1)
    for sequence, offset in ((0, Offset(0)), (1, cut_at)):
        log.state.sequences.record(repeated(sequence), offset)
    with trio.fail_after(5):
        async with trio.open_nursery() as tasks:
            with disk.syncs_held():
                tasks.start_soon(log.store_checkpoint)
                await trio.testing.wait_all_tasks_blocked()
                tasks.start_soon(log.truncate, cut_at)
                await trio.testing.wait_all_tasks_blocked()
    found = await open_log(disk)
    assert found.end == cut_at
    assert found.state.sequences.check(repeated(1)) == Fresh()


@attrs.define
class Replica:
    """Whoever decides about a log; a flush has it say whether all of that is done."""

    is_settled: bool = False
    durable_end: Callable[[], int] = int

    def flushed(self, topic_id: TopicId, durable_end: Callable[[], Offset]) -> None:
        self.durable_end = durable_end

    def flush_failed(self, error: StorageError) -> None:
        raise error


async def test_a_flush_before_a_cut_stores_no_checkpoint_of_the_state_after_it(
    nursery: trio.Nursery,
) -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    flusher = Flusher(SystemClock())
    log = await open_log(disk, FlushOptions(messages=1, checkpoint_bytes=1), flusher)
    replica = Replica()
    log.replica = cast(Any, replica)
    nursery.start_soon(flusher.run)
    for is_settled, count in ((False, 0), (True, 1)):
        replica.is_settled = is_settled
        append(log, count)
        with trio.fail_after(5):
            while replica.durable_end() < log.end:
                await trio.testing.wait_all_tasks_blocked()
        assert ("orders/checkpoint" in disk.files()) == is_settled


async def test_a_flush_that_is_counted_after_a_cut_counts_no_record_appended_since(
    nursery: trio.Nursery,
) -> None:
    disk = MemoryDisk()
    disk.make_directory("orders")
    flusher = Flusher(SystemClock())
    log = await open_log(disk, FlushOptions(interval_s=60.0), flusher)
    replica = Replica(is_settled=True)
    log.replica = cast(Any, replica)
    nursery.start_soon(flusher.run)
    append(log, 0)
    cut_at = append(log, 1)
    log.want_flush()
    with trio.fail_after(5):
        while replica.durable_end() < log.end:
            await trio.testing.wait_all_tasks_blocked()
    await log.truncate(cut_at)
    append(log, 1)
    assert replica.durable_end() == cut_at < log.end


@pytest.mark.parametrize("appends_again", [False, True])
async def test_records_that_were_cut_never_come_back_as_those_of_a_newer_epoch(
    *, appends_again: bool
) -> None:
    for number in range(10):
        disk = MemoryDisk()
        disk.make_directory("orders")
        disk.settle()
        log = await open_log(disk)
        log.state.epochs.begin(Epoch(1), log.end)
        append(log, 0)
        cut_at = append(log, 1)
        log.state.end = log.end
        await log.flush()
        log.state.truncate(cut_at)
        await log.truncate(cut_at)
        log.state.epochs.begin(Epoch(2), cut_at)
        await log.store_checkpoint()
        if appends_again:
            append(log, 2)
        disk.simulated.lose_power(Random(number), (Fate.LOST,))
        disk.crash(keep_page_cache=True)
        found = await open_log(disk)
        assert found.state.epochs.dump() == [[1, 0], [2, cut_at]]
        assert found.end == cut_at


async def test_a_log_that_was_restarted_is_sound_after_a_power_failure() -> None:
    for number in range(10):
        disk = MemoryDisk()
        disk.make_directory("orders")
        disk.settle()
        log = await open_log(disk)
        append(log, 0)
        log.state.end = log.end
        await log.flush()
        log.state.restart(Offset(500), PriorState(EpochHistory.load([[1, 0]]), ProducerSequences()))
        await log.restart(Offset(500))
        await log.store_checkpoint()
        disk.simulated.lose_power(Random(number), (Fate.LOST,))
        disk.crash(keep_page_cache=True)
        found = await open_log(disk)
        assert (found.start, found.end, found.state.sound) == (500, 500, True)
