"""One simulated disk: what its calls tell, what survives what, and what it does when told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from math import inf
from random import Random

import pytest
import trio
import trio.testing

from octopi.environment import Disk, File
from octopi.errors import DirectoryInUseError
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.faults import (
    Delay,
    DiskFault,
    Fail,
    MisdirectedRead,
    StaleRead,
    Tear,
)
from octopi.simulation.disk.image import SECTOR_BYTES, Fate
from octopi.simulation.disk.view import DiskView, after_by_trio


class Dead(BaseException):
    """What ends a process in these tests."""


class Process:
    """An effect that remembers the edges and can end the process at one of them."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.edges: list[tuple[str, str, str]] = []
        self.dies_at: tuple[str, str, str] | None = None
        self.is_dead = False

    def __call__(self, operation: str, edge: str, path: str) -> None:
        if (operation, edge, path) == self.dies_at:
            self.kill()
        if self.is_dead:
            raise Dead
        self.edges.append((operation, edge, path))

    def kill(self) -> None:
        self.is_dead = True
        self.disk.end_life()


def attach(disk: SimulatedDisk) -> DiskView:
    """A process that nothing happens to."""
    return disk.attach(lambda _operation, _edge, _path: None)


def disk_with(files: dict[str, bytes]) -> SimulatedDisk:
    """A disk with durable *files* in the directory ``/d``."""
    disk = SimulatedDisk()
    view = attach(disk)
    view.make_directory("/d")
    for path, data in files.items():
        file = view.open(path, create=True)
        file.append(data)
        file.close()
    disk.settle()
    return disk


def failure(number: int) -> pytest.RaisesExc[OSError]:
    """That an `OSError` with this number is raised."""
    return pytest.raises(OSError, check=lambda error: error.errno == number)


PATTERN = bytes(range(1, 256)) * 20
"""No byte is zero, and no sector is like another."""


# --- edges -------------------------------------------------------------------------------


async def test_each_disk_call_tells_its_steps() -> None:
    disk = SimulatedDisk()
    process = Process(disk)
    view = disk.attach(process)

    def told() -> list[str]:
        edges = [f"{operation} {edge} {path}" for operation, edge, path in process.edges]
        process.edges.clear()
        return edges

    view.make_directory("/a/b")
    assert told() == ["make_directory before /a/b", "make_directory after /a/b"]
    view.make_directory("/a/b")
    assert told() == ["make_directory before /a/b"]
    file = view.open("/a/f", create=True)
    assert told() == ["open before /a/f", "open after /a/f"]
    view.open("/a/f", create=True).close()
    view.open("/a/f").close()
    assert told() == ["open before /a/f"] * 2
    file.append(b"data")
    assert told() == ["append before /a/f", "append after /a/f"]
    file.pread(4, 0)
    view.read_file("/a/f")
    view.list_directory("/a")
    assert told() == ["pread before /a/f", "read_file before /a/f", "list_directory before /a"]
    file.rewrite(4, 0)
    assert told() == ["rewrite before /a/f", "rewrite after /a/f"]
    file.truncate(1)
    assert told() == ["truncate before /a/f", "truncate after /a/f"]
    await file.sync()
    assert told() == ["sync before /a/f", "sync during /a/f", "sync after /a/f"]
    view.rename("/a/f", "/a/g")
    assert told() == ["rename before /a/f", "rename after /a/f"]
    view.remove("/a/g")
    assert told() == ["remove before /a/g", "remove after /a/g"]
    view.remove_directory("/a/b")
    assert told() == ["remove_directory before /a/b", "remove_directory after /a/b"]
    await view.sync_directory("/a")
    assert told() == [
        "sync_directory before /a",
        "sync_directory during /a",
        "sync_directory after /a",
    ]
    view.lock_directory("/a")
    assert told() == ["lock_directory before /a", "lock_directory after /a"]
    await view.replace_file("/a/r", b"data")
    assert told() == [
        "replace_file before /a/r",
        "open before /a/r.new",
        "open after /a/r.new",
        "append before /a/r.new",
        "append after /a/r.new",
        "sync before /a/r.new",
        "sync during /a/r.new",
        "sync after /a/r.new",
        "rename before /a/r.new",
        "rename after /a/r.new",
        "sync_directory before /a",
        "sync_directory during /a",
        "sync_directory after /a",
        "replace_file after /a/r",
    ]


def test_a_process_killed_before_an_append_has_written_nothing() -> None:
    for edge, left in ("before", b"old"), ("after", b"oldnew"):
        disk = disk_with({"/d/f": b"old"})
        process = Process(disk)
        process.dies_at = ("append", edge, "/d/f")
        file = disk.attach(process).open("/d/f")
        with pytest.raises(Dead):
            file.append(b"new")
        assert disk.cached("/d/f") == left


def test_a_process_killed_within_an_append_has_written_a_part() -> None:
    disk = disk_with({"/d/f": b"old"})
    disk.inject(DiskFault("append", Tear(0.5)))
    process = Process(disk)
    process.dies_at = ("append", "during", "/d/f")
    file = disk.attach(process).open("/d/f")
    with pytest.raises(Dead):
        file.append(b"1234")
    assert disk.cached("/d/f") == b"old12"
    disk.inject(DiskFault("append", Tear(0.5)))
    survivor = attach(disk).open("/d/f")
    survivor.append(b"5678")
    assert disk.cached("/d/f") == b"old125678"
    for fraction in (0.5, 0.25, 0.75):
        disk.inject(DiskFault("append", Tear(fraction)))
    survivor.append(b"9abc")
    assert disk.cached("/d/f") == b"old1256789abc"


# --- the end of a process ------------------------------------------------------------------


CALLS: list[Callable[[Disk], object]] = [
    lambda view: view.open("/d/f"),
    lambda view: view.open("/d/new", create=True),
    lambda view: view.read_file("/d/f"),
    lambda view: view.make_directory("/e"),
    lambda view: view.list_directory("/d"),
    lambda view: view.remove("/d/f"),
    lambda view: view.remove_directory("/d"),
    lambda view: view.rename("/d/f", "/d/g"),
    lambda view: view.lock_directory("/d"),
]
FILE_CALLS: list[Callable[[File], object]] = [
    lambda file: file.append(b"x"),
    lambda file: file.pread(1, 0),
    lambda file: file.rewrite(1, 0),
    lambda file: file.truncate(0),
]


@pytest.mark.parametrize("told", [True, False])
async def test_a_dead_process_reaches_nothing(told: bool) -> None:
    disk = disk_with({"/d/f": b"content"})
    process = Process(disk)
    view = disk.attach(process)
    file = view.open("/d/f")
    lock = view.lock_directory("/d")
    assert view.open_files == ["/d/f"]
    process.kill()
    process.is_dead = told  # or its effect doesn't know
    refused = pytest.raises(Dead) if told else failure(errno.EBADF)
    for call in CALLS:
        with refused:
            call(view)
    for file_call in FILE_CALLS:
        with refused:
            file_call(file)
    for sync in (
        file.sync,
        lambda: view.sync_directory("/d"),
        lambda: view.replace_file("/d/f", b""),
    ):
        with refused:
            await sync()
    file.close()
    successor = attach(disk)
    held = successor.lock_directory("/d")
    lock.release()  # does nothing to the lock of another life
    with pytest.raises(DirectoryInUseError):
        successor.lock_directory("/d")
    held.release()
    assert disk.cached("/d/f") == b"content"
    assert disk.files() == ["/d/f", "/d/lock"]


async def test_the_end_of_a_process_loses_nothing() -> None:
    disk = SimulatedDisk()
    view = attach(disk)
    known = view.page_cache_id()
    view.make_directory("/d")
    view.open("/d/f", create=True).append(b"unsynced")
    view.rename("/d/f", "/d/g")
    disk.end_life()
    successor = attach(disk)
    assert successor.page_cache_id() == known
    assert successor.read_file("/d/g") == b"unsynced"
    assert disk.files() == ["/d/g"]
    disk.lose_power(Random(1), [Fate.LOST])
    assert attach(disk).page_cache_id() != known
    assert disk.files() == []


@pytest.mark.parametrize("power", [False, True])
async def test_a_sync_whose_process_ends_never_comes_back(
    power: bool, nursery: trio.Nursery
) -> None:
    disk = disk_with({"/d/f": b""})
    disk.inject(DiskFault("sync", Delay(inf)))
    process = Process(disk)
    file = disk.attach(process).open("/d/f")
    file.append(b"unsynced")
    died: list[str] = []

    async def sync() -> None:
        try:
            await file.sync()
        except Dead:
            died.append("here")

    nursery.start_soon(sync)
    nursery.start_soon(sync)
    await trio.testing.wait_all_tasks_blocked()
    process.kill()
    if power:
        disk.lose_power(Random(1), [Fate.LOST])
    await trio.testing.wait_all_tasks_blocked()
    assert died == ["here", "here"]
    assert disk.cached("/d/f") == (b"" if power else b"unsynced")
    assert disk.durable("/d/f") == b""
    successor = attach(disk).open("/d/f")
    await successor.sync()
    assert disk.durable("/d/f") == disk.cached("/d/f")


# --- syncs -----------------------------------------------------------------------------------


async def test_a_sync_covers_what_was_there_when_it_began(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    disk = disk_with({"/d/f": b"0123456789"})
    disk.sync_s = 5.0
    file = attach(disk).open("/d/f")
    file.append(b"abcdefghij")
    began = trio.current_time()
    nursery.start_soon(file.sync)
    await trio.sleep(1)
    file.append(b"later")
    assert disk.durable("/d/f") == b"0123456789"
    await trio.sleep(5)
    assert disk.durable("/d/f") == b"0123456789abcdefghij"
    nursery.start_soon(file.sync)
    await trio.sleep(1)
    file.truncate(22)
    file.append(b"!")
    await trio.sleep(5)
    assert trio.current_time() == began + 12
    assert disk.durable("/d/f") == b"0123456789abcdefghijla"
    disk.lose_power(Random(1), [Fate.KEPT])
    assert disk.cached("/d/f") == b"0123456789abcdefghijla!"


async def test_a_sync_that_has_begun_is_not_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = disk_with({"/d/f": b""})
    disk.sync_s = 5.0
    view = attach(disk)
    file = view.open("/d/f")
    file.append(b"data")
    with trio.move_on_after(1):
        await file.sync()
    assert disk.durable("/d/f") == b"data"
    with trio.move_on_after(1):
        await view.replace_file("/d/g", b"whole")
    assert disk.durable("/d/g") == b"whole"


async def test_a_delayed_sync_waits_by_the_clock_of_its_process() -> None:
    disk = disk_with({"/d/f": b""})
    disk.inject(DiskFault("sync", Delay(2.0)))
    waited: list[float] = []

    def after(seconds: float, action: Callable[[], object]) -> None:
        waited.append(seconds)
        after_by_trio(0.0, action)

    await disk.attach(lambda _operation, _edge, _path: None, after).open("/d/f").sync()
    assert waited == [2.001]


@pytest.mark.parametrize("edge", ["", "before", "during"])
async def test_a_later_sync_does_not_make_up_for_a_failed_one(edge: str) -> None:
    disk = disk_with({"/d/f": b"old"})

    def fail(operation: str, at: str, _path: str) -> None:
        if (operation, at) == ("sync", edge) and failing:
            raise OSError(errno.EIO, "the device failed")

    failing = True
    file = disk.attach(fail).open("/d/f")
    if not edge:
        disk.inject(DiskFault("sync", Fail(errno.EIO)))
    file.append(b"lost")
    with failure(errno.EIO):
        await file.sync()
    failing = False
    file.append(b"kept")
    await file.sync()
    assert file.pread(99, 0) == b"oldlostkept"
    assert disk.durable("/d/f") == b"old\0\0\0\0kept"
    disk.lose_power(Random(1))
    assert disk.cached("/d/f") == b"old\0\0\0\0kept"


async def test_a_concurrent_sync_does_not_cover_bytes_of_a_failed_one(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    disk = disk_with({"/d/f": b""})
    disk.sync_s = 5.0
    disk.inject(DiskFault("sync", Fail(errno.EIO)))
    file = attach(disk).open("/d/f")

    async def fail() -> None:
        with failure(errno.EIO):
            await file.sync()

    file.append(b"lost")
    nursery.start_soon(fail)
    await trio.sleep(1)
    file.append(b"kept")
    await file.sync()
    assert disk.durable("/d/f") == b"\0\0\0\0kept"


async def test_bytes_of_a_failed_sync_become_durable_when_they_are_written_once_more() -> None:
    disk = disk_with({"/d/f": b"old"})
    disk.inject(DiskFault("sync", Fail(errno.EIO)))
    file = attach(disk).open("/d/f")
    file.append(b"lost")
    with failure(errno.EIO):
        await file.sync()
    disk.end_life()
    file = attach(disk).open("/d/f")
    file.rewrite(4, 3)
    assert disk.durable("/d/f") == b"old"
    await file.sync()
    assert disk.durable("/d/f") == b"oldlost"


def test_a_disk_may_fail_to_write_once_more_and_what_is_durable_stays() -> None:
    disk = disk_with({"/d/f": b"old"})
    file = attach(disk).open("/d/f")
    with failure(errno.EINVAL):
        file.rewrite(1, -1)
    disk.inject(DiskFault("rewrite", Fail(errno.EIO)))
    with failure(errno.EIO):
        file.rewrite(3, 0)
    file.rewrite(3, 0)
    disk.lose_power(Random(1), [Fate.LOST])
    assert disk.cached("/d/f") == b"old"


async def test_names_whose_sync_failed_are_not_covered_by_the_next_one() -> None:
    disk = disk_with({})
    view = attach(disk)
    view.open("/d/failed", create=True)
    disk.inject(DiskFault("sync_directory"))
    with failure(errno.EIO):
        await view.sync_directory("/d")
    view.open("/d/synced", create=True)
    await view.sync_directory("/d")
    disk.lose_power(Random(1), [Fate.LOST])
    assert disk.files() == ["/d/synced"]


# --- power: contents -----------------------------------------------------------------------


def after_power_loss(fate: Fate, seed: int, synced: bytes, unsynced: bytes) -> bytes:
    disk = disk_with({"/d/f": synced})
    attach(disk).open("/d/f").append(unsynced)
    disk.lose_power(Random(seed), [fate])
    left = disk.cached("/d/f")
    assert left.startswith(synced)
    assert disk.durable("/d/f") == left
    return left


def test_the_unsynced_end_is_lost_or_kept() -> None:
    assert after_power_loss(Fate.LOST, 1, b"synced", PATTERN) == b"synced"
    assert after_power_loss(Fate.KEPT, 1, b"synced", PATTERN) == b"synced" + PATTERN


def test_a_torn_end_is_cut_where_a_sector_ends() -> None:
    whole = b"synced" + PATTERN
    lengths = {len(after_power_loss(Fate.TORN, seed, b"synced", PATTERN)) for seed in range(100)}
    assert lengths == {6, *range(SECTOR_BYTES, len(whole), SECTOR_BYTES), len(whole)}
    for seed in range(20):
        assert whole.startswith(after_power_loss(Fate.TORN, seed, b"synced", PATTERN))


def test_a_later_sector_survives_an_earlier_one() -> None:
    whole = b"synced" + PATTERN
    kinds: set[str] = set()
    for seed in range(50):
        left = after_power_loss(Fate.REORDERED, seed, b"synced", PATTERN)
        assert len(left) == len(whole)
        last = len(whole) // SECTOR_BYTES * SECTOR_BYTES
        assert left[last:] == whole[last:]
        assert left != whole
        for start in range(SECTOR_BYTES, last, SECTOR_BYTES):
            sector = left[start : start + SECTOR_BYTES]
            if sector == whole[start : start + SECTOR_BYTES]:
                kinds.add("written")
            else:
                kinds.add("garbage" if any(sector) else "zeros")
    assert kinds == {"written", "garbage", "zeros"}
    assert after_power_loss(Fate.REORDERED, 1, b"synced", b"x" * 9) != b"synced" + b"x" * 9


def test_garbage_may_follow_what_was_written() -> None:
    whole = b"synced" + PATTERN
    for seed in range(50):
        left = after_power_loss(Fate.GARBAGE, seed, b"synced", PATTERN)
        assert len(b"synced") < len(left) <= len(whole)
        sound = next(n for n, byte in enumerate(left) if byte != whole[n])
        assert sound == 6 or sound >= SECTOR_BYTES


def test_an_unsynced_truncation_may_be_undone_by_a_power_failure() -> None:
    found: set[bytes] = set()
    for seed in range(50):
        disk = disk_with({"/d/f": b"synced"})
        file = attach(disk).open("/d/f")
        file.append(b" and more")
        file.truncate(3)
        file.append(b"new")
        assert disk.durable("/d/f") == b"syn"
        disk.lose_power(Random(seed), [Fate.LOST, Fate.KEPT, Fate.TORN])
        found.add(disk.cached("/d/f"))
    assert found == {b"synced", b"synced and more", b"syn", b"synnew"}


async def test_a_synced_truncation_survives_a_power_failure() -> None:
    disk = disk_with({"/d/f": b"synced"})
    file = attach(disk).open("/d/f")
    file.truncate(3)
    await file.sync()
    disk.lose_power(Random(1))
    assert disk.cached("/d/f") == b"syn"


def test_the_fate_of_a_file_does_not_depend_on_other_files() -> None:
    def left(others: int) -> bytes:
        disk = disk_with({"/d/f": b""})
        view = attach(disk)
        for number in range(others):
            view.open(f"/d/{number}", create=True).append(PATTERN)
        view.open("/d/f").append(PATTERN)
        disk.lose_power(Random(7), [Fate.TORN, Fate.REORDERED, Fate.GARBAGE])
        return disk.cached("/d/f")

    assert left(0) == left(5)


# --- power: names ----------------------------------------------------------------------------


async def test_unsynced_names_may_survive_a_power_failure_or_not() -> None:
    found: set[str] = set()
    for seed in range(100):
        disk = disk_with({"/d/renamed": b"1", "/d/removed": b"2"})
        view = attach(disk)
        view.rename("/d/renamed", "/d/other")
        view.remove("/d/removed")
        made = view.open("/d/made", create=True)
        made.append(b"3")
        await made.sync()
        disk.lose_power(Random(seed))
        found.add(" ".join(disk.files()))
    assert found == {
        "/d/removed /d/renamed",
        "/d/other /d/removed",
        "/d/other",
        "/d/made /d/other",
    }


async def test_changes_of_names_may_also_lose_their_order() -> None:
    found: set[str] = set()
    for seed in range(300):
        disk = disk_with({"/d/a": b"1"})
        disk.names_in_order = False
        view = attach(disk)
        view.rename("/d/a", "/d/b")
        view.rename("/d/b", "/d/c")
        view.open("/d/d", create=True)
        disk.lose_power(Random(seed))
        found.add(" ".join(disk.files()))
    names = ["a", "b", "c", "a d", "b d", "c d"]
    assert found == {" ".join(f"/d/{one}" for one in each.split()) for each in names}


async def test_a_synced_directory_keeps_its_names_and_those_of_its_parents() -> None:
    disk = disk_with({"/d/f": b"content"})
    view = attach(disk)
    view.make_directory("/e")
    view.make_directory("/other")
    view.rename("/d/f", "/d/g")
    view.rename("/d/g", "/e/g")
    await view.sync_directory("/e")
    await view.sync_directory("/")
    view.open("/other/unsynced", create=True)
    disk.lose_power(Random(1), [Fate.LOST])
    assert disk.files() == ["/e/g"]
    assert attach(disk).list_directory("/") == ["d", "e", "other"]


async def test_a_name_may_survive_without_its_content() -> None:
    disk = disk_with({"/d/f": b"old"})
    view = attach(disk)
    view.open("/d/f.new", create=True).append(b"new")
    view.rename("/d/f.new", "/d/f")
    await view.sync_directory("/d")
    disk.lose_power(Random(1), [Fate.LOST])
    assert (disk.files(), disk.cached("/d/f")) == (["/d/f"], b"")


# --- faults ----------------------------------------------------------------------------------


def test_a_full_disk_takes_what_fits() -> None:
    disk = disk_with({"/d/f": b"123"})
    disk.capacity_bytes = 5
    view = attach(disk)
    file = view.open("/d/f")
    with failure(errno.ENOSPC):
        file.append(b"456")
    assert disk.cached("/d/f") == b"12345"
    assert file.size_bytes == 5
    view.remove("/d/f")
    view.open("/d/g", create=True).append(b"12345")
    disk.heal()
    file.append(b"6789")


def test_disk_calls_fail_as_injected() -> None:
    disk = disk_with({"/d/f": b"", "/d/g": b""})
    view = attach(disk)
    file = view.open("/d/f")
    disk.inject(DiskFault("append", Fail(errno.EIO, 0.5), "f", calls_before=1, times=2))
    disk.inject(DiskFault("truncate", Fail(errno.EIO, done=True)))
    disk.inject(DiskFault("rename", Fail(errno.EIO, done=True)))
    view.open("/d/g").append(b"not counted")
    file.append(b"ab")
    for _ in range(2):
        with failure(errno.EIO):
            file.append(b"cd")
    file.append(b"e")
    assert disk.cached("/d/f") == b"abcce"
    with failure(errno.EIO):
        file.truncate(0)
    assert (disk.cached("/d/f"), file.size_bytes) == (b"", 0)
    with failure(errno.EIO):
        view.rename("/d/f", "/d/h")
    assert disk.files() == ["/d/g", "/d/h"]
    disk.inject(DiskFault("", times=3))
    with failure(errno.EIO):
        view.open("/d/h")
    with failure(errno.EIO):
        view.open("/d/new", create=True)
    with failure(errno.EIO):
        file.pread(1, 0)
    disk.inject(DiskFault("open", Fail(done=True), times=2))
    for path in ("/d/h", "/d/made"):
        with failure(errno.EIO):
            view.open(path, create=True)
    assert disk.files() == ["/d/g", "/d/h", "/d/made"]
    disk.inject(DiskFault("read_file", Fail(done=True)))
    with failure(errno.EIO):
        view.read_file("/d/h")


async def test_a_replacement_that_fails_anywhere_leaves_old_or_new() -> None:
    for operation in ("replace_file", "open", "append", "sync", "rename", "sync_directory"):
        for done in (False, True):
            disk = disk_with({"/d/f": b"old content"})
            view = attach(disk)
            disk.inject(DiskFault(operation, Fail(errno.EIO, 0.5, done)))
            with failure(errno.EIO):
                await view.replace_file("/d/f", b"new content")
            assert disk.cached("/d/f") in {b"old content", b"new content"}
            assert view.open_files == []
            await view.replace_file("/d/f", b"next")
            assert view.list_directory("/d") == ["f"]
            disk.lose_power(Random(1), [Fate.LOST])
            assert disk.cached("/d/f") == b"next"


async def test_a_read_only_disk_reads() -> None:
    disk = disk_with({"/d/f": b"content"})
    view = attach(disk)
    file = view.open("/d/f")
    disk.read_only = True
    assert view.open("/d/f").pread(9, 0) == b"content"
    view.make_directory("/d")
    changes: list[Callable[[], object]] = [
        lambda: file.append(b"x"),
        lambda: file.truncate(0),
        lambda: view.open("/d/f", create=True),
        lambda: view.make_directory("/e"),
        lambda: view.remove("/d/f"),
        lambda: view.remove_directory("/d"),
        lambda: view.rename("/d/f", "/d/g"),
        lambda: view.lock_directory("/d"),
    ]
    for change in changes:
        with failure(errno.EROFS):
            change()
    with failure(errno.EROFS):
        await view.replace_file("/d/f", b"new")
    assert disk.cached("/d/f") == b"content"


def test_a_bit_turns_over_at_rest() -> None:
    disk = disk_with({"/d/f": b"\0\0"})
    attach(disk).open("/d/f").append(b"\0")
    disk.flip("/d/f", 9)
    disk.flip("/d/f", 16)
    assert disk.cached("/d/f") == b"\0\2\1"
    assert disk.durable("/d/f") == b"\0\2"


async def test_reads_may_return_bytes_of_another_position() -> None:
    disk = disk_with({"/d/f": b"0123"})
    file = attach(disk).open("/d/f")
    file.append(b"4567")

    def read(how: MisdirectedRead | StaleRead) -> bytes:
        disk.inject(DiskFault("pread", how))
        return file.pread(4, 2)

    assert read(MisdirectedRead(1)) == b"3456"
    assert read(MisdirectedRead(-4)) == b"\0\0" + b"01"
    assert read(MisdirectedRead(4)) == b"67\0\0"
    assert read(StaleRead()) == b"23\0\0"
    disk.inject(DiskFault("pread", StaleRead()))
    assert file.pread(9, 7) == b"\0"
    assert file.pread(4, 2) == b"2345"


# --- the whole disk --------------------------------------------------------------------------


async def test_a_disk_can_be_rolled_back_to_an_older_snapshot() -> None:
    disk = disk_with({"/d/f": b"old"})
    view = attach(disk)
    view.open("/d/unsynced", create=True)
    view.open("/d/f").append(b" unsynced")
    snapshot = disk.snapshot()
    await view.replace_file("/d/f", b"new")
    for _ in range(2):
        known = disk.page_cache_id()
        disk.restore(snapshot)
        assert disk.page_cache_id() != known
        assert (disk.files(), disk.cached("/d/f")) == (["/d/f"], b"old")
        attach(disk).open("/d/f").append(b" changed")
    with failure(errno.EBADF):
        view.read_file("/d/f")
    disk.wipe()
    assert disk.files() == []


def test_an_observer_reads_files_without_disk_calls() -> None:
    disk = disk_with({"/d/f": b"0123456789", "/e": b"x"})
    process = Process(disk)
    file = disk.attach(process).open("d/f")
    process.edges.clear()
    file.append(b"ab")
    process.edges.clear()
    assert disk.cached("/d/f", 8) == b"89ab"
    assert disk.durable("d/f", 8) == b"89"
    assert disk.durable("/d/f", 2, 5) == disk.cached("/d/f", 2, 5) == b"234"
    assert (disk.files(), disk.files("d/")) == (["/d/f", "/e"], ["/d/f"])
    with pytest.raises(FileNotFoundError):
        disk.cached("/no")
    attach(disk).open("/new", create=True)
    assert disk.cached("/new") == b""
    with pytest.raises(FileNotFoundError):
        disk.durable("/new")
    assert process.edges == []


def test_two_open_files_must_not_append_past_each_other() -> None:
    disk = disk_with({"/d/f": b""})
    first, second = attach(disk).open("/d/f"), attach(disk).open("/d/f")
    first.append(b"content")
    with pytest.raises(AssertionError, match="/d/f"):
        second.append(b"over it")
