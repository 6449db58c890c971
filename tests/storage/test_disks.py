"""The disk in memory and the simulated one behave like the real one, as far as storage can
tell; the simulated one also where only a careless program could."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from octopi.environment import Disk
from octopi.errors import DirectoryInUseError
from octopi.operating_system import SystemDisk
from octopi.simulation.disk.disk import SimulatedDisk
from tests.fakes.disk import MemoryDisk


def simulated_disk() -> Disk:
    return SimulatedDisk().attach(lambda _operation, _edge, _path: None)


@pytest.fixture(params=["memory", "simulated", "system"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and an empty directory on it."""
    if request.param == "system":
        return SystemDisk(), str(tmp_path)
    disk = MemoryDisk() if request.param == "memory" else simulated_disk()
    disk.make_directory("/tmp/test")
    return disk, "/tmp/test"


@pytest.fixture(params=["simulated", "system"])
def faithful(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """The same, but for the disk in memory, which takes some corners."""
    if request.param == "system":
        return SystemDisk(), str(tmp_path)
    disk = simulated_disk()
    disk.make_directory("/tmp/test")
    return disk, "/tmp/test"


def failure(number: int) -> pytest.RaisesExc[OSError]:
    """That an `OSError` with this number is raised."""
    return pytest.raises(OSError, check=lambda error: error.errno == number)


async def test_a_file_keeps_what_was_appended(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    assert (file.size_bytes, file.path) == (0, f"{root}/file")
    file.append(b"one")
    file.append(memoryview(b"two"))
    assert file.size_bytes == 6
    assert file.pread(4, 1) == b"netw"
    assert file.pread(10, 4) == b"wo"
    assert file.pread(10, 6) == b""
    assert file.pread(10, 60) == b""
    await file.sync()
    file.truncate(4)
    file.append(b"!")
    file.close()
    file.close()
    again = disk.open(f"{root}/file")
    assert (again.size_bytes, again.pread(10, 0)) == (5, b"onet!")
    again.close()
    assert disk.read_file(f"{root}/file") == b"onet!"
    assert disk.list_directory(root) == ["file"]


async def test_a_closed_file_refuses(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    file.close()
    with failure(errno.EBADF):
        file.append(b"x")
    with failure(errno.EBADF):
        file.pread(1, 0)
    with failure(errno.EBADF):
        file.truncate(0)
    with failure(errno.EBADF):
        await file.sync()


async def test_what_is_not_there_is_not_found(place: tuple[Disk, str]) -> None:
    disk, root = place
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/file")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/no/file", create=True)
    with pytest.raises(FileNotFoundError):
        disk.read_file(f"{root}/file")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{root}/file")
    with pytest.raises(FileNotFoundError):
        disk.remove_directory(f"{root}/no")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/file", f"{root}/other")
    with pytest.raises(FileNotFoundError):
        await disk.replace_file(f"{root}/no/file", b"")
    with pytest.raises(FileNotFoundError):
        await disk.sync_directory(f"{root}/no")
    with pytest.raises(FileNotFoundError):
        disk.lock_directory(f"{root}/no")
    assert disk.list_directory(f"{root}/no") == []


async def test_directories_are_made_with_their_parents(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_directory(f"{root}/a/b")
    disk.make_directory(f"{root}/a/b")
    disk.open(f"{root}/a/b/file", create=True).close()
    await disk.sync_directory(f"{root}/a")
    with failure(errno.ENOTEMPTY):
        disk.remove_directory(f"{root}/a/b")
    disk.remove(f"{root}/a/b/file")
    disk.remove_directory(f"{root}/a/b")
    assert disk.list_directory(f"{root}/a") == []


async def test_files_and_directories_are_no_substitutes(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_directory(f"{root}/directory")
    disk.open(f"{root}/file", create=True).close()
    with failure(errno.EISDIR):
        disk.open(f"{root}/directory")
    with failure(errno.EISDIR):
        disk.read_file(f"{root}/directory")
    with failure(errno.EISDIR):
        disk.remove(f"{root}/directory")
    with failure(errno.EISDIR):
        disk.rename(f"{root}/file", f"{root}/directory")
    with failure(errno.ENOTDIR):
        disk.make_directory(f"{root}/file/below")
    with failure(errno.ENOTDIR):
        disk.list_directory(f"{root}/file")
    with failure(errno.ENOTDIR):
        disk.remove_directory(f"{root}/file")
    with failure(errno.ENOTDIR):
        disk.open(f"{root}/file/below")


async def test_a_renamed_file_replaces_another(place: tuple[Disk, str]) -> None:
    disk, root = place
    await disk.replace_file(f"{root}/old", b"old")
    await disk.replace_file(f"{root}/new", b"new")
    disk.rename(f"{root}/new", f"{root}/old")
    assert disk.list_directory(root) == ["old"]
    assert disk.read_file(f"{root}/old") == b"new"


async def test_a_renamed_directory_takes_its_files_along(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_directory(f"{root}/old")
    await disk.replace_file(f"{root}/old/file", b"content")
    disk.rename(f"{root}/old", f"{root}/new")
    assert disk.list_directory(root) == ["new"]
    assert disk.read_file(f"{root}/new/file") == b"content"


async def test_replacing_a_file_leaves_open_ones_alone(place: tuple[Disk, str]) -> None:
    disk, root = place
    await disk.replace_file(f"{root}/file", b"old")
    file = disk.open(f"{root}/file")
    await disk.replace_file(f"{root}/file", b"new content")
    assert file.pread(20, 0) == b"old"
    assert disk.read_file(f"{root}/file") == b"new content"
    file.close()


async def test_an_open_file_outlives_its_name(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    file.append(b"content")
    disk.remove(f"{root}/file")
    assert file.pread(20, 0) == b"content"
    await file.sync()
    file.close()


async def test_a_directory_is_locked_once(place: tuple[Disk, str]) -> None:
    disk, root = place
    lock = disk.lock_directory(root)
    with pytest.raises(DirectoryInUseError):
        disk.lock_directory(root)
    lock.release()
    lock.release()
    disk.lock_directory(root).release()


async def test_a_cancelled_sync_does_not_begin(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    syncs: list[Callable[[], Awaitable[None]]] = [
        file.sync,
        partial(disk.sync_directory, root),
        partial(disk.replace_file, f"{root}/other", b"never"),
    ]
    for sync in syncs:
        with trio.CancelScope() as scope:
            scope.cancel()
            await sync()
        assert scope.cancelled_caught
    assert disk.list_directory(root) == ["file"]
    file.close()


async def test_a_lengthened_file_ends_with_zeros(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    file.append(b"ab")
    file.truncate(4)
    file.append(b"c")
    assert file.pread(9, 0) == b"ab\0\0c"
    file.close()


async def test_what_was_not_closed_is_there_all_the_same(place: tuple[Disk, str]) -> None:
    disk, root = place
    first = disk.open(f"{root}/file", create=True)
    first.append(b"content")
    second = disk.open(f"{root}/file")
    assert (second.size_bytes, second.pread(9, 0)) == (7, b"content")
    second.append(b" and more")
    assert first.pread(99, 0) == b"content and more"
    second.close()
    first.close()


# --- corners -----------------------------------------------------------------------------------


async def test_a_place_that_is_none_is_refused(faithful: tuple[Disk, str]) -> None:
    disk, root = faithful
    file = disk.open(f"{root}/file", create=True)
    with failure(errno.EINVAL):
        file.pread(1, -1)
    with failure(errno.EINVAL):
        file.truncate(-1)
    file.close()


async def test_a_file_keeps_what_is_below_it_from_being(faithful: tuple[Disk, str]) -> None:
    disk, root = faithful
    disk.open(f"{root}/file", create=True).close()
    with failure(errno.EEXIST):
        disk.make_directory(f"{root}/file")
    with failure(errno.ENOTDIR):
        disk.list_directory(f"{root}/file/below")
    with failure(errno.ENOTDIR):
        disk.read_file(f"{root}/file/below")
    with failure(errno.ENOTDIR):
        disk.remove(f"{root}/file/below")
    with failure(errno.ENOTDIR):
        disk.rename(f"{root}/file", f"{root}/file/below")
    with failure(errno.ENOTDIR):
        await disk.replace_file(f"{root}/file/below", b"")
    with failure(errno.ENOTDIR):
        await disk.sync_directory(f"{root}/file")
    with failure(errno.ENOTDIR):
        disk.lock_directory(f"{root}/file")


async def test_a_directory_replaces_only_an_empty_one(faithful: tuple[Disk, str]) -> None:
    disk, root = faithful
    for name in ("moved", "full/below", "empty"):
        disk.make_directory(f"{root}/{name}")
    disk.open(f"{root}/moved/content", create=True).close()
    disk.open(f"{root}/file", create=True).close()
    with failure(errno.ENOTEMPTY):
        disk.rename(f"{root}/moved", f"{root}/full")
    with failure(errno.ENOTDIR):
        disk.rename(f"{root}/moved", f"{root}/file")
    with failure(errno.EINVAL):
        disk.rename(f"{root}/moved", f"{root}/moved/below")
    disk.rename(f"{root}/moved", f"{root}/moved")
    disk.rename(f"{root}/moved", f"{root}/empty")
    assert disk.list_directory(root) == ["empty", "file", "full"]
    assert disk.list_directory(f"{root}/empty") == ["content"]


async def test_an_open_file_knows_its_own_length_only(faithful: tuple[Disk, str]) -> None:
    disk, root = faithful
    first = disk.open(f"{root}/file", create=True)
    second = disk.open(f"{root}/file")
    first.append(b"longer")
    assert (first.size_bytes, second.size_bytes) == (6, 0)
    first.close()
    second.close()


async def test_a_lock_is_a_file_that_stays(faithful: tuple[Disk, str]) -> None:
    disk, root = faithful
    disk.lock_directory(root).release()
    assert disk.list_directory(root) == ["lock"]


async def test_a_replacement_overwrites_what_a_failed_one_left(faithful: tuple[Disk, str]) -> None:
    disk, root = faithful
    left = disk.open(f"{root}/file.new", create=True)
    left.append(b"left by a failure, and long")
    left.close()
    await disk.replace_file(f"{root}/file", b"content")
    assert disk.list_directory(root) == ["file"]
    assert disk.read_file(f"{root}/file") == b"content"


# --- what only the disk in memory can do -----------------------------------------------------


def memory_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.settle()
    return disk


async def test_a_crash_keeps_what_was_synced() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    file.append(b"synced")
    await file.sync()
    await disk.sync_directory("/d")
    file.append(b" and not")
    disk.open("/d/unsynced name", create=True).close()
    disk.crash(keep_page_cache=False, unsynced_bytes_kept=3)
    assert disk.files("/d") == {"/d/file": b"synced an"}
    with failure(errno.EBADF):
        file.append(b"from an earlier life")


async def test_a_crash_of_the_process_alone_keeps_all() -> None:
    disk = memory_disk()
    disk.open("/d/file", create=True).append(b"unsynced")
    disk.crash(keep_page_cache=True)
    assert disk.files() == {"d/file": b"unsynced"}


async def test_a_crash_brings_back_what_was_truncated_but_not_synced() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    file.append(b"synced")
    await file.sync()
    file.truncate(2)
    file.append(b"new")
    disk.crash(keep_page_cache=False, names_kept=True, unsynced_bytes_kept=9)
    assert disk.content("/d/file") == b"synced"


async def test_a_failed_sync_is_a_success_the_next_time_but_its_bytes_are_gone() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    file.append(b"lost")
    disk.fail(errno.EIO, "sync")
    with failure(errno.EIO):
        await file.sync()
    file.append(b"kept")
    await file.sync()
    disk.crash(keep_page_cache=False, names_kept=True)
    assert disk.content("/d/file") == bytes(4) + b"kept"


async def test_calls_fail_as_told() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    disk.fail(errno.EIO, "append", calls_before=1, times=2, written_bytes=1, path_end="file")
    disk.fail(errno.EIO, "truncate", done=True)
    file.append(b"ab")
    for _ in range(2):
        with failure(errno.EIO):
            file.append(b"cd")
    file.append(b"e")
    assert disk.content("/d/file") == b"abcce"
    with failure(errno.EIO):
        file.truncate(0)
    assert disk.content("/d/file") == b""


async def test_a_full_disk_takes_what_fits() -> None:
    disk = memory_disk()
    disk.capacity_bytes = 5
    file = disk.open("/d/file", create=True)
    file.append(b"123")
    with failure(errno.ENOSPC):
        file.append(b"456")
    assert disk.content("/d/file") == b"12345"
    with failure(errno.ENOSPC):
        await disk.replace_file("/d/other", b"6")
    assert disk.list_directory("/d") == ["file"]


async def test_a_read_only_disk_reads() -> None:
    disk = memory_disk()
    await disk.replace_file("/d/file", b"content")
    disk.read_only = True
    file = disk.open("/d/file")
    assert file.pread(9, 0) == b"content"
    with failure(errno.EROFS):
        file.append(b"x")
    with failure(errno.EROFS):
        disk.make_directory("/e")
    disk.make_directory("/d")
