"""A stream in memory as its readers see it: whole records, anchors, and offsets."""

from __future__ import annotations

import pytest

from octopi.errors import (
    HistoryForkedError,
    InvalidOptionError,
    NotLeaderError,
    NotReadyError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    RefusedError,
)
from octopi.identifiers import BrokerId, Epoch, Offset, PartitionId, TopicId, TopicName
from octopi.limits import RELAY_READ_TRANSACTIONS
from octopi.record import record_end
from octopi.relay.buffer import BufferBounds
from octopi.relay.message_ids import message_id
from octopi.relay.relay_set import RelaySet
from octopi.relay.stream import RelayStream, one_run
from octopi.roles.broker.relay.stream_log import StreamLog
from octopi.storage.time_slices import at_once
from tests.relay.parts import produced

ME = BrokerId(1)
TOPIC = TopicId("0" * 16)
ALL = 1 << 30


class Held:
    """A stream, and its readers' view, of which this relay is the sequencer."""

    def __init__(self, size_bytes: int = 1 << 24) -> None:
        relays = RelaySet(PartitionId(0), [ME, BrokerId(2), BrokerId(3)])
        self.stream = RelayStream(TOPIC, ME, relays, BufferBounds(size_bytes, 100_000, 600.0))
        self.log = StreamLog(TopicName("prices"), TOPIC, PartitionId(0), lambda _: self.stream)
        self.log.epoch, self.log.knows_all = Epoch(1), True
        self.count = 0

    def add(self, *values: bytes) -> bytes:
        """Append a transaction that is committed; return its records."""
        self.count += 1
        records = produced(self.count, list(values))
        run = one_run(records)
        assert run is not None
        self.stream.append(message_id(self.count, b"node-a", 0), ME, records, run, 0.0)
        self.stream.highwater = self.stream.buffer.end.end
        return records


def test_whole_records_are_read_as_many_as_fit_and_one_at_least() -> None:
    held = Held()
    parts = [held.add(b"one", b"two"), held.add(b"three"), held.add(b"four")]
    log = held.log
    assert log.read(Offset(0), ALL) == b"".join(parts)
    assert log.read(Offset(0), len(parts[0]) + len(parts[1]) + 1) == parts[0] + parts[1]
    first = record_end(parts[0], 0)
    assert log.read(Offset(0), 1) == parts[0][:first]
    assert log.read_bytes_min(Offset(0)) == first
    assert log.read(Offset(first), len(parts[0]) - first) == parts[0][first:]
    assert log.read(log.end, ALL) == b""
    assert log.read_bytes_min(log.end) == 0
    with pytest.raises(OffsetInsideRecordError):
        log.read(Offset(1), ALL)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(log.end + 1), ALL)


def test_what_no_quorum_has_is_not_read() -> None:
    held = Held()
    records = held.add(b"one")
    held.add(b"two")
    held.stream.highwater = Offset(len(records))
    assert held.log.read(Offset(0), ALL) == records
    assert held.log.read(Offset(len(records)), ALL) == b""


def test_a_delivery_has_a_bounded_number_of_transactions() -> None:
    held = Held()
    for _ in range(RELAY_READ_TRANSACTIONS + 10):
        held.add(b"")
    read = held.log.read(Offset(0), ALL)
    size = len(produced(1, [b""]))
    assert len(read) == (1 + RELAY_READ_TRANSACTIONS) * size


def test_an_anchor_proves_all_that_was_read() -> None:
    held, other = Held(), Held()
    for one in (held, other):
        one.add(b"one", b"two")
        one.add(b"three")
    other.add(b"four")
    held.add(b"five")
    log = held.log
    log.read(Offset(0), ALL)
    anchor = log.anchor_behind(Offset(0))
    assert anchor == log.anchor_before(log.end)
    log.check_anchor(log.end, anchor)
    log.check_anchor(Offset(10), anchor)  # in the middle of the delivery
    with pytest.raises(HistoryForkedError) as forked:
        other.log.check_anchor(other.log.end, anchor)
    assert forked.value.offset == 0
    before = log.anchor_before(held.stream.buffer.points(Offset(0), log.end)[2].end)
    other.log.check_anchor(Offset(int(before.partition(".")[0])), before)
    assert log.anchor_before(Offset(0)) == ""


def test_what_is_not_held_here_is_only_judged_by_the_sequencer() -> None:
    held, behind = Held(), Held()
    for one in (held, behind):
        one.add(b"one")
    held.add(b"two")
    anchor = held.log.anchor_before(held.log.end)
    with pytest.raises(HistoryForkedError):
        behind.log.check_anchor(held.log.end, anchor)
    behind.log.knows_all = False
    with pytest.raises(NotLeaderError):
        behind.log.check_anchor(held.log.end, anchor)
    with pytest.raises(NotLeaderError):
        behind.log.check_anchor(held.log.end, "")
    with pytest.raises(NotLeaderError):
        behind.log.require_end()
    with pytest.raises(InvalidOptionError, match="one of a log"):
        held.log.check_anchor(held.log.end, "7-0")


def test_a_new_sequencer_tells_no_end_before_what_it_began_with_is_committed() -> None:
    held = Held()
    held.add(b"one")
    held.log.begun = held.log.end
    held.stream.highwater = Offset(0)
    with pytest.raises(NotReadyError):
        held.log.require_end()
    held.stream.highwater = held.log.end
    held.log.require_end()


def test_what_is_gone_from_memory_is_out_of_range_and_not_called_another_history() -> None:
    held = Held(size_bytes=200)
    for _ in range(10):
        held.add(bytes(50))
        held.stream.buffer.trim(held.stream.highwater, 0.0)
    assert held.log.start > 0
    held.log.check_anchor(Offset(1), "1.0123456789abcdef")
    with pytest.raises(OffsetOutOfRangeError):
        held.log.read(Offset(0), ALL)


def test_offsets_are_found_by_number_time_and_boundary() -> None:
    held = Held()
    parts = [held.add(b"one", b"two"), held.add(b"three")]
    log, first, end = held.log, len(parts[0]), held.log.end
    second = record_end(parts[0], 0)
    assert [log.find("earliest", 0), log.find("latest", 0)] == [0, end]
    assert [log.find("last", count) for count in (0, 1, 2, 3, 9)] == [end, first, second, 0, 0]
    found = [log.find("boundary", at) for at in (0, 1, second, first, end, end + 5)]
    assert found == [0, 0, second, first, end, end]
    assert log.find("timestamp", 0) == 0
    assert log.find("timestamp", 1 << 50) == end
    assert at_once(log.count()).count == 3
    with pytest.raises(RefusedError, match="an offset is found at"):
        log.find("somewhere", 0)


def test_a_stream_that_nobody_has_written_is_empty() -> None:
    log = StreamLog(TopicName("prices"), TOPIC, PartitionId(0), lambda _: None)
    assert (log.start, log.highwater, log.end) == (0, 0, 0)
    assert log.read(Offset(0), ALL) == b""
    assert log.anchor_behind(Offset(0)) == log.anchor_before(Offset(0)) == ""
    assert log.find("last", 3) == log.find("boundary", 3) == log.find("timestamp", 3) == 0
    assert log.read_bytes_min(Offset(0)) == 0
