"""A sync of a whole simulated disk: what it covers, how it fails, and who hears of that."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.disk.file_system_sync import sync_file_system
from octopi.simulation.disk.open_file import SimulatedFile
from octopi.simulation.disk.view import DiskView
from tests.simulation.test_disk import Dead, Process, attach, disk_with, failure

A, B = "/d/a", "/d/b"


def two_files() -> tuple[SimulatedDisk, DiskView, list[SimulatedFile]]:
    disk = disk_with({A: b"first", B: b"first"})
    disk.syncs_alone_max = 1
    view = attach(disk)
    files = [view.open(A), view.open(B)]
    for file in files:
        file.append(b"second")
    return disk, view, files


async def sync_all(files: Sequence[SimulatedFile]) -> list[int | None]:
    """Sync them at the same time; return the error of each."""
    errors: list[int | None] = [None] * len(files)

    async def sync(number: int) -> None:
        try:
            await files[number].sync()
        except OSError as error:
            errors[number] = error.errno

    async with trio.open_nursery() as nursery:
        for number in range(len(files)):
            nursery.start_soon(sync, number)
    return errors


async def sync_each(files: Sequence[SimulatedFile]) -> None:
    """Sync each by itself; further syncs are made together."""
    for file in files:
        await file.sync()


async def test_it_covers_every_file_and_all_names(autojump_clock: trio.testing.MockClock) -> None:
    disk, view, files = two_files()
    view.open("/d/c", create=True).append(b"new")
    await sync_file_system(view, files[:1])
    assert disk.durable(A) == disk.durable(B) == b"firstsecond"
    assert disk.durable("/d/c") == b"new"


async def test_it_covers_what_was_there_when_it_began(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, view, files = two_files()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync_file_system, view, files)
        await trio.testing.wait_all_tasks_blocked()
        files[0].append(b"third")
    assert disk.durable(A) == b"firstsecond"


async def test_a_file_that_is_not_written_fails_it_for_all_and_its_own_next_sync(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, view, files = two_files()
    disk.inject(DiskFault("sync", Fail(), "b"))
    with failure(errno.EIO):
        await sync_file_system(view, files[:1])
    assert disk.durable(A) == disk.durable(B) == b"first"
    await files[0].sync()
    assert disk.durable(A) == b"firstsecond"
    with failure(errno.EIO):
        await files[1].sync()
    await files[1].sync()  # which writes nothing: the system takes the bytes for written
    assert disk.durable(B) == b"first" + bytes(6)


async def test_a_file_that_is_written_and_reported_as_failed_fails_it_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, view, files = two_files()
    disk.inject(DiskFault("sync", Fail(done=True), "b"))
    with failure(errno.EIO):
        await sync_file_system(view, files)
    assert disk.durable(B) == b"firstsecond"


async def test_a_slow_file_delays_it(autojump_clock: trio.testing.MockClock) -> None:
    disk, view, files = two_files()
    disk.inject(DiskFault("sync", Delay(5.0), "b"))
    began = trio.current_time()
    await sync_file_system(view, files[:1])
    assert trio.current_time() - began == pytest.approx(5.0 + disk.sync_s)


async def test_files_that_are_synced_at_the_same_time_are_synced_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, view, files = two_files()
    third = view.open("/d/c", create=True)
    await sync_each([*files, third])
    third.append(b"new")
    began = trio.current_time()
    assert await sync_all([*files, third]) == [None] * 3
    assert trio.current_time() - began <= 2 * disk.sync_s + 1e-9
    assert disk.durable("/d/c") == b"new"  # so its name was synced, too


async def test_the_first_sync_of_an_opened_file_is_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Only that one tells whether writing it failed before it was opened."""
    disk, view, files = two_files()
    disk.inject(DiskFault("sync", Fail(), "b"))
    with failure(errno.EIO):
        await sync_file_system(view, files[:1])
    assert await sync_all([view.open(A), view.open(B)]) == [None, errno.EIO]


async def test_a_failure_reaches_all_that_were_synced_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, view, files = two_files()
    third = view.open("/d/c", create=True)
    await sync_each([*files, third])
    for file in (*files, third):
        file.append(b"new")
    disk.inject(DiskFault("sync", Fail(), "", calls_before=1))
    errors = await sync_all([*files, third])
    assert errors.count(errno.EIO) >= 2


@pytest.mark.parametrize("edge", ["before", "during", "after"])
async def test_it_reports_the_edges_of_a_sync_of_each_file(
    edge: str, autojump_clock: trio.testing.MockClock
) -> None:
    disk = disk_with({A: b"first", B: b"first"})
    process = Process(disk)
    view = disk.attach(process)
    files = [view.open(A), view.open(B)]
    for file in files:
        file.append(b"second")
    process.edges.clear()
    await sync_file_system(view, files)
    assert process.edges == [
        ("sync", one, path) for one in ("before", "during", "after") for path in (A, B)
    ]
    files[0].append(b"third")
    process.dies_at = ("sync", edge, B)
    with pytest.raises(Dead):
        await sync_file_system(view, files)
    assert disk.durable(A) == (b"firstsecondthird" if edge == "after" else b"firstsecond")
