"""Retired replicas: a replica that a broker gave up is kept whole for a while."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio
import trio.testing

from octopi import record
from octopi.environment import Disk, Environment, TraceEvent
from octopi.operating_system import SystemRandomness
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.retired_folders import name_for, parse
from octopi.roles.broker.retired_replicas import RetiredReplicas
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.image import Fate
from octopi.storage.ends_file import load_ends
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet
from tests.kit.probes import batch
from tests.roles.replica_managers import started_manager

FORGED_EPOCH = 1_000_000
TOPIC = m.TopicRecord("orders", "0" * 16, [0], m.TopicOptions())
PLACED = m.PartitionRecord(0, 1, 0, 1, 1, [1, 2], [1, 2])
MOVED = m.PartitionRecord(0, FORGED_EPOCH, 0, 7, 7, [7], [7])
BACK = m.PartitionRecord(0, FORGED_EPOCH + 1, 0, 7, 7, [7, 1], [7])
RECORDS = batch(0, b"first", b"second")
WALL_MS = 1_800_000_000_000


class Clock:
    """One that tests move; the wall clock by itself."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wall = WALL_MS

    def now(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return self.wall

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep_forever()

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.CancelScope()


@asynccontextmanager
async def broker(
    disk: Disk,
    clock: Clock,
    keep_s: float = 3600.0,
    *,
    lost_power: bool = False,
    saw: Callable[[str], None] = lambda step: None,
) -> AsyncIterator[ReplicaManager]:
    """A broker's logs, from its start to its end."""

    def trace(step: TraceEvent) -> None:
        saw(step.text)

    environment = Environment(clock, MemoryNet(), disk, SystemRandomness(), trace)
    async with trio.open_nursery() as tasks:
        yield await started_manager(
            environment, tasks, lost_power=lost_power, keep_retired_s=keep_s
        )
        tasks.cancel_scope.cancel()


async def fill(logs: ReplicaManager) -> None:
    """Have a replica of partition 0 that holds `RECORDS`, durably."""
    await logs.install_partitions([PLACED], [])
    assert not await logs.install_topics([TOPIC])
    log = logs.store.find("orders", 0)
    log.append(RECORDS, record.scan(RECORDS))
    await log.flush()
    await logs.store.ends[0].sync()


def in_place(disk: Disk) -> list[str]:
    """What lies in the places of the replica."""
    return [
        f"{part}/{name}"
        for part in ("logs", "replicas")
        for name in disk.list_directory(f"data/{part}")
    ]


def kept(disk: Disk) -> list[str]:
    return disk.list_directory("data/retired")


def records_in(disk: Disk, root: str) -> bytes:
    folder = f"{root}/logs/0/orders"
    names = [name for name in disk.list_directory(folder) if name.endswith(".log")]
    return b"".join(disk.read_file(f"{folder}/{name}") for name in names)


def check_kept(disk: Disk) -> None:
    """The whole replica lies in one folder, and nothing in its places."""
    (name,) = kept(disk)
    parsed = parse(name)
    assert parsed is not None
    assert (parsed.partition, parsed.epoch, parsed.is_whole) == (0, FORGED_EPOCH, True)
    assert records_in(disk, f"data/retired/{name}") == RECORDS
    noted = load_ends(disk, f"data/retired/{name}/replicas/0.ends")
    assert noted is not None
    assert noted.logs[TOPIC.topic_id].recovery_point == len(RECORDS)
    assert "0" in disk.list_directory(f"data/retired/{name}/replicas")
    assert not in_place(disk)


async def test_one_forged_order_deletes_no_acknowledged_record() -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock) as logs:
        await fill(logs)
        assert not await logs.install_partitions([MOVED], [])
        assert logs.replica(0) is None
        assert not list(logs.store)
        check_kept(disk)
    async with broker(disk, clock) as logs:
        assert not list(logs.store)
        check_kept(disk)


@attrs.define
class Death(BaseException):
    """The process, or the machine, ends here."""


@attrs.define
class Killer:
    """Ends the process at the given edge of its calls."""

    disk: SimulatedDisk
    at: int
    count: int = 0
    is_armed: bool = False

    def __call__(self, operation: str, edge: str, path: str) -> None:
        if not self.is_armed:
            return
        self.count += 1
        if self.count == self.at:
            self.is_armed = False
            self.disk.end_life()
            raise Death


async def dies_at(disk: SimulatedDisk, clock: Clock, at: int) -> bool:
    """Retire the replica, and die at that call; False: there are not as many."""
    killer = Killer(disk, at)
    died = False
    try:
        async with broker(disk.attach(killer), clock) as logs:
            await fill(logs)
            killer.is_armed = True
            await logs.install_partitions([MOVED], [])
            killer.is_armed = False
            disk.end_life()
    except* Death:
        died = True
    return died


@pytest.mark.parametrize("names_in_order", [True, False])
@pytest.mark.parametrize("fate", [None, Fate.LOST, Fate.TORN])
async def test_a_broker_killed_while_it_retires_a_replica_leaves_it_whole(
    fate: Fate | None, *, names_in_order: bool
) -> None:
    for at in range(1, 1000):
        disk, clock = SimulatedDisk(), Clock()
        disk.sync_s, disk.names_in_order = 0.0, names_in_order
        died = await dies_at(disk, clock, at)
        if fate is not None:
            disk.lose_power(Random(at), [fate])
        view = disk.attach(lambda _operation, _edge, _path: None)
        async with broker(view, clock, lost_power=fate is not None) as logs:
            if logs.replica(0) is not None:  # the order was not stored yet
                assert records_in(view, "data") == RECORDS
            else:
                check_kept(view)
            assert not await logs.install_partitions([MOVED], [])
            check_kept(view)
        if not died:
            break
    assert at > 50


@pytest.mark.parametrize("operation", ["rename", "sync_directory", "make_directory"])
@pytest.mark.parametrize("calls_before", range(6))
@pytest.mark.parametrize("done", [False, True])
async def test_a_replica_that_could_not_be_retired_is_retired_when_its_disk_works_again(
    operation: str, calls_before: int, *, done: bool
) -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock) as logs:
        await fill(logs)
        disk.fail(errno.EIO, operation, calls_before=calls_before, times=99, done=done)
        await logs.install_partitions([MOVED], [])
    disk.crash(keep_page_cache=True)
    async with broker(disk, clock) as logs:
        assert logs.replica(0) is None
        disk.heal()
        await logs.delete_again()
        if not kept(disk):  # the order could not be stored
            await logs.install_partitions([MOVED], [])
        check_kept(disk)


async def test_a_partition_that_comes_back_begins_anew_beside_its_retired_replica() -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock) as logs:
        await fill(logs)
        await logs.install_partitions([MOVED], [])
        await logs.install_partitions([BACK], [])
        assert not await logs.install_topics([TOPIC])
        assert records_in(disk, "data") == b""
        (name,) = kept(disk)
        assert records_in(disk, f"data/retired/{name}") == RECORDS
        # It is given up once more in the same second.
        again = attrs.evolve(MOVED, epoch=BACK.epoch + 1)
        await logs.install_partitions([again], [])
        assert len(kept(disk)) == 2
        assert records_in(disk, f"data/retired/{name}") == RECORDS


async def test_a_half_retired_replica_is_retired_before_its_partition_comes_back() -> None:
    """The decision that brings it back may be stored before."""
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock) as logs:
        await fill(logs)
        disk.fail(errno.EIO, "rename", path_end="replicas/0", times=99)
        assert await logs.install_partitions([MOVED], [])
        assert await logs.install_partitions([BACK], [])
    disk.crash(keep_page_cache=True)
    disk.heal()
    async with broker(disk, clock) as logs:
        (name,) = kept(disk)
        assert records_in(disk, f"data/retired/{name}") == RECORDS
        assert logs.replica(0) is not None
        assert not await logs.install_topics([TOPIC])
        assert records_in(disk, "data") == b""


async def test_a_retired_replica_is_removed_after_its_time_and_not_by_a_clock_jump() -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock, keep_s=3600.0) as logs:
        await fill(logs)
        await logs.store.retired.turn(is_full=False)
        clock.now_s += 5.0
        await logs.install_partitions([MOVED], [])
        clock.wall += 10 * 365 * 24 * 3600 * 1000
        clock.now_s += 3599.0
        await logs.store.retired.turn(is_full=False)
        check_kept(disk)
        clock.now_s += 1.0
        await logs.store.retired.turn(is_full=False)
        assert not kept(disk)


async def test_a_retired_replica_ages_only_while_its_broker_runs() -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock, keep_s=3600.0) as logs:
        await fill(logs)
        await logs.install_partitions([MOVED], [])
        clock.now_s += 3000.0
        await logs.store.retired.turn(is_full=False)
    clock.now_s = 1e9
    clock.wall += 10**12
    async with broker(disk, clock, keep_s=3600.0) as logs:
        await logs.store.retired.turn(is_full=False)
        clock.now_s += 599.0
        await logs.store.retired.turn(is_full=False)
        (name,) = kept(disk)
        assert records_in(disk, f"data/retired/{name}") == RECORDS
        clock.now_s += 1.0
        await logs.store.retired.turn(is_full=False)
        assert not kept(disk)


async def test_a_broker_that_keeps_no_retired_replicas_deletes_at_once() -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock, keep_s=0.0) as logs:
        await fill(logs)
        await logs.install_partitions([MOVED], [])
        assert not kept(disk)
        assert not in_place(disk)


async def test_a_full_disk_has_the_oldest_retired_replicas_removed_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock) as logs:
        await fill(logs)
        await logs.install_partitions([MOVED], [])
        (first,) = kept(disk)
        clock.now_s += 10.0
        clock.wall += 10_000
        await logs.install_partitions([BACK], [])
        await logs.install_topics([TOPIC])
        await logs.install_partitions([attrs.evolve(MOVED, epoch=BACK.epoch + 1)], [])
        assert len(kept(disk)) == 2
        await logs.store.retired.turn(is_full=False)
        await logs.store.retired.turn(is_full=True)
        assert first not in kept(disk)
        assert len(kept(disk)) == 1
        assert "deleted to make room" in caplog.text
        await logs.store.retired.turn(is_full=True)
        assert not kept(disk)


async def test_a_replica_is_given_up_even_if_no_directory_can_be_made() -> None:
    """Moving replicas away is what makes room there."""
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock) as logs:
        await fill(logs)
        disk.fail(errno.ENOSPC, "make_directory", path_end="moving/replicas", times=99)
        assert await logs.install_partitions([MOVED], [])
        assert records_in(disk, "data") == RECORDS
        logs.status.disk.trouble = "full"
        await logs.delete_again()
        assert not in_place(disk)
        assert not kept(disk)


async def test_files_of_retired_replicas_are_removed_a_few_at_a_time() -> None:
    disk, clock = MemoryDisk(), Clock()
    folder = "data/retired/" + name_for(3, 5, WALL_MS, set())
    disk.make_directory(f"{folder}/logs/3/orders")
    for number in range(250):
        disk.plant(f"{folder}/logs/3/orders/{number:020d}.log", b"x")
    retired = RetiredReplicas(
        Environment(clock, MemoryNet(), disk, SystemRandomness()), "data", 1.0
    )
    await retired.turn(is_full=False)
    assert retired.size_bytes == 250
    clock.now_s += 2.0
    await retired.turn(is_full=False)
    assert retired.size_bytes == 0
    left = len(disk.files())
    assert left == 150
    # The process ends, and the next one goes on.
    retired = RetiredReplicas(
        Environment(clock, MemoryNet(), disk, SystemRandomness()), "data", 1.0
    )
    await retired.turn(is_full=False)
    assert len(disk.files()) == 50
    await retired.turn(is_full=False)
    await retired.turn(is_full=False)
    assert not disk.list_directory("data/retired")


async def test_a_failed_removal_of_a_retired_replica_is_logged_once_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, clock = MemoryDisk(), Clock()
    async with broker(disk, clock, keep_s=1.0) as logs:
        await fill(logs)
        await logs.install_partitions([MOVED], [])
        disk.fail(errno.EIO, "remove", path_end=".log", times=2)
        clock.now_s += 2.0
        for _ in range(2):
            await logs.store.retired.turn(is_full=False)
        assert caplog.text.count("retired replica not deleted") == 1
        await logs.store.retired.turn(is_full=False)
        assert not kept(disk)


def test_files_with_other_names_beside_retired_replicas_are_left_alone() -> None:
    name = name_for(0, FORGED_EPOCH, WALL_MS, set())
    assert name == "0-1000000-20270115T080000Z"
    assert name_for(0, FORGED_EPOCH, WALL_MS, {f"{name}.moving"}) == f"{name}.2"
    for other in ("notes", "0-1", "0-1-20271399T080000Z", f"{name}.copy", f"../{name}"):
        assert parse(other) is None
