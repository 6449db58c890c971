"""Converts an exception to the `Refusal` that answers a request."""

from __future__ import annotations

from octopi.errors import CorruptLogError, DiskFullError, OctopiError, RefusedError, Status
from octopi.replication.effects import Refusal


def refusal_of(error: OctopiError) -> Refusal:
    """The refusal that reports *error*."""
    status = Status.LOG_READ_ONLY
    if isinstance(error, RefusedError):
        status = error.status
    elif isinstance(error, DiskFullError):
        status = Status.DISK_FULL
    elif isinstance(error, CorruptLogError):
        status = Status.LOG_CORRUPT
    return Refusal(status, str(error.args[0]))
