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


def disk_full(what: str, error: OSError) -> DiskFullError:
    """*what* was not done because of *error*, one of `FULL`; says what to do about it."""
    remedy = "free some space"
    if error.errno in NO_DESCRIPTOR:
        remedy = "let the broker have more open files (ulimit -n)"
    return DiskFullError(f"{error.strerror}: {what}; {remedy}")
