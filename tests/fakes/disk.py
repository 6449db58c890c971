"""A disk in memory that tells the page cache from the device, and fails on demand.

Every file has two contents: what processes see, and what the device holds.  `File.sync`
brings the second up to the first, `Disk.sync_directory` does the same for names.
`MemoryDisk.crash` takes away what was not synced.  A failed sync leaves its bytes off the
device *and the next sync succeeds without them*, as systems do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from octopi.environment import DirectoryLock, Disk, DiskSpace, File
from octopi.errors import DirectoryInUseError


@attrs.define(eq=False)
class _Content:
    """A file, whatever its name."""

    cached: bytearray = attrs.field(factory=bytearray)
    """What processes see."""
    durable: bytearray = attrs.field(factory=bytearray)
    """What the device holds."""
    clean_bytes: int = 0
    """The system believes that so many leading bytes of `cached` are on the device."""
    syncing: trio.Lock = attrs.field(factory=trio.Lock)

    def truncate(self, size_bytes: int) -> None:
        del self.cached[size_bytes:]
        self.cached.extend(bytes(size_bytes - len(self.cached)))
        self.clean_bytes = min(self.clean_bytes, size_bytes)

    def settle(self, clean_bytes: int, data: bytes) -> None:
        """Have *data* on the device behind *clean_bytes*, whether those got there or not."""
        del self.durable[clean_bytes:]
        self.durable.extend(bytes(clean_bytes - len(self.durable)))
        self.durable += data

    def crash(self, unsynced_bytes_kept: int) -> None:
        grown = len(self.cached) >= len(self.durable) == self.clean_bytes
        if grown:
            end = len(self.durable) + unsynced_bytes_kept
            self.durable += self.cached[len(self.durable) : end]
        self.cached = bytearray(self.durable)
        self.clean_bytes = len(self.cached)


@attrs.define(eq=False)
class _Directory:
    cached: dict[str, _Content | _Directory] = attrs.field(factory=dict)
    durable: dict[str, _Content | _Directory] = attrs.field(factory=dict)

    def sync(self) -> None:
        self.durable = dict(self.cached)

    def settle(self) -> None:
        self.sync()
        for entry in self.cached.values():
            if isinstance(entry, _Directory):
                entry.settle()
            else:
                entry.settle(0, bytes(entry.cached))
                entry.clean_bytes = len(entry.cached)

    def crash(self, names_kept: bool, unsynced_bytes_kept: int) -> None:
        if names_kept:
            self.sync()
        self.cached = dict(self.durable)
        for entry in self.cached.values():
            if isinstance(entry, _Directory):
                entry.crash(names_kept, unsynced_bytes_kept)
            else:
                entry.crash(unsynced_bytes_kept)


@attrs.define
class _Fault:
    error_number: int
    operation: str
    path_end: str
    calls_before: int
    times: int
    written_bytes: int
    done: bool

    def meets(self, operation: str, path: str) -> bool:
        """Whether it strikes this call, which is counted if it might."""
        if self.operation not in {"", operation} or not path.endswith(self.path_end):
            return False
        if self.calls_before:
            self.calls_before -= 1
            return False
        if not self.times:
            return False
        self.times -= 1
        return True


class MemoryDisk:
    """`octopi.environment.Disk` in memory.

    Operations are named like the methods of `Disk` and `File`.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self._root = _Directory()
        self._locked: set[str] = set()
        self._faults: list[_Fault] = []
        self._life = 0
        self._page_cache = 0
        self.capacity_bytes = capacity_bytes
        """Bytes that all files together may have; None: no limit."""
        self.read_only = False
        """Whether every change is refused, as on a file system mounted so."""
        self.calls: list[str] = []
        """The operation of every call so far."""
        self.open_files: set[File] = set()
        """Those that no process has closed."""
        self._sync_gate: trio.Event | None = None

    # --- what tests do to it -------------------------------------------------------------

    def fail(
        self,
        error_number: int,
        operation: str = "",
        *,
        path_end: str = "",
        calls_before: int = 0,
        times: int = 1,
        written_bytes: int = 0,
        done: bool = False,
    ) -> None:
        """Have calls fail: of *operation* (empty: any) on a path that ends in *path_end*,
        *times* in a row after *calls_before* such calls.

        An append writes *written_bytes* first.  If *done*, the call takes full effect and
        fails all the same.
        """
        fault = _Fault(error_number, operation, path_end, calls_before, times, written_bytes, done)
        self._faults.append(fault)

    @contextmanager
    def syncs_held(self) -> Iterator[None]:
        """Within this, a file's sync that has begun doesn't end."""
        access = self._sync_gate = trio.Event()
        try:
            yield
        finally:
            self._sync_gate = None
            access.set()

    def heal(self) -> None:
        """No call fails any more."""
        self._faults.clear()

    def crash(
        self,
        *,
        keep_page_cache: bool,
        names_kept: bool = False,
        unsynced_bytes_kept: int = 0,
    ) -> None:
        """End every process that uses it.  Without the page cache, the machine goes down too:
        what was not synced is lost, but for the first *unsynced_bytes_kept* bytes of each
        file, and, if *names_kept*, the names."""
        if not keep_page_cache:
            self._page_cache += 1
            self._root.crash(names_kept, unsynced_bytes_kept)
        self._life += 1
        self._locked.clear()
        self.open_files.clear()
        self.heal()

    def settle(self) -> None:
        """Have all on the device as processes see it, without any call."""
        self._root.settle()

    def content(self, path: str) -> bytes:
        """What is in a file, without any call."""
        return bytes(self._content(path).cached)

    def plant(self, path: str, data: bytes) -> None:
        """Have *data* in a file, durably, without any call; its directory must be there."""
        directory, name = self._place(path)
        found = directory.cached.get(name)
        content = found if isinstance(found, _Content) else _Content()
        content.cached, content.durable = bytearray(data), bytearray(data)
        content.clean_bytes = len(data)
        directory.cached[name] = directory.durable[name] = content

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit of a file over, on the device too."""
        data = bytearray(self.content(path))
        data[bit // 8] ^= 1 << bit % 8
        self.plant(path, bytes(data))

    def files(self, path: str = "") -> dict[str, bytes]:
        """Every file below *path* with its content, without any call."""
        found = self._find(path)
        assert isinstance(found, _Directory)
        return dict(_walk(found, path))

    # --- Disk ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        late = self._call("open", path, changing=create)
        directory, name = self._place(path)
        found = directory.cached.get(name)
        if found is None:
            if not create:
                raise _error(errno.ENOENT, path)
            found = directory.cached[name] = _Content()
        if isinstance(found, _Directory):
            raise _error(errno.EISDIR, path)
        _raise(late, path)
        file = _MemoryFile(self, path, found, self._life)
        self.open_files.add(file)
        return file

    def read_file(self, path: str) -> bytes:
        late = self._call("read_file", path)
        data = self.content(path)
        _raise(late, path)
        return data

    async def replace_file(self, path: str, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        late = self._call("replace_file", path, changing=True)
        self._place(path)
        if self._free_bytes() < len(data):
            raise _error(errno.ENOSPC, path)
        directory, name = self._place(path)
        directory.cached[name] = _Content()
        self.plant(path, data)
        _raise(late, path)

    def make_directory(self, path: str) -> None:
        late = self._call("make_directory", path)
        directory = self._root
        for name in _names(path):
            entry = directory.cached.get(name)
            if entry is None:
                self._check_changeable(path)
                entry = directory.cached[name] = _Directory()
            if isinstance(entry, _Content):
                raise _error(errno.ENOTDIR, path)
            directory = entry
        _raise(late, path)

    def list_directory(self, path: str) -> list[str]:
        late = self._call("list_directory", path)
        found = self._find(path)
        if isinstance(found, _Content):
            raise _error(errno.ENOTDIR, path)
        _raise(late, path)
        return sorted(found.cached) if found is not None else []

    def is_link(self, path: str) -> bool:
        return False

    def remove(self, path: str) -> None:
        late = self._call("remove", path, changing=True)
        self._content(path)
        directory, name = self._place(path)
        del directory.cached[name]
        _raise(late, path)

    def remove_directory(self, path: str) -> None:
        late = self._call("remove_directory", path, changing=True)
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        if isinstance(found, _Content):
            raise _error(errno.ENOTDIR, path)
        if found.cached:
            raise _error(errno.ENOTEMPTY, path)
        directory, name = self._place(path)
        del directory.cached[name]
        _raise(late, path)

    def rename(self, old: str, new: str) -> None:
        late = self._call("rename", old, changing=True)
        found = self._find(old)
        if found is None:
            raise _error(errno.ENOENT, old)
        source, source_name = self._place(old)
        target, target_name = self._place(new)
        if isinstance(target.cached.get(target_name), _Directory):
            raise _error(errno.EISDIR, new)
        del source.cached[source_name]
        target.cached[target_name] = found
        _raise(late, old)

    async def sync_directory(self, path: str) -> None:
        await trio.lowlevel.checkpoint()
        late = self._call("sync_directory", path)
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise _error(errno.ENOENT, path)
        found.sync()
        _raise(late, path)

    def room(self, path: str) -> DiskSpace | None:
        if self.capacity_bytes is None:
            return None
        return DiskSpace(max(0, self._free_bytes()), self.capacity_bytes)

    def page_cache_id(self) -> str:
        return str(self._page_cache)

    def lock_directory(self, path: str) -> DirectoryLock:
        late = self._call("lock_directory", path)
        if not isinstance(self._find(path), _Directory):
            raise _error(errno.ENOENT, path)
        if path in self._locked:
            raise DirectoryInUseError(f"{path} is in use by another process")
        self._locked.add(path)
        _raise(late, path)
        return _Lock(self._locked, path)

    # --- within ----------------------------------------------------------------------------

    def _strike(self, operation: str, path: str, *, changing: bool = False) -> _Fault | None:
        """Count a call; return the fault that strikes it."""
        self.calls.append(operation)
        if changing:
            self._check_changeable(path)
        struck = [fault for fault in self._faults if fault.meets(operation, path)]
        return struck[0] if struck else None

    def _call(self, operation: str, path: str, *, changing: bool = False) -> _Fault | None:
        """Count a call; raise if it fails at once, return what makes it fail at its end."""
        fault = self._strike(operation, path, changing=changing)
        if fault is not None and not fault.done:
            _raise(fault, path)
        return fault

    def _check_changeable(self, path: str) -> None:
        if self.read_only:
            raise _error(errno.EROFS, path)

    def _free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 62
        return self.capacity_bytes - sum(len(data) for data in self.files().values())

    def _find(self, path: str) -> _Content | _Directory | None:
        found: _Content | _Directory | None = self._root
        for name in _names(path):
            if not isinstance(found, _Directory):
                return None
            found = found.cached.get(name)
        return found

    def _content(self, path: str) -> _Content:
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        if isinstance(found, _Directory):
            raise _error(errno.EISDIR, path)
        return found

    def _place(self, path: str) -> tuple[_Directory, str]:
        head, _, name = path.rpartition("/")
        directory = self._find(head)
        if not isinstance(directory, _Directory):
            raise _error(errno.ENOENT if directory is None else errno.ENOTDIR, path)
        return directory, name


class _MemoryFile:
    """`octopi.environment.File` in memory."""

    def __init__(self, disk: MemoryDisk, path: str, content: _Content, life: int) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._life = life
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return len(self._content.cached)

    def append(self, data: bytes | memoryview) -> None:
        self._check()
        fault = self._disk._strike("append", self._path, changing=True)
        rest_bytes = len(data)
        if fault is not None and not fault.done:
            rest_bytes = fault.written_bytes
        elif fault is None and self._disk._free_bytes() < len(data):
            rest_bytes = self._disk._free_bytes()
            fault = _full()
        self._content.cached += data[:rest_bytes]
        _raise(fault, self._path)

    def pread(self, size_bytes: int, position_bytes: int) -> bytes:
        self._check()
        _raise(self._disk._strike("pread", self._path), self._path)
        return bytes(self._content.cached[position_bytes : position_bytes + size_bytes])

    def truncate(self, size_bytes: int) -> None:
        self._check()
        late = self._disk._call("truncate", self._path, changing=True)
        self._content.truncate(size_bytes)
        _raise(late, self._path)

    async def sync(self) -> None:
        await trio.lowlevel.checkpoint()
        content = self._content
        async with content.syncing:
            self._check()
            fault = self._disk._strike("sync", self._path)
            clean_bytes, data = content.clean_bytes, bytes(content.cached[content.clean_bytes :])
            content.clean_bytes += len(data)
            access = self._disk._sync_gate
            if access is not None:
                with trio.CancelScope(shield=True):
                    await access.wait()
            if self._life != self._disk._life:
                raise _error(errno.EBADF, self._path)
            if fault is None or fault.done:
                content.settle(clean_bytes, data)
            _raise(fault, self._path)

    def close(self) -> None:
        self._closed = True
        self._disk.open_files.discard(self)

    def _check(self) -> None:
        if self._closed or self._life != self._disk._life:
            raise _error(errno.EBADF, self._path)


@attrs.define
class _Lock:
    _locked: set[str]
    _path: str

    def release(self) -> None:
        self._locked.discard(self._path)


def _walk(directory: _Directory, path: str) -> Iterator[tuple[str, bytes]]:
    for name, entry in sorted(directory.cached.items()):
        below = f"{path}/{name}" if path else name
        if isinstance(entry, _Directory):
            yield from _walk(entry, below)
        else:
            yield below, bytes(entry.cached)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _full() -> _Fault:
    return _Fault(errno.ENOSPC, "append", "", calls_before=0, times=1, written_bytes=0, done=False)


def _raise(fault: _Fault | None, path: str) -> None:
    if fault is not None:
        raise _error(fault.error_number, path)


if TYPE_CHECKING:
    _disk: Disk = MemoryDisk()
