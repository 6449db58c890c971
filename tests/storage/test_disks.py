"""The disk in memory behaves like the real one, as far as storage can tell."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from octopi.environment import Disk
from octopi.errors import DirectoryInUseError
from octopi.operating_system import SystemDisk
from tests.fakes.disk import MemoryDisk


@pytest.fixture(params=["memory", "system"])
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
