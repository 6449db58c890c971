"""Directories whose names last."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from octopi.errors import DirectoryInUseError, DiskFullError, StorageError
from octopi.operating_system import SystemDisk
from octopi.storage.directories import (
    lock_directory,
    make_durable_directories,
    make_durable_directory,
    sync_names,
)
from tests.kit.disk import MemoryDisk


@pytest.mark.parametrize("path", ["/a/b/c", "/a", "a/b", "a", "/a/b/"])
async def test_a_made_directory_and_those_above_it_survive_a_power_failure(path: str) -> None:
    disk = MemoryDisk()
    await make_durable_directory(disk, path)
    disk.crash(keep_page_cache=False)
    disk.open(f"{path.rstrip('/')}/file", create=True)


async def test_only_directories_with_new_entries_are_synced() -> None:
    disk = MemoryDisk()
    await make_durable_directory(disk, "/a/b")
    assert disk.calls.count("sync_directory") == 2
    await make_durable_directory(disk, "/a/b")
    assert disk.calls.count("sync_directory") == 2
    await make_durable_directory(disk, "/a/b/c")
    assert disk.calls.count("sync_directory") == 3


async def test_a_directory_can_be_made_below_one_that_may_not_be_listed() -> None:
    disk = MemoryDisk()
    disk.make_directory("/a")
    disk.fail(errno.EACCES, "list_directory")
    await make_durable_directory(disk, "/a/b")
    assert disk.list_directory("/a") == ["b"]


@pytest.mark.parametrize("operation", ["make_directory", "sync_directory"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EIO, StorageError)],
)
async def test_a_directory_that_can_not_be_made_is_a_storage_error(
    operation: str, number: int, kind: type[StorageError]
) -> None:
    disk = MemoryDisk()
    disk.fail(number, operation)
    with pytest.raises(kind, match=os.strerror(number)):
        await make_durable_directory(disk, "/a/b")


async def test_a_real_directory_is_made(tmp_path: Path) -> None:
    await make_durable_directory(SystemDisk(), f"{tmp_path}/a/b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_data_directory_is_held_by_one_process_at_a_time() -> None:
    disk = MemoryDisk()
    disk.make_directory("/a")
    lock = lock_directory(disk, "/a")
    with pytest.raises(DirectoryInUseError):
        lock_directory(disk, "/a")
    lock.release()
    lock_directory(disk, "/a").release()


def test_a_directory_that_can_not_be_locked_is_a_storage_error() -> None:
    disk = MemoryDisk()
    disk.make_directory("/a")
    disk.fail(errno.EACCES, "lock_directory")
    with pytest.raises(StorageError, match="/a can't be used: Permission denied"):
        lock_directory(disk, "/a")


async def test_an_existing_directory_is_synced_unless_it_is_known_to_be_durable() -> None:
    disk = MemoryDisk()
    for name in ("/a", "/a/b", "/a/b/c"):
        disk.make_directory(name)  # by a process that died before it synced
    lasting: set[str] = set()
    await make_durable_directory(disk, "/a/b/c", lasting)
    assert lasting == {"/a", "/a/b"}
    assert disk.calls.count("sync_directory") == 2
    await make_durable_directory(disk, "/a/b/c", lasting)
    assert disk.calls.count("sync_directory") == 3  # that one may have been removed meanwhile
    disk.fail(errno.EIO, "sync_directory")
    with pytest.raises(StorageError):
        await make_durable_directory(disk, "/a/b/d/e", lasting)
    assert "/a/b/d" not in lasting


async def test_names_that_were_synced_survive_a_power_failure() -> None:
    disk = MemoryDisk()
    await make_durable_directory(disk, "/a")
    disk.open("/a/file", create=True)
    disk.fail(errno.EIO, "sync_directory")
    with pytest.raises(StorageError, match="/a can't be synced"):
        await sync_names(disk, "/a")
    await sync_names(disk, "/a")
    disk.crash(keep_page_cache=False)
    assert disk.list_directory("/a") == ["file"]


async def test_directories_that_are_made_together_share_the_sync_of_the_one_they_are_in() -> None:
    disk = MemoryDisk()
    await make_durable_directory(disk, "/a")
    lasting = {"/a"}
    before = disk.calls.count("sync_directory")
    assert not await make_durable_directories(disk, ["/a/b/c", "/a/b/d", "/a/e"], lasting)
    assert disk.calls.count("sync_directory") == before + 2
    disk.crash(keep_page_cache=False)
    assert [disk.list_directory(path) for path in ("/a", "/a/b")] == [["b", "e"], ["c", "d"]]
    assert lasting == {"/a", "/a/b"}


@pytest.mark.parametrize(
    ("operation", "path", "failed"),
    [
        ("make_directory", "/a/b/c", {"/a/b/c"}),
        ("sync_directory", "/a/b", {"/a/b/c", "/a/b/d"}),
        ("sync_directory", "/a", {"/a/b/c", "/a/b/d", "/a/e"}),
    ],
)
async def test_of_directories_that_are_made_together_only_those_fail_that_are_concerned(
    operation: str, path: str, failed: set[str]
) -> None:
    disk = MemoryDisk()
    disk.make_directory("/a")
    disk.fail(errno.EIO, operation, path_end=path)
    lasting = {"/a"}
    paths = ["/a/b/c", "/a/b/d", "/a/e"]
    assert (await make_durable_directories(disk, paths, lasting)).keys() == failed
    assert ("/a/b" in lasting) == (operation == "make_directory")
    assert not await make_durable_directories(disk, paths, lasting)
