"""The consumer's machine against a broker that may send anything, late or twice.

Whatever comes, the program sees the log's records once and in order, the broker is never
allowed more than the window, and history is only left out where that was asked for.
"""

from __future__ import annotations

from collections import deque

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octopi.clients.consuming.consumer_session import Chunk, ConsumerSession
from octopi.errors import OffsetOutOfRangeError, ProtocolError, TopicReplacedError
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Place

WINDOW_BYTES = 64
TOPIC_ID = TopicId("0123456789abcdef")


class ConsumerSessionMachine(RuleBasedStateMachine):
    """The log is a growing string of bytes; a "record" is what one append added."""

    def __init__(self) -> None:
        super().__init__()
        self.log = b""
        self.boundaries = [0]
        self.log_start = 0
        self.session = ConsumerSession(
            TopicName("t"), PartitionId(0), TOPIC_ID, Place(Offset(0)), WINDOW_BYTES
        )
        self.granted = int(self.session.credit)
        self.subscribed_at: int | None = None
        self.ready: deque[Chunk] = deque()
        self.read = b""
        self.skipped: list[tuple[int, int]] = []

    @rule(size=st.integers(1, 40))
    def append(self, size: int) -> None:
        start = len(self.log)
        self.log += bytes((start + at) % 251 for at in range(size))
        self.boundaries.append(len(self.log))

    @rule()
    def subscribe(self) -> None:
        """Also in the middle of a reading, as after a lost connection."""
        at = self.session.resume().offset
        self.granted = self.session.credit
        assert at in self.boundaries
        self.subscribed_at = at if at >= self.log_start else None
        if self.subscribed_at is not None:
            assert self.session.subscribed(TOPIC_ID, len(self.log), "") is None

    @precondition(lambda self: self.subscribed_at is not None)
    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        at = self.subscribed_at
        assert at is not None
        if at < self.log_start:
            self.subscribed_at = None
            return
        starts = [one for one in self.boundaries[:-1] if at <= one < self.granted][:count]
        if starts:
            end = self.boundaries[self.boundaries.index(starts[-1]) + 1]
            self.take(at, end)
            self.subscribed_at = end

    @precondition(lambda self: self.session.wanted > self.log_start)
    @rule(data=st.data())
    def an_old_delivery_comes_again(self, data: st.DataObject) -> None:
        past = [one for one in self.boundaries if self.log_start <= one <= self.session.wanted]
        start = data.draw(st.sampled_from(past))
        end = data.draw(st.sampled_from([one for one in past if one >= start]))
        before = len(self.ready)
        self.take(start, end)
        assert len(self.ready) == before

    @rule(data=st.data())
    def a_delivery_with_a_hole_before_it_is_refused(self, data: st.DataObject) -> None:
        later = [one for one in self.boundaries if one > self.session.wanted]
        if later:
            start = data.draw(st.sampled_from(later))
            try:
                self.session.delivered(start, self.log[start:] + b"more", len(self.log), "")
            except ProtocolError:
                return
            raise AssertionError("a hole was passed on")

    def take(self, start: int, end: int) -> None:
        chunk = self.session.delivered(start, self.log[start:end], len(self.log), "1-0")
        if chunk is not None:
            self.ready.append(chunk)

    @precondition(lambda self: self.ready)
    @rule()
    def the_program_takes_a_batch(self) -> None:
        chunk = self.ready.popleft()
        while self.skipped and self.skipped[0][0] == len(self.read):
            start, end = self.skipped.pop(0)
            self.read += self.log[start:end]
        assert chunk.offset == len(self.read)
        self.read += chunk.records
        credit = self.session.took(chunk)
        if credit is not None:
            assert credit > self.granted
            self.granted = credit

    @rule(data=st.data())
    def retention_removes_old_records(self, data: st.DataObject) -> None:
        self.log_start = data.draw(
            st.sampled_from([one for one in self.boundaries if one >= self.log_start])
        )

    @precondition(lambda self: self.session.wanted < self.log_start)
    @rule()
    def the_gap_is_skipped(self) -> None:
        gap = self.session.check_history(self.log_start, len(self.log))
        assert gap is not None
        assert (gap.wanted, gap.available_from) == (self.session.wanted, self.log_start)
        self.skipped.append((gap.wanted, gap.available_from))
        self.session.skip_to(Offset(gap.available_from))
        self.subscribed_at = None

    @precondition(lambda self: self.session.wanted >= self.log_start)
    @rule()
    def without_a_gap_there_is_nothing_to_skip(self) -> None:
        assert self.session.check_history(self.log_start, len(self.log)) is None

    @rule()
    def a_log_that_got_shorter_is_reported(self) -> None:
        try:
            self.session.check_history(0, self.session.wanted - 1)
        except OffsetOutOfRangeError:
            return
        raise AssertionError("the end of the log is before the next record")

    @rule()
    def another_creation_of_the_topic_is_reported(self) -> None:
        try:
            self.session.subscribed("fedcba9876543210", 0, "")
        except TopicReplacedError:
            return
        raise AssertionError("another topic was taken for this one")

    @invariant()
    def no_more_than_the_window_is_under_way(self) -> None:
        self.session.check_invariants()
        waiting = sum(len(chunk.records) for chunk in self.ready)
        assert waiting == self.session.waiting_bytes
        assert self.granted <= self.session.wanted + max(0, WINDOW_BYTES - waiting)

    @invariant()
    def the_program_is_never_stuck(self) -> None:
        """With nothing waiting, at least half of the window may come."""
        if not self.ready and self.subscribed_at is not None:
            assert self.granted - self.session.wanted >= WINDOW_BYTES / 2

    def teardown(self) -> None:
        if self.session.wanted < self.log_start:
            self.the_gap_is_skipped()
        while self.ready or self.session.wanted < len(self.log):
            self.subscribe()
            self.deliver(5)
            while self.ready:
                self.the_program_takes_a_batch()
        for start, end in self.skipped:
            self.read += self.log[start:end]
        assert self.read == self.log


ConsumerSessionMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestConsumerSessionAgainstAModel = ConsumerSessionMachine.TestCase


def test_credit_never_reaches_beyond_the_end_of_a_bounded_reading() -> None:
    session = ConsumerSession(
        TopicName("t"), PartitionId(0), TOPIC_ID, Place(Offset(0)), WINDOW_BYTES, end=Offset(70)
    )
    assert session.credit == WINDOW_BYTES
    chunk = session.delivered(0, bytes(64), 100, "1-0")
    assert chunk is not None
    assert not session.is_finished
    assert session.took(chunk) == 70
    session.delivered(64, bytes(6), 100, "1-0")
    assert session.is_finished
