"""Where the source gets records from: what it asks of a cluster, or of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs

from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Anchor, Place
from octopi.spark.frames import Frames

PIECE_BYTES = 1024 * 1024
"""Records that are checked and turned into rows at a time: so many that what is done once for
all of them costs nothing, and so few that they stay in the processor's cache."""


@attrs.frozen(order=True)
class SourceLog:
    """One log, in one creation of its topic."""

    topic: TopicName
    partition: PartitionId
    topic_id: TopicId

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@attrs.frozen
class Bounds:
    """What there is of a log: committed records, from one boundary to another."""

    start: Offset
    end: Offset
    uncommitted_bytes: int = 0
    """What lies behind `end` in the files, and is not known to be committed."""


@attrs.frozen
class Piece:
    """Whole records, one behind the other, not checked yet."""

    offset: Offset
    """Of the first of them."""
    frames: Frames


class SourceLogs(Protocol):
    """The logs that a source reads.  Calls wait; each raises `octopi.errors.OctopiError`."""

    def find(self) -> list[SourceLog]:
        """Those that the options name, sorted; what has come since the last call among them."""

    def bounds(self, log: SourceLog) -> Bounds:
        """What there is of it now."""

    def boundary(self, log: SourceLog, offset: Offset) -> Offset:
        """The last place at or before *offset* where a record starts or the last one ends."""

    def at_time(self, log: SourceLog, timestamp_ms: int) -> Offset:
        """Where the first record with that time stamp, or a later one, starts; else the end."""

    def anchor(self, log: SourceLog, offset: Offset) -> Anchor:
        """What stands before a boundary; empty if that isn't known."""

    def common(self, log: SourceLog, place: Place) -> Offset | None:
        """The last common offset, if the log has something else before *place* than was read
        there; None if it is the same, or that isn't known."""

    def read(self, log: SourceLog, start: Place, end: Offset) -> Iterator[Piece]:
        """The records between two boundaries, in order."""
