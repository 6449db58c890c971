"""Checks the arguments of a producer's methods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from octopi.clients.options import within
from octopi.conditions import Condition
from octopi.errors import InvalidOptionError
from octopi.identifiers import Offset
from octopi.limits import OFFSET_MAX
from octopi.wire.messages import TopicInfo

_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_bytes(name: str, value: object) -> bytes:
    """*value* as immutable bytes.

    Raises:
      TypeError: if it is no bytes; the text calls it *name*.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name} must be bytes, not {type(value).__name__}")


def milliseconds(timestamp: datetime) -> int:
    """*timestamp* in milliseconds since 1970-01-01 UTC.

    Raises:
      InvalidOptionError: if it has no time zone.
    """
    if timestamp.tzinfo is None:
        raise InvalidOptionError(f"the timestamp {timestamp} has no time zone")
    return (timestamp - _UNIX_ZERO) // timedelta(milliseconds=1)


def condition_of(expected_end: int) -> Condition:
    """The condition that a log ends at *expected_end*.

    Raises:
      InvalidOptionError: if no log ends there.
    """
    within("expected_end", expected_end, 0, OFFSET_MAX)
    return Condition(Offset(expected_end))


def check_one_log(info: TopicInfo, key: bytes | None, partition: int | None) -> None:
    """Check that it is clear to which log of a topic a message goes.

    Raises:
      InvalidOptionError: if it isn't.
    """
    if key is None and partition is None and len(info.partitions) > 1:
        raise InvalidOptionError(
            f"expected_end is the end of one log, and topic {info.topic} has "
            f"{len(info.partitions)}: give the partition, or a key"
        )
