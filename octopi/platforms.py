"""What differs between Linux and macOS, on which nodes run."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from typing import Final

BOOT_ID_COMMAND: Final = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
"""Prints macOS's random id of each boot."""

OPEN_FILES_OF_MACOS: Final = 10_240
"""OPEN_MAX: macOS refuses a greater limit of open files, although it says that there is none
(setrlimit(2), COMPATIBILITY)."""

_BOOT_ID_TIMEOUT_S: Final = 5.0

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


def boot_id_of_macos() -> str:
    """macOS's id of this boot; empty if it can't be read."""
    try:
        done = subprocess.run(
            BOOT_ID_COMMAND, capture_output=True, text=True, timeout=_BOOT_ID_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
