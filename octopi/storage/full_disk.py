"""The errors of a full disk, and of too many open files.

Both may pass, so a log that meets them goes on.
"""

from __future__ import annotations

import errno
from typing import Final

from octopi.errors import DiskFullError

NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The file was not even opened."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT}) | NO_DESCRIPTOR


def not_synced(directory: str, error: OSError) -> DiskFullError | None:
    """The exception for *error*, met when *directory* was synced, if it says that too many files
    are open: then no fsync was tried, and it can be tried again.  None for any other error."""
    if error.errno not in NO_DESCRIPTOR:
        return None
    return disk_full(f"{directory} was not synced", error)


def disk_full(what: str, error: OSError) -> DiskFullError:
    """The exception for *what*, which was not done because of *error*, one of `FULL`.  Its text
    says what to do about it."""
    remedy = "free some space"
    if error.errno in NO_DESCRIPTOR:
        remedy = "let the broker have more open files (ulimit -n)"
    return DiskFullError(f"{error.strerror}: {what}; {remedy}")
