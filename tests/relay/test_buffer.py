"""The ring buffer of a stream, against a list that keeps everything (R21)."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.relay.buffer import (
    BufferBounds,
    RelayBuffer,
    RelayTransaction,
    StreamPoint,
    record_id,
)
from octopi.relay.digest import Digest, first_digest, next_digest
from octopi.relay.message_ids import MessageId, message_id

START = StreamPoint(Offset(0), first_digest(TopicId("0" * 16), PartitionId(0)))
BOUNDS = BufferBounds(size_bytes=64, count=8, age_s=10.0)
NODE = b"node-a"


def buffer_of(*sizes: int, bounds: BufferBounds = BOUNDS) -> RelayBuffer:
    buffer = RelayBuffer(START, bounds)
    for number, size in enumerate(sizes):
        buffer.append(message_id(number, NODE, 0), BrokerId(1), bytes(size), 0.0)
    return buffer


class BufferMachine(RuleBasedStateMachine):
    """A buffer, and everything that was ever appended and not cut."""

    @initialize()
    def begin(self) -> None:
        self.buffer = RelayBuffer(START, BOUNDS)
        self.all: list[RelayTransaction] = []
        self.times: list[float] = []
        self.highwater = 0
        self.now = 0.0
        self.number = 0

    @property
    def end(self) -> int:
        return self.all[-1].end if self.all else 0

    @rule(size=st.integers(1, 30), passed=st.sampled_from([0.0, 0.0, 3.0, 20.0]))
    def append(self, size: int, passed: float) -> None:
        self.now += passed
        self.number += 1
        identity = message_id(self.number // 3, NODE, self.number)
        records = bytes([self.number % 256]) * size
        one = self.buffer.append(identity, BrokerId(1), records, self.now)
        before = self.all[-1].digest if self.all else START.digest
        assert one == RelayTransaction(
            Offset(self.end), identity, BrokerId(1), records, next_digest(before, identity, records)
        )
        self.all.append(one)
        self.times.append(self.now)

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        behind = [one.end for one in self.all if one.end >= self.highwater]
        if behind:
            self.highwater = behind[int(share * (len(behind) - 1))]

    @rule()
    def trim(self) -> None:
        self.buffer.trim(Offset(self.highwater), self.now)
        kept = len(self.buffer)
        committed = sum(one.end > self.highwater for one in self.all)
        if kept > committed:
            # Of what may be removed, the oldest one is within all bounds.
            assert self.buffer.size_bytes <= BOUNDS.size_bytes
            assert kept <= BOUNDS.count
            assert self.now - self.times[-kept] <= BOUNDS.age_s
        assert kept >= committed, "nothing that waits for a quorum is removed"

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        places = [one.end for one in self.all if one.end >= self.highwater]
        places = [one for one in places if one >= self.buffer.start.end]
        if places:
            end = places[int(share * (len(places) - 1))]
            self.buffer.cut(Offset(end))
            count = sum(one.end <= end for one in self.all)
            del self.all[count:], self.times[count:]

    @rule(low=st.integers(-5, 400), high=st.integers(-5, 400))
    def points(self, low: int, high: int) -> None:
        kept = self.all[len(self.all) - len(self.buffer) :]
        places = [self.buffer.start, *(one.point for one in kept)]
        wanted = [one for one in places if low <= one.end <= high]
        assert self.buffer.points(Offset(low), Offset(high)) == wanted

    @precondition(lambda self: self.all)
    @rule(share=st.floats(0, 1), size=st.integers(0, 60))
    def read(self, share: float, size: int) -> None:
        at = int(share * (len(self.all) - 1))
        offset, end = self.all[at].offset, Offset(self.end)
        found = self.buffer.read(offset, end, size)
        if offset < self.buffer.start.end:
            assert not found
        else:
            assert found == self.all[at : at + len(found)]
            assert len(found) == 1 or sum(len(one.records) for one in found) <= size
            following = self.all[at + len(found) :]
            if following:
                assert following[0].end - offset > size
        inside = Offset(offset + 1)
        if inside not in {one.offset for one in self.all} | {end}:
            assert not self.buffer.read(inside, end, size)
            assert self.buffer.transaction_at(inside) is None

    @precondition(lambda self: self.all)
    @rule(share=st.floats(0, 1))
    def find(self, share: float) -> None:
        one = self.all[int(share * (len(self.all) - 1))]
        is_kept = one.offset >= self.buffer.start.end
        assert self.buffer.transaction_at(one.offset) == (one if is_kept else None)
        found = self.buffer.find(one.id)
        if is_kept:
            assert found == (one, 0)
        assert (self.buffer.digest_at(one.end) == one.digest) is (one.end >= self.buffer.start.end)

    @invariant()
    def holds(self) -> None:
        self.buffer.check_invariants()
        assert self.buffer.is_intact()
        assert self.buffer.end.end == self.end or not len(self.buffer)
        kept = self.all[len(self.all) - len(self.buffer) :]
        assert self.buffer.read(self.buffer.start.end, Offset(self.end), 1 << 40) == kept


BufferMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_a_buffer_keeps_the_newest_transactions_within_its_bounds = BufferMachine.TestCase


def test_no_transaction_behind_the_highwater_mark_is_removed_by_size_number_or_age() -> None:
    buffer = buffer_of(*[20] * 20)
    buffer.trim(Offset(0), 1_000.0)
    assert len(buffer) == 20
    buffer.trim(Offset(100), 1_000.0)
    assert buffer.start.end == 100


@pytest.mark.parametrize(
    ("bounds", "start"),
    [
        (BufferBounds(50, 100, 100.0), 60),
        (BufferBounds(1_000, 3, 100.0), 40),
        (BufferBounds(1_000, 100, 10.0), 100),
    ],
)
def test_each_bound_of_a_buffer_removes_the_oldest(bounds: BufferBounds, start: int) -> None:
    buffer = buffer_of(20, 20, 20, 20, 20, bounds=bounds)
    buffer.trim(Offset(100), 50.0)
    assert buffer.start.end == start


def test_a_buffer_that_is_used_for_long_keeps_no_places_of_what_is_gone() -> None:
    buffer = RelayBuffer(START, BufferBounds(size_bytes=1_000, count=10, age_s=10.0))
    for number in range(10_000):
        one = buffer.append(message_id(number, NODE, 0), BrokerId(1), b"x" * 10, 0.0)
        buffer.trim(one.end, 0.0)
    assert len(buffer) == 10
    assert len(buffer._ends) < 2 * 1_024 + 20
    assert len(buffer._by_node) == 10


def test_a_record_in_the_middle_of_a_transaction_is_found_by_its_id() -> None:
    buffer = RelayBuffer(START, BOUNDS)
    first = buffer.append(message_id(5, NODE, 0), BrokerId(1), b"aaa", 0.0)
    second = buffer.append(message_id(5, NODE, 3), BrokerId(1), b"bb", 0.0)
    assert buffer.find(message_id(5, NODE, 2)) == (first, 2)
    assert buffer.find(message_id(5, NODE, 4)) == (second, 1)
    assert record_id(second, 1) == message_id(5, NODE, 4)
    assert buffer.find(message_id(5, b"node-b", 4)) is None
    assert buffer.find(message_id(4, NODE, 0)) is None


@pytest.mark.parametrize("part", ["records", "id", "digest"])
def test_memory_that_changes_by_itself_is_noticed(part: str) -> None:
    buffer = buffer_of(3, 3, 3)
    one = buffer._transactions[1]
    assert one is not None
    changed = {
        "records": attrs.evolve(one, records=b"\0\0\1"),
        "id": attrs.evolve(one, id=MessageId(bytes(16))),
        "digest": attrs.evolve(one, digest=Digest(bytes(32))),
    }
    assert buffer.is_intact()
    buffer._transactions[1] = changed[part]
    assert not buffer.is_intact()
