"""From an exception to the `Failure` that tells the peer, and back.

Which status an exception stands for is decided here, once, for every role.
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
"""The first class that fits."""


def failure_of(request: int | None, error: OctopiError) -> Failure | None:
    """The answer to *request* that *error* stands for; None if it stands for no answer."""
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
    """A `Failure` whose texts fit: a long *reason* is cut, and names no directory of this
    machine."""
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
    """*text*, of an error of this node, for another machine: as much as fits, and where this
    node's files lie is not in it."""
    return cut(without_directory(text), bytes_max)


def cut(text: str, bytes_max: int) -> str:
    """The beginning of *text* that takes at most *bytes_max* bytes in UTF-8."""
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")
