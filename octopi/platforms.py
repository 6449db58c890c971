"""What differs between Linux and macOS, on which nodes run."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import subprocess
import sys
import weakref
from typing import Final

BOOT_ID_COMMAND: Final = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
"""Prints macOS's random id of each boot."""

OPEN_FILES_OF_MACOS: Final = 10_240
"""OPEN_MAX: macOS refuses a greater limit of open files, although it says that there is none
(setrlimit(2), COMPATIBILITY)."""

_BOOT_ID_TIMEOUT_S: Final = 5.0

_SYNCFS_SINCE: Final = (5, 8)
"""The first Linux whose syncfs(2) tells that writing failed."""

SYNCED_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E})
"""The types of file systems that are synced as a whole (statfs(2)): ext2 to ext4, XFS and btrfs,
which write files to a device themselves."""

_STATFS_BYTES: Final = 512
"""More than a struct statfs has; its first field is the type, a long."""

_FULL_SYNC_UNKNOWN: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY})
"""How a file system says that it does not know F_FULLFSYNC.  After any other error data may be
lost."""


def sync_data(descriptor: int) -> None:
    """Wait until the data of an open file are on the device, with fdatasync(2) where there is one;
    macOS has none.

    Raises:
      OSError: if the device failed.
    """
    only_data = getattr(os, "fdatasync", None)
    if only_data is None:
        sync(descriptor)
    else:
        only_data(descriptor)


def sync(descriptor: int) -> None:
    """Wait until an open file or directory is on the device.

    fsync(2) of macOS leaves data in the cache of the drive.  Its fcntl(2) has F_FULLFSYNC, which
    some file systems, such as those of a network, don't know.

    Raises:
      OSError: if the device failed.
    """
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        try:
            fcntl.fcntl(descriptor, full_sync)
            return
        except OSError as error:
            if error.errno not in _FULL_SYNC_UNKNOWN:
                raise
    os.fsync(descriptor)


class FileSystemSync:
    """Waits until all that was changed on one file system is on the device, with syncfs(2)."""

    def __init__(self, descriptor: int) -> None:
        """*descriptor*: a directory there.  Errors since this moment are told."""
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        self._syncfs = ctypes.CDLL(None, use_errno=True).syncfs

    def __call__(self) -> None:
        """Sync the file system.

        Raises:
          OSError: if the device failed since the last call, or the first.
        """
        if self._syncfs(self._descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def file_system_sync(directory: str) -> FileSystemSync | None:
    """How to sync the whole file system of *directory*; None where that is not possible, or would
    not tell all errors: before Linux 5.8, and on file systems that lie above others."""
    if not hasattr(ctypes.CDLL(None), "syncfs") or _kernel_version() < _SYNCFS_SINCE:
        return None
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if _file_system_type(descriptor) not in SYNCED_FILE_SYSTEMS:
        os.close(descriptor)
        return None
    return FileSystemSync(descriptor)


def _kernel_version() -> tuple[int, ...]:
    """The first two numbers of its release; (0, 0) if it has other ones."""
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _file_system_type(descriptor: int) -> int:
    """The magic number of an open file's file system (statfs(2)); 0 if it isn't known."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).fstatfs(descriptor, found):
        return 0
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def boot_id_of_macos() -> str:
    """macOS's id of this boot; empty if it can't be read."""
    try:
        done = subprocess.run(
            BOOT_ID_COMMAND, capture_output=True, text=True, timeout=_BOOT_ID_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
