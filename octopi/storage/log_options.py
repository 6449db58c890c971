"""The options of a log, and its statistics."""

from __future__ import annotations

import attrs

from octopi.identifiers import Offset
from octopi.limits import SEGMENT_AGE_S_MAX, SEGMENT_BYTES_MAX


@attrs.frozen
class LogOptions:
    """When a log begins a new segment, and which segments retention removes."""

    segment_bytes_max: int = SEGMENT_BYTES_MAX
    """A segment takes nothing that would make it larger than this, unless it is empty.  What is
    appended by one call stays in one segment."""
    segment_age_s_max: float = SEGMENT_AGE_S_MAX
    """A segment takes no further batch this many seconds after its first append."""
    retention_ms: int | None = None
    """A segment may be removed when all its records are older than this; None: never."""
    retention_bytes: int | None = None
    """A segment may be removed when this many bytes remain without it; None: never."""
    hold_ms: int | None = None
    """A segment that subscriptions still need may be removed when all its records are older than
    `retention_ms`, or 0, and this; None: its age doesn't matter."""
    hold_bytes: int | None = None
    """A segment that subscriptions still need may be removed when this many bytes remain without it
    beside those that retention keeps anyway; None: they don't matter."""


@attrs.frozen
class LogStatistics:
    """A log's state, for metrics and people."""

    start: Offset
    """The offset of the oldest record that is kept."""
    end: Offset
    """The offset that the next record will get."""
    flushed_end: Offset
    """Records before it are durable."""
    size_bytes: int
    """The size of the records from `start` to `end`."""
    segment_count: int
    fault: str
    """Why nothing can be appended; empty while it can."""
