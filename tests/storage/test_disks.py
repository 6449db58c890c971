"""The simulated disk behaves like the real one, also where only a careless program could tell."""

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
from tests.kit.disk import MemoryDisk


@pytest.fixture(params=["simulated", "system"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and an empty directory on it."""
    if request.param == "system":
        return SystemDisk(), str(tmp_path)
    disk = MemoryDisk()
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


async def test_opening_or_removing_a_missing_file_is_not_found(place: tuple[Disk, str]) -> None:
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


async def test_a_file_is_refused_as_a_directory_and_a_directory_as_a_file(
    place: tuple[Disk, str],
) -> None:
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


async def test_a_removed_file_can_be_read_while_it_is_open(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    file.append(b"content")
    disk.remove(f"{root}/file")
    assert file.pread(20, 0) == b"content"
    await file.sync()
    file.close()


async def test_a_directory_can_be_locked_only_once(place: tuple[Disk, str]) -> None:
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


async def test_bytes_of_a_file_that_was_not_closed_can_be_read(place: tuple[Disk, str]) -> None:
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


async def test_an_invalid_position_in_a_file_is_refused(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    with failure(errno.EINVAL):
        file.pread(1, -1)
    with failure(errno.EINVAL):
        file.truncate(-1)
    file.close()


async def test_no_path_leads_through_a_file(place: tuple[Disk, str]) -> None:
    disk, root = place
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


async def test_a_renamed_directory_replaces_only_an_empty_one(place: tuple[Disk, str]) -> None:
    disk, root = place
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


async def test_an_open_file_does_not_see_the_length_that_another_one_gave_it(
    place: tuple[Disk, str],
) -> None:
    disk, root = place
    first = disk.open(f"{root}/file", create=True)
    second = disk.open(f"{root}/file")
    first.append(b"longer")
    assert (first.size_bytes, second.size_bytes) == (6, 0)
    first.close()
    second.close()


async def test_a_lock_is_a_file_that_stays(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.lock_directory(root).release()
    assert disk.list_directory(root) == ["lock"]


async def test_a_replacement_overwrites_what_a_failed_one_left(place: tuple[Disk, str]) -> None:
    disk, root = place
    left = disk.open(f"{root}/file.new", create=True)
    left.append(b"left by a failure, and long")
    left.close()
    await disk.replace_file(f"{root}/file", b"content")
    assert disk.list_directory(root) == ["file"]
    assert disk.read_file(f"{root}/file") == b"content"


# --- what the kit adds to the simulator's disk ------------------------------------------------


def memory_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.settle()
    return disk


async def test_a_crash_of_the_machine_keeps_what_was_synced() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    file.append(b"synced")
    await file.sync()
    await disk.sync_directory("/d")
    file.append(b" and not")
    disk.open("/d/unsynced name", create=True).close()
    disk.crash(keep_page_cache=False)
    assert disk.files("/d") == {"/d/file": b"synced"}
    with failure(errno.EBADF):
        file.append(b"from an earlier life")


async def test_a_crash_of_the_machine_may_keep_names_that_were_not_synced() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    file.append(b"synced")
    await file.sync()
    file.append(b" and not")
    disk.crash(keep_page_cache=False, names_kept=True)
    assert disk.files() == {"d/file": b"synced"}


async def test_a_crash_of_the_process_keeps_all_bytes() -> None:
    disk = memory_disk()
    disk.open("/d/file", create=True).append(b"unsynced")
    before = disk.page_cache_id()
    disk.crash(keep_page_cache=True)
    assert (disk.files(), disk.page_cache_id()) == ({"d/file": b"unsynced"}, before)


async def test_planted_bytes_are_in_open_files_and_on_the_device() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    file.append(b"older")
    disk.plant("/d/file", b"newer")
    disk.plant("/d/other", b"made")
    assert file.pread(9, 0) == b"newer"
    disk.crash(keep_page_cache=False)
    assert disk.files() == {"d/file": b"newer", "d/other": b"made"}


async def test_a_held_sync_ends_when_it_is_released(nursery: trio.Nursery) -> None:
    disk = memory_disk()
    disk.plant("/d/file", b"")
    file = disk.open("/d/file")
    file.append(b"content")
    with disk.syncs_held():
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        assert disk.simulated.durable("/d/file") == b""
    await trio.testing.wait_all_tasks_blocked()
    assert disk.simulated.durable("/d/file") == b"content"


async def test_the_named_disk_call_fails_with_the_given_errno() -> None:
    disk = memory_disk()
    file = disk.open("/d/file", create=True)
    disk.fail(errno.EDQUOT, "append", calls_before=1, times=2, written=0.5, path_end="file")
    file.append(b"ab")
    for _ in range(2):
        with failure(errno.EDQUOT):
            file.append(b"cd")
    disk.fail(errno.EIO, "truncate", done=True)
    disk.heal()
    file.truncate(1)
    assert disk.content("/d/file") == b"a"
    assert disk.calls == ["make_directory", "open", "append", "append", "append", "truncate"]
