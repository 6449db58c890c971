"""What an operator chooses for a log, and what people and metrics get to know of one."""

from __future__ import annotations

import attrs

from octopi.identifiers import Offset
from octopi.limits import SEGMENT_AGE_S_MAX, SEGMENT_BYTES_MAX


@attrs.frozen
class LogOptions:
    """What an operator may choose for a log."""

    segment_bytes_max: int = SEGMENT_BYTES_MAX
    """A segment takes no batch beyond this size (but at least one)."""
    segment_age_s_max: float = SEGMENT_AGE_S_MAX
    """A segment takes no batch when its first record came so long ago."""
    retention_ms: int | None = None
    """Records may go when they are so old; None: never."""
    retention_bytes: int | None = None
    """Records may go when so many bytes stay without them; None: never."""


@attrs.frozen
class LogStatistics:
    """A log's state, for metrics and people."""

    start: Offset
    """Offset of the oldest record that is kept."""
    end: Offset
    """Offset that the next record gets."""
    flushed_end: Offset
    """Records before it are durable."""
    size_bytes: int
    """Bytes of records."""
    segment_count: int
    fault: str
    """Why nothing can be appended; empty while it can."""
