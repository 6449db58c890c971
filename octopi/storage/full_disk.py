"""What a disk says that is full: of bytes, or of files that may be open.

It may pass, so a log that meets it goes on.
"""

from __future__ import annotations

import errno
from typing import Final

from octopi.errors import DiskFullError

NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The file was not even opened."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT}) | NO_DESCRIPTOR


def not_synced(directory: str, error: OSError) -> DiskFullError | None:
    """That *directory* was not synced as no file could be opened, if *error* says so: then the
    device was asked for nothing, and can be asked again."""
    if error.errno not in NO_DESCRIPTOR:
        return None
    return disk_full(f"{directory} was not synced", error)


def disk_full(what: str, error: OSError) -> DiskFullError:
    """*what* was not done because of *error*, one of `FULL`; says what to do about it."""
    remedy = "free some space"
    if error.errno in NO_DESCRIPTOR:
        remedy = "let the broker have more open files (ulimit -n)"
    return DiskFullError(f"{error.strerror}: {what}; {remedy}")
