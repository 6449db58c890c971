"""A log against a plain string of bytes: whatever is done to it, and whenever it crashes."""

from __future__ import annotations

import trio
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from octopi.errors import OffsetInsideRecordError, OffsetOutOfRangeError
from octopi.identifiers import Offset
from octopi.limits import MIB
from octopi.record import record_timestamp_ms
from octopi.storage.log_options import LogOptions
from octopi.storage.newest_records import NewestRecords
from octopi.storage.recovery import RecoveryReport
from octopi.storage.time_slices import at_once
from octopi.storage.verification import Kind
from tests.storage.building import (
    NOW_MS,
    append,
    batch,
    empty_disk,
    files_of,
    findings,
    opaque,
    path,
    read_all,
    recover_log,
    starts,
)

SIZES = st.sampled_from([0, 1, 100, 5_000, 40_000])
STAMPS = st.integers(0, 50) | st.just(2**64 - 9)
FRACTIONS = st.floats(0, 1)
NEWEST_SIZES = st.sampled_from([0, 20_000, MIB])
"""How much of what was appended is kept in memory."""
SEGMENT_SIZES = st.sampled_from([500, 20_000, 300_000])


class LogMachine(RuleBasedStateMachine):
    """The reference: bytes, where records start in them, and how far they are durable."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = empty_disk()
        self.options = LogOptions()
        self.newest_bytes = 0
        self.data = bytearray()
        self.boundaries = [0]
        """Where records start from the log's start on, then the end."""
        self.flushed_end = 0
        self.truncated = False
        """Since the last flush: then a power failure may bring records back."""
        self.indexes_whole = True

    @initialize(
        segment_bytes=SEGMENT_SIZES, retention_bytes=SEGMENT_SIZES, newest_bytes=NEWEST_SIZES
    )
    def begin(self, segment_bytes: int, retention_bytes: int, newest_bytes: int) -> None:
        self.newest_bytes = newest_bytes
        self.options = LogOptions(
            segment_bytes_max=segment_bytes, retention_bytes=2 * retention_bytes
        )
        self.open(0)

    def open(self, recovery_point: int) -> RecoveryReport:
        self.log, recovery = recover_log(self.disk, self.options, recovery_point=recovery_point)
        self.log.newest = NewestRecords(self.newest_bytes)
        return recovery

    @property
    def start(self) -> int:
        return self.boundaries[0]

    def boundary(self, fraction: float) -> int:
        return self.boundaries[round(fraction * (len(self.boundaries) - 1))]

    # --- what a user does ------------------------------------------------------------------

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=8), stamp=STAMPS, old=st.booleans())
    def append(self, sizes: list[int], stamp: int, old: bool) -> None:
        values = [bytes([len(self.boundaries) % 256]) * size for size in sizes]
        data = b"".join(map(opaque, values)) if old else batch(*values, timestamp_ms=stamp)
        assert append(self.log, data) == [len(self.data)]
        self.boundaries += [len(self.data) + start for start in starts(data)[1:]]
        self.data += data

    @rule(fraction=FRACTIONS, until=FRACTIONS, bytes_max=st.sampled_from([1, 3_000, 70_000, MIB]))
    def read(self, fraction: float, until: float, bytes_max: int) -> None:
        offset, stop = sorted((self.boundary(fraction), self.boundary(until)))
        data = self.log.read(Offset(offset), bytes_max, Offset(stop))
        assert data == self.data[offset : offset + len(data)]
        assert offset + len(data) in self.boundaries
        assert offset + len(data) <= stop
        assert bool(data) == (offset < stop)
        first = self.boundaries[self.boundaries.index(offset) + 1] if data else offset
        assert len(data) <= max(bytes_max, first - offset)

    @rule()
    def read_everything(self) -> None:
        assert read_all(self.log, bytes_max=50_000) == self.data[self.start :]

    @rule(fraction=FRACTIONS)
    def read_where_no_record_starts(self, fraction: float) -> None:
        offset = Offset(round(fraction * len(self.data)) - 1)
        try:
            self.log.read(offset, 1, self.log.end)
        except OffsetInsideRecordError:
            assert offset not in self.boundaries
        except OffsetOutOfRangeError:
            assert not self.start <= offset <= len(self.data)
        else:
            assert offset in self.boundaries

    @rule(stamp=STAMPS, until=FRACTIONS)
    def find_timestamp(self, stamp: int, until: float) -> None:
        stop = self.boundary(until)
        data = bytes(self.data)
        found = [
            start
            for start in self.boundaries[:-1]
            if start < stop and record_timestamp_ms(data, start) >= stamp
        ]
        assert self.log.find_timestamp(stamp, Offset(stop)) == min(found, default=stop)

    @rule(count=st.integers(0, 30), until=FRACTIONS)
    def find_last(self, count: int, until: float) -> None:
        stop = self.boundary(until)
        number = self.boundaries.index(stop)
        assert self.log.find_last(count, Offset(stop)) == self.boundaries[max(0, number - count)]

    @rule(until=FRACTIONS)
    def count(self, until: float) -> None:
        stop = self.boundary(until)
        start, count = at_once(self.log.search.count(Offset(stop)))
        assert start == self.start
        if count is None:
            assert not self.indexes_whole
        else:
            assert count == self.boundaries.index(stop)

    @rule(fraction=FRACTIONS, until=FRACTIONS)
    def find_boundary(self, fraction: float, until: float) -> None:
        stop = self.boundary(until)
        offset = int(fraction * (len(self.data) + 2))
        before = [start for start in self.boundaries if start <= min(offset, stop)]
        expected = before[-1] if before else self.start  # retention took what was before
        assert self.log.find_boundary(Offset(offset), Offset(stop)) == expected

    @rule()
    def flush(self) -> None:
        assert trio.run(self.log.flush) == self.log.flushed_end == len(self.data)
        self.flushed_end = len(self.data)
        self.truncated = False

    @rule(fraction=FRACTIONS)
    def truncate(self, fraction: float) -> None:
        offset = self.boundary(fraction)
        self.truncated |= offset < len(self.data)
        self.log.truncate(Offset(offset))
        del self.data[offset:]
        del self.boundaries[self.boundaries.index(offset) + 1 :]
        self.flushed_end = min(self.flushed_end, offset)

    @rule(below=FRACTIONS)
    def retain(self, below: float) -> None:
        limit = self.boundary(below)
        before = len(self.data) - self.start
        removed = self.log.apply_retention(NOW_MS, below=Offset(limit))
        start = self.log.start
        assert start in self.boundaries
        assert start <= max(min(limit, self.flushed_end), self.start)
        assert removed.size_bytes == start - self.start
        least = self.options.retention_bytes
        assert least is not None
        assert len(self.data) - start >= min(before, least)
        del self.boundaries[: self.boundaries.index(start)]

    # --- what the world does ---------------------------------------------------------------

    @rule()
    def end_cleanly(self) -> None:
        self.flush()
        self.log.close()
        assert self.disk.open_files == []
        assert self.open(len(self.data)).scanned_bytes == 0

    @rule(fraction=FRACTIONS)
    def crash(self, fraction: float) -> None:
        self.disk.crash(keep_page_cache=True)
        durable = [one for one in self.boundaries if one <= self.flushed_end]
        recovery_point = durable[round(fraction * (len(durable) - 1))]
        recovery = self.open(recovery_point)
        assert recovery.scanned_bytes == len(self.data) - recovery_point
        assert recovery.cut_bytes == 0
        assert self.log.flushed_end == recovery_point
        self.flushed_end = recovery_point

    @rule(kept=st.sampled_from([0, 10, 3_000, 100_000]), names_kept=st.booleans())
    def lose_power(self, kept: int, names_kept: bool) -> None:
        self.indexes_whole = False
        self.disk.crash(keep_page_cache=False, names_kept=names_kept, unsynced_bytes_kept=kept)
        self.open(self.flushed_end)
        start, end = self.log.start, self.log.end
        assert start <= self.start  # a removal may not have been durable yet
        assert end >= self.flushed_end
        found = read_all(self.log)
        certain = self.flushed_end if self.truncated else min(end, len(self.data))
        assert found[: certain - start] == self.data[start:certain]
        self.data[start:] = found
        self.boundaries = [start + one for one in starts(found)]
        self.truncated = False

    @precondition(lambda self: bool(files_of(self.disk.files(), ".index")))
    @rule(fraction=FRACTIONS, torn=st.booleans())
    def lose_an_index(self, fraction: float, torn: bool) -> None:
        self.indexes_whole = False
        self.end_cleanly()
        self.log.close()
        names = files_of(self.disk.files(), ".index")
        name = path(names[round(fraction * (len(names) - 1))], "index")
        if torn:
            content = self.disk.content(name)
            self.disk.plant(name, content[: round(fraction * len(content))])
        else:
            self.disk.remove(name)
        self.open(len(self.data))

    @rule()
    def verify(self) -> None:
        found = findings(self.disk)
        if not self.indexes_whole:
            found = [one for one in found if one.kind is not Kind.INDEX]
        assert found == []

    @invariant()
    def stands_where_it_should(self) -> None:
        if hasattr(self, "log"):
            assert self.log.fault is None
            assert (self.log.start, self.log.end) == (self.start, len(self.data))
            assert self.log.flushed_end == self.flushed_end
            assert self.log.size_bytes == len(self.data) - self.start
            assert self.log.segment_count == len(files_of(self.disk.files(), ".log"))


LogMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50)
TestLog = LogMachine.TestCase
