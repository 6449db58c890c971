"""A log whose checkpoint is an older copy of itself, gone or damaged: a new one is made of what is
noted of it and of the records, the replica isn't intact, and no record is lost."""

from __future__ import annotations

import errno

import attrs
import pytest

from octopi.errors import StorageError
from octopi.identifiers import BrokerId, Epoch, Offset
from octopi.operating_system import SystemClock
from octopi.replication.effects import ReplicaState
from octopi.replication.producer_sequences import Duplicate, Fresh
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.opening import Opening
from octopi.storage import checkpoint
from octopi.storage.flush_policy import FlushOptions
from octopi.wire.messages import PartitionRecord
from tests.kit.disk import MemoryDisk
from tests.roles.test_crash_points import (
    DIRECTORY,
    PARTITION,
    STATE,
    TOPIC,
    append,
    decide_restart,
    environment_of,
    is_intact,
    new_log,
    opened,
    run_at,
)

CHECKPOINT = f"{DIRECTORY}/checkpoint"
ENDS = f"{STATE}.ends"


async def begin_epoch(log: LocalLog, epoch: int) -> None:
    log.state.epochs.begin(Epoch(epoch), log.end)
    await log.store_checkpoint()


async def two_epochs(disk: MemoryDisk) -> tuple[LocalLog, bytes]:
    """A log whose second epoch wrote the newest records, and its checkpoint of before."""
    log = await new_log(disk)
    older = disk.content(CHECKPOINT)
    await begin_epoch(log, 7)
    for sequence in range(4, 6):
        append(log, sequence)
    await log.flush()
    log.publish(log.end)
    log.note_ends()
    return log, older


def end_process(disk: MemoryDisk) -> None:
    disk.crash(keep_page_cache=True)
    disk.settle()


def make_older(disk: MemoryDisk, older: bytes) -> None:
    disk.plant(CHECKPOINT, older)


def remove(disk: MemoryDisk, older: bytes) -> None:
    disk.remove(CHECKPOINT)


def flip(disk: MemoryDisk, older: bytes) -> None:
    disk.flip(CHECKPOINT, 200)


WAYS = pytest.mark.parametrize("harm", [make_older, remove, flip])


@WAYS
async def test_an_unusable_checkpoint_is_made_anew_and_no_record_is_lost(
    harm: object,
) -> None:
    disk = MemoryDisk()
    log, older = await two_epochs(disk)
    end_process(disk)
    assert callable(harm)
    harm(disk, older)
    found = await opened(disk)
    assert not is_intact(disk), "the register has to hear of it"
    assert (found.start, found.end, found.highwater) == (log.start, log.end, log.end)
    assert found.fault is None
    assert found.state.epochs.dump() == log.state.epochs.dump()
    assert isinstance(found.state.sequences.check(run_at(5)), Duplicate)
    assert isinstance(found.state.sequences.check(run_at(6)), Fresh)
    assert not [name for name in disk.files("data/logs") if ".damaged" in name]


async def test_an_older_checkpoint_is_noticed_at_every_start() -> None:
    disk = MemoryDisk()
    _, older = await two_epochs(disk)
    for _ in range(2):
        end_process(disk)
        make_older(disk, older)
        await checkpoint.store(disk, STATE, attrs.asdict(ReplicaState(ends=True)))
        await opened(disk)
        assert not is_intact(disk)


async def test_a_checkpoint_stored_and_not_noted_is_not_taken_for_an_older_one() -> None:
    disk = MemoryDisk()
    log, _ = await two_epochs(disk)
    noted = disk.content(ENDS)
    await begin_epoch(log, 8)
    end_process(disk)
    disk.plant(ENDS, noted)
    found = await opened(disk)
    assert is_intact(disk)
    assert found.state.epochs.latest == 8
    before = disk.content(CHECKPOINT)
    await found.store_checkpoint()
    end_process(disk)
    make_older(disk, before)
    await opened(disk)
    assert not is_intact(disk), "it was noted when it was opened"


async def test_a_checkpoint_that_was_read_and_lost_with_the_power_is_not_missed() -> None:
    disk = MemoryDisk()
    log, _ = await two_epochs(disk)
    disk.leave_names_unsynced(DIRECTORY)
    with pytest.raises(StorageError):
        await begin_epoch(log, 8)
    disk.crash(keep_page_cache=True)
    found = await opened(disk)
    assert found.state.epochs.latest == 8
    assert found._notes is not None
    await found._notes.sync()
    disk.crash(keep_page_cache=False)
    await opened(disk, lost_power=True)
    assert is_intact(disk)


async def test_a_number_that_a_failed_checkpoint_may_have_is_not_used_again() -> None:
    disk = MemoryDisk()
    log, _ = await two_epochs(disk)
    known = (checkpoint.load(disk, CHECKPOINT) or {})["number"]
    disk.fail(errno.EIO, "replace_file", path_end="checkpoint")
    with pytest.raises(StorageError, match="can't be replaced"):
        await log.store_checkpoint()
    await log.store_checkpoint()
    assert (checkpoint.load(disk, CHECKPOINT) or {})["number"] == known + 2


async def test_an_older_checkpoint_of_a_restart_removes_no_segment() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    decide_restart(log)
    await log.restart(log.state.end)
    about_to_restart = disk.content(CHECKPOINT)
    # It is filled from before that place after all: its next leader's log begins there.
    log.state.restart(Offset(100), log.state.past(log.end))
    await log.restart(log.state.end)
    append(log, 21)
    await log.store_checkpoint()
    assert log.end > 100
    end_process(disk)
    make_older(disk, about_to_restart)
    found = await opened(disk)
    assert not is_intact(disk)
    assert (found.start, found.end) == (log.start, log.end)


async def of_broker(disk: MemoryDisk, replicas: list[int]) -> Opening:
    record = PartitionRecord(
        partition=PARTITION,
        epoch=1,
        version=1,
        leader=1,
        leader_incarnation=1,
        replicas=replicas,
        in_sync=[1],
    )
    opening = Opening(
        environment_of(disk), "data", Flusher(SystemClock()), FlushOptions(), lost_power=True
    )
    await opening.open(PARTITION, record, BrokerId(1))
    return opening


@pytest.mark.parametrize("replicas", [[1], [1, 2]])
async def test_only_a_sole_replica_goes_on_if_a_power_failure_took_the_newest_epoch(
    replicas: list[int],
) -> None:
    disk = MemoryDisk()
    log, older = await two_epochs(disk)
    end_process(disk)
    make_older(disk, older)
    opening = await of_broker(disk, replicas)
    found = opening.logs["orders", PARTITION]
    assert not is_intact(disk)
    if replicas == [1]:
        assert (found.end, found.fault) == (log.end, None)
    else:
        assert (found.end, found.fault is None) == (0, False), "it is filled again by its leader"
        assert [name for name in disk.files("data/logs") if "orders!1.damaged" in name]


async def test_a_damaged_file_of_ends_is_not_believed() -> None:
    disk = MemoryDisk()
    _, older = await two_epochs(disk)
    end_process(disk)
    make_older(disk, older)
    disk.flip(ENDS, 8 * 30)
    found = await opened(disk)
    assert not is_intact(disk)
    assert found.end == 0
    assert [name for name in disk.files("data/logs") if "orders!1.damaged" in name]


async def test_a_checkpoint_of_a_deleted_topic_of_that_name_has_no_records_deleted() -> None:
    disk = MemoryDisk()
    await two_epochs(disk)
    end_process(disk)
    stored = checkpoint.load(disk, CHECKPOINT) or {}
    await checkpoint.store(
        disk, CHECKPOINT, {**stored, "topic": {**stored["topic"], "topic_id": "0b" * 8}}
    )
    found = await opened(disk)
    assert found.topic_id == TOPIC.topic_id
    assert not is_intact(disk)
    assert [name for name in disk.files("data/logs") if "orders!1.damaged" in name]


async def test_a_log_of_which_no_checkpoint_was_noted_is_set_aside() -> None:
    disk = MemoryDisk()
    await new_log(disk)
    await checkpoint.store(disk, STATE, attrs.asdict(ReplicaState(ends=True)))
    end_process(disk)
    disk.remove(CHECKPOINT)
    disk.remove(ENDS)
    found = await opened(disk)
    assert found.end == 0
    assert [name for name in disk.files("data/logs") if "orders!1.damaged" in name]
