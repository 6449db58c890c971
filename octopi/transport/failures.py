"""Converts exceptions to `Failure` messages for the peer, and back.

This module decides for all roles which status an exception becomes.
"""

from __future__ import annotations

from typing import Final

from octopi.errors import (
    ChecksumError,
    CorruptLogError,
    DiskFullError,
    InvalidOptionError,
    InvalidTopicError,
    LogReadOnlyError,
    NeedsTimeError,
    OctopiError,
    RecordError,
    RefusedError,
    Status,
    StorageError,
    refused,
)
from octopi.identifiers import Epoch, Offset
from octopi.limits import ADDRESS_BYTES_MAX, TEXT_BYTES_MAX
from octopi.printable import without_directory
from octopi.wire.messages import Failure

_STATUSES: Final[tuple[tuple[type[OctopiError], Status], ...]] = (
    (InvalidTopicError, Status.INVALID_TOPIC),
    (InvalidOptionError, Status.INVALID_OPTION),
    (ChecksumError, Status.RECORD_CHECKSUM),
    (RecordError, Status.MALFORMED_RECORD),
    (CorruptLogError, Status.LOG_CORRUPT),
    (DiskFullError, Status.DISK_FULL),
    (LogReadOnlyError, Status.LOG_READ_ONLY),
    (StorageError, Status.INTERNAL),
    (NeedsTimeError, Status.NOT_READY),
)
"""The first row whose class the exception has gives its status."""


def failure_of(request: int | None, error: OctopiError) -> Failure | None:
    """The `Failure` that answers *request* because of *error*; None if *error* has no status."""
    if isinstance(error, RefusedError):
        return failure(
            request, error.status, str(error.args[0]), error.address, error.epoch, error.offset
        )
    for cls, status in _STATUSES:
        if isinstance(error, cls):
            return failure(request, status, str(error))
    return None


def failure(
    request: int | None,
    status: Status,
    reason: str,
    address: str = "",
    epoch: int | None = None,
    offset: int | None = None,
) -> Failure:
    """A `Failure` whose texts are within their bounds: a long *reason* is cut, and paths in it
    are given relative to the data directory."""
    if len(address.encode(errors="replace")) > ADDRESS_BYTES_MAX:
        address = ""
    return Failure(
        request,
        int(status),
        told(reason),
        address,
        None if epoch is None else Epoch(epoch),
        None if offset is None else Offset(offset),
    )


def refusal(answer: Failure) -> RefusedError:
    """The exception for a `Failure` that a peer answered."""
    try:
        status = Status(answer.status)
    except ValueError:
        return RefusedError(f"{answer.reason} (status {answer.status})", Status.INTERNAL)
    return refused(status, answer.reason, answer.address, answer.epoch, answer.offset)


def told(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """*text*, of an error of this node, for another machine: paths are given relative to the data
    directory, and the text is cut to *bytes_max* bytes."""
    return cut(without_directory(text), bytes_max)


def cut(text: str, bytes_max: int) -> str:
    """The beginning of *text* that takes at most *bytes_max* bytes in UTF-8."""
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")
