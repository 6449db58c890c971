"""Decides how many of a log's oldest segments retention removes.  Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from octopi.identifiers import Offset

_NOTHING: Final = Offset(0)


@attrs.frozen
class ClosedSegment:
    """A segment that takes no more records."""

    end: Offset
    """Exclusive."""
    size_bytes: int
    newest_ms: int
    """When its last record was appended, or the best guess (ms since 1970-01-01 UTC)."""


@attrs.frozen
class Hold:
    """What keeps segments that retention would remove: somebody has yet to read them."""

    offset: Offset
    """Records from here on have yet to be read."""
    age_ms: int | None
    """A segment is not held when its newest record is older than this; None: age is no bound."""
    bytes_min: int | None
    """A segment is not held if this many bytes are held without it; None: size is no bound."""


@attrs.frozen
class Retained:
    """What retention has removed from a log."""

    segment_count: int
    """How many segments were removed."""
    size_bytes: int
    """How many bytes of records were removed."""
    start: Offset
    """The log's start afterwards."""


def expired_count(
    closed: Iterable[ClosedSegment],
    *,
    log_bytes: int,
    now_ms: int,
    below: Offset,
    age_ms: int | None,
    bytes_min: int | None,
    outdated_below: Offset = _NOTHING,
    hold: Hold | None = None,
) -> int:
    """How many of *closed*, oldest first, are removed.

    A segment is removed if its newest record is older than *age_ms* (None: no limit), or if the
    rest of the log, the active segment included, still has *bytes_min* bytes (None: no limit), or
    if it ends at *outdated_below* or before.  Only a segment that ends at *below* or before is
    removed.  Of the segments that are to be removed by these rules, *hold* may keep the newest.
    The first segment that stays keeps all behind it.  *closed* is read no further than needed.
    """
    expired: list[ClosedSegment] = []
    for segment in closed:
        rest_bytes = log_bytes - segment.size_bytes
        too_old = age_ms is not None and now_ms - segment.newest_ms > age_ms
        too_much = bytes_min is not None and rest_bytes >= bytes_min
        outdated = segment.end <= outdated_below
        if segment.end > below or not (too_old or too_much or outdated):
            break
        log_bytes = rest_bytes
        expired.append(segment)
    return len(expired) if hold is None else _released_count(expired, hold, now_ms)


def _released_count(expired: Sequence[ClosedSegment], hold: Hold, now_ms: int) -> int:
    """How many of *expired*, oldest first, are not held."""
    held_bytes = sum(one.size_bytes for one in expired)
    for count, segment in enumerate(expired):
        held_bytes -= segment.size_bytes
        too_old = hold.age_ms is not None and now_ms - segment.newest_ms > hold.age_ms
        too_much = hold.bytes_min is not None and held_bytes >= hold.bytes_min
        if segment.end > hold.offset and not (too_old or too_much):
            return count
    return len(expired)
