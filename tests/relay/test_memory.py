"""The bound for all streams of a broker together."""

from __future__ import annotations

from random import Random

from octopi.identifiers import BrokerId, Incarnation, Offset, TopicId
from octopi.limits import RELAY_BUFFER_BYTES_MIN, RELAY_MEMORY_BYTES, RELAY_MEMORY_LOOK_S
from octopi.relay.buffer import BufferBounds
from octopi.relay.memory import RelayMemory
from octopi.relay.message_ids import MessageIds, node_name
from octopi.relay.messages import RelayRefused, RelaySubmit, RelaySubmitted, SubmitRefusal
from octopi.relay.relay_set import RelaySet
from octopi.relay.sequencer import PutInOrder, put_in_order
from octopi.relay.stream import RelayStream
from octopi.relay.timelines import NEVER
from tests.relay.parts import PARTITION, produced

ME = BrokerId(1)
SET = RelaySet(PARTITION, [ME, BrokerId(2), BrokerId(3)])
IDS = MessageIds(node_name(ME, Incarnation(1)))
BIG = 20_000


class Streams:
    """Streams of one broker, of which each has one producer."""

    def __init__(self, bytes_max: int, count: int) -> None:
        self.memory = RelayMemory(bytes_max)
        self.all = [
            RelayStream(TopicId(f"{number:016x}"), ME, SET, BufferBounds(), self.memory)
            for number in range(count)
        ]
        self._sequences = [0] * count

    def submit(self, number: int, now: float, size_bytes: int = BIG) -> object:
        """Have a message put in order."""
        records = produced(number, [bytes(size_bytes)], self._sequences[number])
        return self.submit_records(number, records, now)

    def submit_records(self, number: int, records: bytes, now: float) -> object:
        stream = self.all[number]
        submit = RelaySubmit(stream.topic_id, IDS.take(1, 0), records)
        ordered = put_in_order(stream, NEVER, ME, submit, now)
        if isinstance(ordered, PutInOrder):
            self._sequences[number] += 1
        return ordered

    def deliver(self, *numbers: int) -> None:
        """A quorum has written all of these streams, or of all of them."""
        for number in numbers or range(len(self.all)):
            self.all[number].highwater = self.all[number].buffer.end.end

    def make_room(self, now: float = 0.0) -> set[int]:
        """Return the numbers of the streams that lost something."""
        evicted = self.memory.make_room(self.all, 0, now)
        return {self.all.index(one) for one in evicted}

    @property
    def held_bytes(self) -> int:
        return sum(one.buffer.size_bytes for one in self.all)


def test_streams_that_were_silent_for_longest_lose_their_oldest_messages_first() -> None:
    streams = Streams(60 * BIG, 4)
    now = 0.0
    for _ in range(18):
        for number in (0, 2, 3, 1):
            now += 1.0
            streams.submit(number, now)
    streams.submit(0, now + 1.0)  # it is the newest now, and 2 was silent longest
    streams.deliver()
    assert streams.memory.is_due(now)
    assert streams.make_room() == {2, 3}, "and then the next one"
    assert streams.all[2].buffer.size_bytes < streams.all[3].buffer.size_bytes
    assert streams.held_bytes <= streams.memory.bytes_max
    assert not streams.memory.is_due(now)
    assert not streams.memory.is_full
    for stream in streams.all:
        stream.check_invariants()


def test_each_stream_keeps_its_least_buffer_while_others_have_more() -> None:
    streams = Streams(60 * BIG, 12)
    for number in range(12):
        for _ in range(4 if number < 11 else 40):
            streams.submit(number, float(number))
    streams.deliver()
    assert streams.make_room() == {11}
    for stream in streams.all[:11]:
        assert stream.buffer.size_bytes > RELAY_BUFFER_BYTES_MIN
    assert streams.all[11].buffer.size_bytes >= RELAY_BUFFER_BYTES_MIN


def test_many_streams_with_their_least_buffers_keep_to_the_bound_as_well() -> None:
    streams = Streams(60 * BIG, 40)
    for number in range(40):
        for _ in range(2):
            streams.submit(number, float(number))
    streams.deliver()
    lost = streams.make_room()
    assert streams.held_bytes <= streams.memory.bytes_max
    assert lost == set(range(max(lost) + 1)), "those that were silent for longest"


def test_what_waits_for_a_quorum_is_never_left_out_and_nothing_more_is_put_in_order() -> None:
    streams = Streams(20 * BIG, 3)
    first = produced(0, [bytes(BIG)], 0)
    assert isinstance(streams.submit_records(0, first, 0.0), PutInOrder)
    for _ in range(7):
        for number in range(3):
            streams.submit(number, 0.0)
    assert streams.make_room() == set()
    assert streams.memory.is_full
    refused = streams.submit(1, 1.0)
    assert isinstance(refused, RelayRefused)
    assert refused.refusal is SubmitRefusal.MEMORY_FULL
    again = streams.submit_records(0, first, 1.0)
    assert isinstance(again, RelaySubmitted), "it is there, so it must not be refused"
    assert again.is_duplicate
    assert not streams.memory.is_due(RELAY_MEMORY_LOOK_S / 2)
    assert streams.memory.is_due(RELAY_MEMORY_LOOK_S)
    streams.deliver(1, 2)
    assert streams.make_room(RELAY_MEMORY_LOOK_S) == {1, 2}
    assert not streams.memory.is_full
    assert isinstance(streams.submit(1, 2.0), PutInOrder)


def test_streams_never_hold_more_than_the_bound_and_what_comes_in_one_turn() -> None:
    random = Random(5)
    streams = Streams(30 * BIG, 7)
    for turn in range(400):
        if streams.memory.is_due(float(turn)):
            streams.make_room(float(turn))
        grown = 0
        for _ in range(random.randint(0, 3)):
            size = random.randint(1, BIG)
            if isinstance(streams.submit(random.randrange(7), float(turn), size), PutInOrder):
                grown += size + 200
        if random.random() < 0.7:
            streams.deliver(random.randrange(7))
        assert streams.held_bytes <= streams.memory.held_bytes
        assert streams.held_bytes <= streams.memory.bytes_max + grown
        for stream in streams.all:
            stream.check_invariants()
    assert streams.memory.evicted_bytes > 0


def test_a_stream_leaves_out_no_more_than_was_delivered() -> None:
    streams = Streams(RELAY_MEMORY_BYTES, 1)
    for _ in range(5):
        streams.submit(0, 0.0)
    [stream] = streams.all
    size = stream.buffer.size_bytes // 5
    stream.highwater = Offset(2 * size)
    assert stream.leave_out(1 << 30, 0) == 2 * size
    assert stream.buffer.start.end == stream.highwater
    assert stream.leave_out(1 << 30, 0) == 0
