"""Rebuilds the index of a segment from its records.

Holds the new entries in memory; they take a 2340th of the segment's size.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from octopi.limits import INDEX_INTERVAL_BYTES, SLICE_BYTES
from octopi.storage.offset_index import TIMESTAMP_MS_MAX, IndexEntry, OffsetIndex, entries_of
from octopi.storage.record_file import RecordFile
from octopi.storage.time_slices import Slices, pauses


@attrs.frozen
class RebuiltIndex:
    """The index of a segment, and its newest time stamp and count, as read from all records."""

    entries: list[IndexEntry]
    timestamp_max_ms: int
    """The largest time stamp (ms); -1 if no record has one, `TIMESTAMP_MS_MAX` if damage hides
    some."""
    count: int | None
    """How many records there are; None if damage hides some."""


def rebuilt(
    records: RecordFile, old: OffsetIndex, is_outdated: Callable[[], bool]
) -> Slices[RebuiltIndex | None]:
    """The index that *records* should have; None if *is_outdated* became true between two slices.

    Behind damage, the entries of *old* tell where the next record starts.

    Raises:
      StorageError: if the file can't be read.
    """
    entries: list[IndexEntry] = []
    timestamp_max_ms = -1
    count: int | None = 0
    position: int | None = 0
    while position is not None:
        due, fault = position, None
        for chunk in records.scan(position, SLICE_BYTES):
            new = entries_of(chunk.position, chunk.scan.marks, timestamp_max_ms, count, due)
            entries += new
            due = new[-1].position + INDEX_INTERVAL_BYTES if new else due
            timestamp_max_ms = max(timestamp_max_ms, chunk.scan.timestamp_max_ms)
            count = None if count is None else count + chunk.scan.count
            position, fault = chunk.end, chunk.fault
            if position < records.size_bytes:
                yield from pauses(chunk.read_bytes)
                if is_outdated():
                    return None
        if fault is None:
            break
        # Time stamps and number of damaged records are not known.
        timestamp_max_ms, count = TIMESTAMP_MS_MAX, None
        position = records.next_sound(position, old.positions_behind(position))
    return RebuiltIndex(entries, timestamp_max_ms, count)
