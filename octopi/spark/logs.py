"""The interface between the source and the logs that it reads, in a cluster or in files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs

from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Anchor, Place
from octopi.spark.frames import Frames

PIECE_BYTES = 1024 * 1024
"""The size of the records that are checked and turned into rows at a time: large enough that the
cost of a call hardly counts, and small enough that the records stay in the processor's cache."""


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
    """The range of a log that can be read: committed records, from one boundary to another."""

    start: Offset
    end: Offset
    uncommitted_bytes: int = 0
    """The size of the records behind `end` in the files, which are not known to be committed."""


@attrs.frozen
class Piece:
    """Whole records, one behind the other, not checked yet."""

    offset: Offset
    """The offset of the first record."""
    frames: Frames


class SourceLogs(Protocol):
    """The logs that a source reads.  Calls block; each may raise `octopi.errors.OctopiError`."""

    def find(self) -> list[SourceLog]:
        """The logs that the options name, sorted; also those that are new since the last call."""

    def bounds(self, log: SourceLog) -> Bounds:
        """The range of *log* that can be read now."""

    def boundary(self, log: SourceLog, offset: Offset) -> Offset:
        """The last offset at or before *offset* at which a record starts, or the log ends."""

    def at_time(self, log: SourceLog, timestamp_ms: int) -> Offset:
        """The offset of the first record with that time stamp or a later one; if there is none,
        the end of the log."""

    def anchor(self, log: SourceLog, offset: Offset) -> Anchor:
        """The anchor of a boundary; empty if it isn't known."""

    def common(self, log: SourceLog, place: Place) -> Offset | None:
        """The last common offset, if the log has another history before *place* than was read
        there; None if it is the same, or not known."""

    def read(self, log: SourceLog, start: Place, end: Offset) -> Iterator[Piece]:
        """The records between two boundaries, in order."""
