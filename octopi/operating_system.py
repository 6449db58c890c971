"""The production `Environment`: this machine's clock, files, sockets and entropy.

This is the only module of the library that uses them.  It makes no decisions.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import random
import resource
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import attrs
import trio

from octopi.environment import DiskSpace, Listening, NonBlockingStream
from octopi.errors import DirectoryInUseError
from octopi.limits import CONNECTIONS_MAX, CONNECTIONS_MIN, OWN_DESCRIPTORS
from octopi.open_files import FILE_MODE, OpenFiles, SystemFile, open_descriptor
from octopi.platforms import OPEN_FILES_OF_MACOS, boot_id_of_macos, sync

_REPLACEMENT_SUFFIX = ".new"

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
"""The file with Linux's random id of each boot of the machine.  Tests that simulate power failures
replace it; no option or environment variable can."""

_DIRECTORY_MODE = 0o700
"""Only the node's own user may read what it stores, even if the process's umask allows more."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3), as in glibc's malloc.h."""
_MAPPED_ALONE_BYTES = 32 * 1024 * 1024
"""Smaller blocks than this come from the heap; the greatest value that glibc takes."""
_KEPT_FREE_BYTES = 64 * 1024 * 1024
"""How much free memory at the heap's end a node may keep: twice the above, as glibc has it where it
chooses by itself."""


class SystemClock:
    """`octopi.environment.Clock` on Trio's clock and the machine's wall clock."""

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep_until(deadline)

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)


monotonic = time.monotonic
"""The clock on which blocking programs are told moments."""

stopwatch = time.perf_counter
"""`octopi.environment.Stopwatch`.  It also counts the time in which the system runs other
processes, since the tasks of this process wait then, too."""


class SystemRandomness:
    """`octopi.environment.Randomness` from the machine's entropy."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def random(self) -> float:
        return self._random.random()

    def token_bytes(self, count: int) -> bytes:
        return secrets.token_bytes(count)


class SystemStream(NonBlockingStream):
    """A TCP connection.  Calls that don't wait go to the system directly, not through Trio."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._socket = stream.socket
        try:
            name = stream.socket.getpeername()
        except OSError:  # the connection is gone already
            self._peer = "unknown"
        else:
            self._peer = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    def __str__(self) -> str:
        return self._peer

    def send_nowait(self, parts: Sequence[bytes | memoryview]) -> int:
        try:
            return os.writev(self._socket.fileno(), parts)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _stream_error(error) from error

    def receive_nowait(self, bytes_max: int) -> bytes | None:
        try:
            return os.read(self._socket.fileno(), bytes_max)
        except BlockingIOError:
            return None
        except OSError as error:
            raise _stream_error(error) from error

    def receive_into(self, place: memoryview) -> int | None:
        try:
            return os.readv(self._socket.fileno(), (place,))
        except BlockingIOError:
            return None
        except OSError as error:
            raise _stream_error(error) from error

    def cut(self) -> None:
        self._socket.close()

    def duplicate(self) -> int:
        """Another file descriptor of the connection, which stays open when this one is closed."""
        return os.dup(self._socket.fileno())

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._socket)

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _stream_error(error: OSError) -> trio.BrokenResourceError | trio.ClosedResourceError:
    if error.errno == errno.EBADF:
        return trio.ClosedResourceError("this side of the connection is closed")
    return trio.BrokenResourceError(f"the connection broke: {error}")


class SystemListener(trio.abc.Listener[SystemStream]):
    """Accepts TCP connections."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener

    async def accept(self) -> SystemStream:
        return SystemStream(await self._listener.accept())

    async def aclose(self) -> None:
        await self._listener.aclose()


class SystemStreams:
    """`octopi.environment.StreamNet` over TCP."""

    async def connect(self, host: str, port: int) -> trio.abc.HalfCloseableStream:
        return SystemStream(await trio.open_tcp_stream(host, port))

    async def listen(self, host: str, port: int) -> Listening:
        listeners = await trio.open_tcp_listeners(port, host=host or None)
        taken = int(listeners[0].socket.getsockname()[1])
        for other in listeners[1:]:
            if port == 0 and other.socket.getsockname()[1] != taken:
                # One name, several addresses, each with a random port: keep the first.
                await other.aclose()
        kept = [one for one in listeners if one.socket.fileno() >= 0]
        return Listening([SystemListener(one) for one in kept], taken)


@attrs.define
class SystemDirectoryLock:
    """`octopi.environment.DirectoryLock` by flock(2) on a file in the directory."""

    _descriptor: int

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SystemDisk:
    """`octopi.environment.Disk` on the file system."""

    def __init__(self, files_open_max: int | None = None) -> None:
        """*files_open_max*: how many synced files may be open; None: half of the process's limit,
        since the other half is for connections."""
        if files_open_max is None:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            files_open_max = sys.maxsize if limit == resource.RLIM_INFINITY else limit // 2
        self._open_files = OpenFiles(files_open_max)

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        return SystemFile(path, open_descriptor(path, create=create), self._open_files)

    def close(self) -> None:
        """Close all files that are open."""
        self._open_files.close_all()

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    async def replace_file(self, path: str, data: bytes) -> None:
        await trio.to_thread.run_sync(_replace_file, path, data)

    def make_directory(self, path: str) -> None:
        _make_directories(path)

    def list_directory(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    async def sync_directory(self, path: str) -> None:
        await trio.to_thread.run_sync(_sync_directory, path)

    def room(self, path: str) -> DiskSpace | None:
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def page_cache_id(self) -> str:
        try:
            with open(BOOT_ID_FILE, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            # Unknown: then the page cache counts as lost each time.
            return boot_id_of_macos() or secrets.token_hex(16)

    def lock_directory(self, path: str) -> SystemDirectoryLock:
        descriptor = os.open(f"{path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DirectoryInUseError(
                f"{path} is in use by another process; stop it, or choose another --data-dir"
            ) from None
        return SystemDirectoryLock(descriptor)


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, max(soft, OPEN_FILES_OF_MACOS)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return


def keep_freed_memory() -> None:
    """Have the C library keep free memory for the next messages.

    Otherwise glibc maps large blocks one by one, or gives the free end of its heap back, so the
    system maps and clears the same pages for every message: a quarter of the processor time.

    Both thresholds are set, because setting one ends glibc's own adaptation of both, and that made
    it worse (mallopt(3)).  Memory belongs to the whole process, so only programs of Octopi do this,
    never the client library.  Other C libraries (musl, macOS) have no such function.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_BYTES):
        mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE_BYTES)


def connections_possible() -> int:
    """How many connections a node may have, by this process's limit of open files.  Half of that is
    for files of its logs (see `SystemDisk`), and some are for the process itself."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, limit // 2 - OWN_DESCRIPTORS))


def wants_plain_websocket() -> bool:
    """Whether to use only trio-websocket for framing, which OCTOPI_PLAIN_WEBSOCKET=1 requests."""
    return os.environ.get("OCTOPI_PLAIN_WEBSOCKET", "0") not in {"", "0"}


def host_name() -> str:
    """This machine's name, for addresses that are given to other machines."""
    return socket.gethostname()


def open_private(path: str | Path, mode: str, buffering: int = -1) -> IO[bytes]:
    """Like `open` in a binary *mode*; only this user may use a file that it creates."""
    return open(path, mode, buffering, opener=_open_private)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def is_open_to_others(path: str) -> bool:
    """Whether other users of the machine have any permission on the directory *path*."""
    try:
        return bool(os.stat(path).st_mode & 0o077)
    except OSError:
        return False


def _make_directories(path: str) -> None:
    """Like ``os.makedirs``, but missing parents of *path* get the same mode, too."""
    try:
        os.mkdir(path, _DIRECTORY_MODE)
    except FileNotFoundError:
        parent = os.path.dirname(path.rstrip("/"))
        if not parent or parent == path:
            raise
        _make_directories(parent)
        _make_directories(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _replace_file(path: str, data: bytes) -> None:
    beside = path + _REPLACEMENT_SUFFIX
    with open_private(beside, "wb") as file:
        os.fchmod(file.fileno(), FILE_MODE)  # an old file may have another mode
        file.write(data)
        file.flush()
        sync(file.fileno())
    os.replace(beside, path)
    _sync_directory(os.path.dirname(path) or ".")


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
