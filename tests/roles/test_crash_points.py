"""A log drops records on purpose: in whatever call its process dies, it opens again as it was, or
as it is to be, and does not look damaged."""

from __future__ import annotations

import errno
from contextlib import suppress

import attrs
import pytest

from octopi import record
from octopi.environment import Environment
from octopi.errors import StorageError
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.record import BatchBuilder, Run
from octopi.replication.effects import ReplicaState
from octopi.replication.prior_state import PriorState
from octopi.replication.producer_sequences import Duplicate, ProducerSequences
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.making import NewLog
from octopi.roles.broker.opening import Opening
from octopi.roles.broker.replica_state import stored_state
from octopi.storage import checkpoint
from octopi.storage.flush_policy import FlushOptions
from octopi.wire.messages import TopicOptions, TopicRecord
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet

PARTITION = PartitionId(0)
STATE = "data/replicas/0"
DIRECTORY = "data/logs/0/orders"
TOPIC = TopicRecord("orders", "0a" * 8, [0], TopicOptions(segment_bytes=1000, retention_bytes=1000))
PRODUCER = ProducerId(b"p" * 16)
BEGIN = Offset(9000)


def environment_of(disk: MemoryDisk) -> Environment:
    return Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())


def run_at(sequence: int) -> Run:
    return Run(PRODUCER, ProducerEpoch(0), Sequence(sequence), 1, 0, 10)


def append(log: LocalLog, sequence: int) -> Offset:
    builder = BatchBuilder()
    builder.add(b"v" * 600)
    data = builder.encode(PRODUCER, ProducerEpoch(0), Sequence(sequence))
    scan = record.scan(data)
    offset = log.append(data, scan)
    log.state.end = log.end
    log.state.sequences.note(scan, offset)
    return offset


async def opened(
    disk: MemoryDisk, *, lost_power: bool = False, topic: TopicRecord = TOPIC
) -> LocalLog:
    """The log, as a broker opens it that starts."""
    flusher = Flusher(SystemClock())
    opening = Opening(environment_of(disk), "data", flusher, FlushOptions(), lost_power=lost_power)
    await opening.open(PARTITION, None, None)
    if not opening.logs:
        new = NewLog(DIRECTORY, topic, PARTITION)
        await opening.making.make([new])
        if new.error is not None:
            raise new.error
    return opening.logs["orders", PARTITION]


async def new_log(disk: MemoryDisk, topic: TopicRecord = TOPIC) -> LocalLog:
    """A log with a few segments, durable and noted as such."""
    for directory in ("data", "data/logs", "data/replicas"):
        disk.make_directory(directory)
    log = await opened(disk, topic=topic)
    await checkpoint.store(disk, STATE, attrs.asdict(ReplicaState(ends=True)))
    for sequence in range(4):
        append(log, sequence)
    await log.store_checkpoint()
    log.state.highwater = log.end
    log.publish(log.end)
    log.note_ends()
    assert log._notes is not None
    await log._notes.sync()
    disk.settle()
    return log


def is_intact(disk: MemoryDisk) -> bool:
    return stored_state(environment_of(disk), STATE).intact


def decide_restart(log: LocalLog) -> None:
    known = ProducerSequences()
    known.record(run_at(20), Offset(BEGIN - 100))
    log.state.restart(BEGIN, PriorState(sequences=known))


def decide_cut(log: LocalLog) -> None:
    end = Offset(log.end // 2)
    log.state.accept_loss(end)
    log.state.truncate(end)


def decide_nothing(log: LocalLog) -> None:
    pass


async def restart(log: LocalLog) -> None:
    await log.restart(log.state.end)


async def cut(log: LocalLog) -> None:
    await log.truncate(log.state.end)


async def retain(log: LocalLog) -> None:
    await log.apply_retention()


WAYS = {
    "restart": (decide_restart, restart),
    "cut": (decide_cut, cut),
    "retain": (decide_nothing, retain),
}


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("names_kept", [False, True])
@pytest.mark.parametrize("is_second_try", [False, True])
@pytest.mark.parametrize("way", list(WAYS))
async def test_a_process_killed_while_it_drops_records_leaves_no_damage(
    way: str, *, is_second_try: bool, names_kept: bool, loses_power: bool
) -> None:
    """The second try follows one in which the disk failed once."""
    decide, carry_out = WAYS[way]
    for failed_at in range(0, 20) if is_second_try else [-1]:
        for ends_at in range(40):
            disk = MemoryDisk()
            log = await new_log(disk)
            old = (log.start, log.end)
            decide(log)
            if is_second_try:
                disk.fail(errno.ENOSPC, calls_before=failed_at, times=2)
                with suppress(StorageError):
                    await carry_out(log)
                disk.heal()
            calls_before = len(disk.calls)
            disk.fail(errno.EIO, calls_before=ends_at, times=10_000)
            with suppress(StorageError):
                await carry_out(log)
            is_over = len(disk.calls) - calls_before <= ends_at
            disk.crash(keep_page_cache=not loses_power, names_kept=names_kept)
            found = await opened(disk, lost_power=loses_power)
            where = f"it ended in call {ends_at}, after a failure in call {failed_at}"
            assert found.fault is None, where
            assert is_intact(disk), where
            found.state.check_invariants()
            if way == "restart":
                assert (found.start, found.end) in {old, (BEGIN, BEGIN)}, where
            if found.start == BEGIN:
                known = found.state.sequences
                assert known.check(run_at(20)) == Duplicate(Offset(BEGIN - 100), 0), where
            if is_over:
                break
        assert is_over, "it never came to an end"


async def begun_restart() -> MemoryDisk:
    """A disk with a log that died while it dropped its records: the newest segments are gone."""
    disk = MemoryDisk()
    log = await new_log(disk)
    decide_restart(log)
    disk.fail(errno.EIO, "remove", path_end=".log", calls_before=2, times=10)
    with pytest.raises(StorageError):
        await restart(log)
    disk.crash(keep_page_cache=True)
    disk.settle()
    assert any(name.endswith("00.log") for name in disk.files(DIRECTORY))
    return disk


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("names_kept", [False, True])
async def test_a_log_restart_is_finished_even_if_the_finishing_process_dies_too(
    *, names_kept: bool, loses_power: bool
) -> None:
    for ends_at in range(80):
        disk = await begun_restart()
        calls_before = len(disk.calls)
        # Reading works: a broker that can't read leaves a log out, and the replica isn't intact.
        for operation in ("remove", "open", "replace_file", "append", "truncate", "rename"):
            disk.fail(errno.EIO, operation, calls_before=ends_at, times=10_000)
        with suppress(StorageError):
            await opened(disk)
        is_over = len(disk.calls) - calls_before <= ends_at
        disk.crash(keep_page_cache=not loses_power, names_kept=names_kept)
        found = await opened(disk, lost_power=loses_power)
        assert (found.start, found.end, found.fault) == (BEGIN, BEGIN, None), ends_at
        found.state.check_invariants()
        assert found.state.sequences.check(run_at(20)) == Duplicate(Offset(BEGIN - 100), 0)
        if is_over:
            return
    pytest.fail("it never came to an end")


async def test_a_log_restart_is_finished_even_if_the_rest_of_the_log_can_not_be_cut() -> None:
    disk = await begun_restart()
    left = f"{DIRECTORY}/{'0' * 20}.log"
    disk.plant(left, disk.content(left) + b"torn")
    disk.fail(errno.ENOSPC, "truncate", times=100)
    found = await opened(disk)
    assert (found.start, found.end, found.fault) == (BEGIN, BEGIN, None)
    found.state.check_invariants()
    assert is_intact(disk)


async def test_a_log_that_begins_anew_on_a_full_disk_is_whole_when_it_is_opened_again() -> None:
    disk = await begun_restart()
    disk.fail(errno.ENOSPC, "open", path_end=f"{BEGIN:020}.log", times=100)
    for _ in range(2):
        found = await opened(disk)
        assert (found.start, found.end, found.fault) == (BEGIN, BEGIN, None)
        await found.store_checkpoint()
        assert is_intact(disk)
        found._files.close()
    disk.heal()
    found = await opened(disk)
    append(found, 21)
    await found.store_checkpoint()
    end = found.end
    disk.crash(keep_page_cache=False)
    found = await opened(disk, lost_power=True)
    assert (found.start, found.end, found.fault) == (BEGIN, end, None)


async def test_retention_waits_for_a_log_that_is_to_begin_anew_and_could_not_yet() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    decide_restart(log)
    disk.fail(errno.EROFS, "replace_file", path_end="checkpoint", times=1)
    with pytest.raises(StorageError):
        await restart(log)
    await log.apply_retention()
    disk.fail(errno.EROFS, "remove", path_end=".log", times=100)
    with pytest.raises(StorageError):
        await restart(log)
    disk.crash(keep_page_cache=True)
    disk.heal()
    found = await opened(disk)
    assert (found.start, found.end, found.fault) == (BEGIN, BEGIN, None)
    found.state.check_invariants()
    assert found.state.sequences.check(run_at(20)) == Duplicate(Offset(BEGIN - 100), 0)


async def test_producers_are_known_once_even_if_no_record_starts_at_the_recovery_point() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    producers = log.state.sequences.dump()
    disk.crash(keep_page_cache=True)
    stored = checkpoint.load(disk, f"{DIRECTORY}/checkpoint")
    assert stored is not None
    stored.update(recovery_point=log.end - 1)
    await checkpoint.store(disk, f"{DIRECTORY}/checkpoint", stored)
    found = await opened(disk)
    assert (found.end, found.fault) == (log.end, None)
    found.state.check_invariants()
    assert found.state.sequences.dump() == producers


async def test_records_lost_in_a_power_failure_are_not_damage_to_the_next_process() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    durable_end = log.end
    append(log, 4)
    log.state.highwater = committed = log.end
    log.publish(committed)
    log.note_ends()
    assert log._notes is not None
    await log._notes.sync()
    disk.crash(keep_page_cache=False)
    found = await opened(disk, lost_power=True)
    assert (found.end, found.fault, found.state.held_end) == (durable_end, None, committed)
    disk.crash(keep_page_cache=True)
    found = await opened(disk)
    assert (found.end, found.fault) == (durable_end, None)
    assert found.state.held_end == committed, "what is lost is still known"
    append(found, 4)
    found.publish(found.end)
    found.note_ends()
    disk.crash(keep_page_cache=True)
    newest = max(name for name in disk.files(DIRECTORY) if name.endswith(".log"))
    disk.plant(newest, disk.content(newest)[:-10])
    found = await opened(disk)
    assert found.fault is not None, "what is committed since must be there"


async def damaged() -> tuple[MemoryDisk, LocalLog]:
    """A log with a whole segment, and damage behind it."""
    disk = MemoryDisk()
    log = await new_log(disk)
    middle = sorted(name for name in disk.files(DIRECTORY) if name.endswith(".log"))[2]
    disk.crash(keep_page_cache=True)
    disk.remove(middle)
    disk.settle()
    found = await opened(disk)
    assert found.fault is not None
    assert found.end < log.end
    return disk, found


@pytest.mark.parametrize("change", ["publish", "cut", "restart"])
async def test_a_log_is_noted_once_after_it_has_changed_and_costs_nothing_while_it_rests(
    change: str,
) -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    notes = log._notes
    assert notes is not None
    notes.note_changed()
    assert not notes._later, "it rests"
    if change == "publish":
        for sequence in (4, 5):
            append(log, sequence)
            log.state.highwater = log.end
            log.publish(log.end)
            await log.flush()
    elif change == "cut":
        decide_cut(log)
        await log.truncate(log.state.end)
    else:
        decide_restart(log)
        await log.restart(BEGIN)
    assert len(notes._later) == 1
    notes.note_changed()
    noted = notes.noted(log.topic_id)
    assert noted is not None
    assert (noted.start, noted.highwater) == (log.start, log.highwater)
    assert noted.recovery_point == log.end
    assert not notes._later


async def test_a_damaged_log_does_not_note_producers_behind_its_recovery_point() -> None:
    disk, log = await damaged()
    stored = checkpoint.load(disk, f"{DIRECTORY}/checkpoint")
    assert stored is not None
    stored.update(recovery_point=0, producers=[])
    await checkpoint.store(disk, f"{DIRECTORY}/checkpoint", stored)
    for _ in range(2):
        log = await opened(disk)
        log.state.check_invariants()
        assert log.state.sequences.next_sequence(PRODUCER) == 2
        await log.store_checkpoint()


async def test_setting_records_aside_is_noted_on_a_second_try_after_a_failure() -> None:
    disk, log = await damaged()
    disk.fail(errno.ENOSPC, "replace_file", path_end="checkpoint")
    with pytest.raises(StorageError):
        await log.set_aside(refill=True)
    await log.set_aside(refill=True)
    end = log.end
    disk.crash(keep_page_cache=True)
    found = await opened(disk)
    assert (found.fault, found.end) == (None, end)
