"""Streams of a relay: order, repetitions, and repairs in bounded messages."""

from __future__ import annotations

import pytest

from octopi.errors import Status
from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.limits import (
    RELAY_PART_BYTES,
    RELAY_PART_TRANSACTIONS,
    RELAY_POINTS_MAX,
    RELAY_REPAIR_TRIES,
    RELAY_STREAMS_MAX,
)
from octopi.record import encode_opaque
from octopi.relay.anti_entropy import RepairCounts, RepairPhase, StreamRepair
from octopi.relay.buffer import BufferBounds, RelayTransaction, StreamPoint
from octopi.relay.digest import next_digest
from octopi.relay.effects import RelayEffect, SendToRelay
from octopi.relay.message_ids import message_id
from octopi.relay.messages import (
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayPart,
    RelayRefused,
    RelaySubmit,
    RelaySubmitted,
    SubmitRefusal,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.stream_rules import StreamRules
from octopi.relay.streams import RelayStreams
from octopi.relay.timelines import RelayEpoch, Timeline
from tests.relay.parts import produced

ME, A, B = (BrokerId(one) for one in (1, 2, 3))
TOPIC = TopicId("0" * 16)
EPOCH = RelayEpoch(Timeline(1, 1), 0)


class Holder:
    """The streams of one relay, and what it wants done."""

    def __init__(
        self, me: BrokerId = ME, size_bytes: int = 1 << 24, streams_max: int = RELAY_STREAMS_MAX
    ) -> None:
        self.effects: list[RelayEffect] = []
        self.bounds = BufferBounds(size_bytes, 100_000, 600.0)
        self.relays = RelaySet(PartitionId(0), [ME, A, B])
        self.streams = RelayStreams(
            me, self.relays, StreamRules(self.bounds), self.effects.append, streams_max
        )
        self.streams.epoch = EPOCH

    def sent(self, kind: type) -> list[object]:
        found = [one.message for one in self.effects if isinstance(one, SendToRelay)]
        return [one for one in found if isinstance(one, kind)]

    def submit(self, number: int, records: bytes, topic_id: TopicId = TOPIC) -> object:
        """What the receiver is answered."""
        self.effects.clear()
        submit = RelaySubmit(topic_id, message_id(number, b"node-a", 0), records)
        self.streams.submitted(BrokerId(9), submit, 0.0)
        [answer] = self.sent(RelaySubmitted) + self.sent(RelayRefused)
        return answer


def test_what_is_submitted_is_published_with_the_place_and_digest_before_it() -> None:
    holder = Holder()
    one = holder.submit(1, produced(1, [b"one"]))
    two = holder.submit(2, produced(2, [b"two"]))
    assert isinstance(one, RelaySubmitted)
    assert isinstance(two, RelaySubmitted)
    assert one.point is not None
    published = holder.sent(RelayIncoming)
    assert len(published) == 2, "one for each other member"
    for message in published:
        assert isinstance(message, RelayIncoming)
        assert (message.offset, message.digest_before) == (one.point.end, one.point.digest)
    assert (two.offset, two.is_duplicate) == (one.point.end, False)


def test_a_repetition_has_the_place_and_id_of_the_first_time() -> None:
    holder = Holder()
    records = produced(1, [b"one", b"two", b"three"])
    first = holder.submit(1, records)
    again = holder.submit(2, records)
    assert isinstance(first, RelaySubmitted)
    assert isinstance(again, RelaySubmitted)
    assert again.is_duplicate
    assert (again.offset, again.id, again.point) == (first.offset, first.id, first.point)
    assert again.submitted == message_id(2, b"node-a", 0)
    part = holder.submit(3, produced(1, [b"two", b"three"], 1))
    assert isinstance(part, RelaySubmitted)
    assert part.id == message_id(1, b"node-a", 1)
    assert part.offset == len(produced(1, [b"one"]))


@pytest.mark.parametrize(
    ("records", "status"),
    [
        (produced(1, [b"late"], 5), Status.UNKNOWN_PRODUCER),
        (produced(1, [b"one"]) + produced(2, [b"two"]), Status.MALFORMED_RECORD),
        (encode_opaque(bytes(32), b"old"), Status.MALFORMED_RECORD),
        (b"rubbish", Status.MALFORMED_RECORD),
        (b"", Status.MALFORMED_RECORD),
    ],
    ids=["unknown producer", "two producers", "version 1", "no records", "empty"],
)
def test_wrong_records_are_refused(records: bytes, status: Status) -> None:
    answer = Holder().submit(1, records)
    assert isinstance(answer, RelayRefused)
    assert answer.refusal is SubmitRefusal.BY_PRODUCER
    assert answer.verdict is not None
    assert answer.verdict.status is status


def test_a_sequencer_refuses_what_would_wait_in_more_than_half_of_the_buffer() -> None:
    holder = Holder(size_bytes=1_000)
    large = holder.submit(1, produced(1, [bytes(2_000)]))
    assert isinstance(large, RelayRefused)
    assert large.refusal is SubmitRefusal.TOO_LARGE
    answers = [holder.submit(number, produced(number, [bytes(100)])) for number in range(2, 8)]
    taken = [one for one in answers if isinstance(one, RelaySubmitted)]
    assert len(taken) == 3
    assert all(
        one.refusal is SubmitRefusal.BUFFER_FULL for one in answers if isinstance(one, RelayRefused)
    )


def test_a_sequencer_begins_as_many_streams_as_a_partition_may_have_and_no_more() -> None:
    holder = Holder(streams_max=2)
    topics = [TopicId(f"{number:016x}") for number in range(3)]
    answers = [
        holder.submit(number, produced(number, [b"one"]), topic)
        for number, topic in enumerate(topics, 1)
    ]
    assert [type(one) for one in answers] == [RelaySubmitted, RelaySubmitted, RelayRefused]
    assert isinstance(answers[2], RelayRefused)
    assert answers[2].refusal is SubmitRefusal.TOO_MANY_STREAMS
    assert isinstance(holder.submit(4, produced(4, [b"two"]), topics[0]), RelaySubmitted)
    assert RelayStreams(ME, holder.relays, StreamRules(), holder.effects.append).streams_max == (
        RELAY_STREAMS_MAX
    )


def test_an_answer_to_a_repair_has_a_bounded_number_of_transactions() -> None:
    buffer = Holder().streams.open(TOPIC).buffer
    start = buffer.end.end
    for number in range(RELAY_PART_TRANSACTIONS + 1):
        buffer.append(message_id(number, b"node-a", 0), ME, b"r", 0.0)
    found = buffer.read(start, buffer.end.end, RELAY_PART_BYTES, RELAY_PART_TRANSACTIONS)
    assert len(found) == RELAY_PART_TRANSACTIONS
    rest = buffer.read(found[-1].end, buffer.end.end, RELAY_PART_BYTES, RELAY_PART_TRANSACTIONS)
    assert [one.offset for one in rest] == [found[-1].end]


def test_a_repetition_whose_first_time_is_gone_from_the_buffer_is_still_known() -> None:
    holder = Holder(size_bytes=1_000)
    first = holder.submit(1, produced(1, [bytes(300)]))
    stream = holder.streams.by_topic[TOPIC]
    stream.highwater = stream.buffer.end.end
    stream.buffer.drop_first()
    again = holder.submit(2, produced(1, [bytes(300)]))
    assert isinstance(first, RelaySubmitted)
    assert isinstance(again, RelaySubmitted)
    assert (again.offset, again.id, again.point) == (first.offset, None, None)
    assert again.committed >= stream.buffer.end.end


def repaired(
    behind: Holder, source: Holder, *, keeps_delivered: bool = True
) -> tuple[StreamRepair, list[object]]:
    """Repair a stream of *behind* by *source*; the messages of that."""
    target = source.streams.by_topic[TOPIC].buffer.end
    behind.effects.clear()
    stream = behind.streams.open(TOPIC)
    repair = StreamRepair(stream, EPOCH, target, [ME], keeps_delivered=keeps_delivered)
    sends, messages = repair.begin(0.0), []
    while sends:
        messages += [one.message for one in sends]
        more: list[SendToRelay] = []
        for one in sends:
            source.effects.clear()
            match one.message:
                case RelayCompare():
                    source.streams.compare(A, one.message)
                case RelayFetch():
                    source.streams.fetch(A, one.message)
            for effect in source.effects:
                assert isinstance(effect, SendToRelay)
                messages.append(effect.message)
                match effect.message:
                    case RelayCompared():
                        more += repair.compared(ME, effect.message, 0.0)
                    case RelayPart():
                        more += repair.part(ME, effect.message, 0.0)
        sends = more
    return repair, list(messages)


def filled(holder: Holder, numbers: range, size: int = 10) -> None:
    for number in numbers:
        holder.submit(number, produced(number, [bytes(size)]))


def test_a_long_repair_compares_and_fetches_in_bounded_messages() -> None:
    source, behind = Holder(), Holder(A)
    for one in (source, behind):
        filled(one, range(1, 3_000))
    filled(behind, range(9_000, 9_010))
    filled(source, range(3_000, 3_040), 15_000)
    stream = behind.streams.by_topic[TOPIC]
    repair, messages = repaired(behind, source)
    assert repair.is_verified
    compares = [one for one in messages if isinstance(one, RelayCompare)]
    parts = [one for one in messages if isinstance(one, RelayPart)]
    assert len(compares) == 2, "64 by 64 are more than 3,000"
    assert all(len(one.points) <= RELAY_POINTS_MAX for one in compares)
    assert len(parts) == 10, "four in each"
    for part in parts:
        assert sum(len(one.records) for one in part.transactions) <= RELAY_PART_BYTES
        assert part.producers is None
    assert stream.buffer.end != repair.target, "it is built beside what is held"
    assert repair.release(0.0) is False
    assert stream.buffer.end == repair.target
    stream.check_invariants()


def test_a_stream_whose_place_is_gone_from_the_source_begins_where_that_begins() -> None:
    source, behind = Holder(), Holder(A)
    for one in (source, behind):
        filled(one, range(1, 5))
    filled(source, range(5, 30))
    held = source.streams.by_topic[TOPIC]
    held.highwater = held.buffer.end.end
    while len(held.buffer) > 5:
        held.buffer.drop_first()
    repair, _ = repaired(behind, source)
    assert repair.is_verified
    assert repair.release(0.0) is True, "a gap is told"
    stream = behind.streams.by_topic[TOPIC]
    assert (stream.buffer.start, stream.buffer.end) == (held.buffer.start, held.buffer.end)
    assert stream.producers.dump() == held.producers.dump()


def test_what_was_delivered_and_the_source_does_not_have_is_never_taken_back() -> None:
    source, behind = Holder(), Holder(A)
    filled(source, range(1, 20))
    filled(behind, range(50, 60))
    stream = behind.streams.by_topic[TOPIC]
    stream.highwater = stream.buffer.end.end
    repair, _ = repaired(behind, source)
    assert repair.has_failed
    assert repair.contradicts


def test_a_source_with_wrong_memory_is_left_for_another_one() -> None:
    source, behind = Holder(), Holder(A)
    filled(source, range(1, 20))
    buffer = source.streams.by_topic[TOPIC].buffer
    one = buffer._transactions[7]
    assert one is not None
    buffer._transactions[7] = type(one)(
        one.offset, one.id, one.receiver, bytes(len(one.records)), one.digest
    )
    repair, messages = repaired(behind, source)
    assert repair.has_failed
    assert not repair.contradicts
    assert sum(isinstance(one, RelayFetch) for one in messages) == 5
    assert not len(behind.streams.by_topic[TOPIC].buffer)


def test_a_repair_whose_target_is_held_asks_nobody() -> None:
    source, behind = Holder(), Holder(A)
    for one in (source, behind):
        filled(one, range(1, 5))
    filled(behind, range(60, 63))
    repair, messages = repaired(behind, source)
    assert repair.is_verified
    assert messages == []
    repair.release(0.0)
    held = source.streams.by_topic[TOPIC]
    stream = behind.streams.by_topic[TOPIC]
    assert stream.buffer.end == held.buffer.end
    assert stream.producers.dump() == held.producers.dump()


def test_an_answer_that_nobody_asked_for_changes_no_repair() -> None:
    behind = Holder(A)
    stream = behind.streams.open(TOPIC)
    target = StreamPoint(Offset(50), stream.buffer.end.digest[::-1])  # type: ignore[arg-type]
    repair = StreamRepair(stream, EPOCH, target, [ME, B], keeps_delivered=True)
    repair.begin(0.0)
    part = RelayPart(EPOCH, TOPIC, Offset(0), ())
    assert repair.part(ME, part, 0.0) == []
    compared = RelayCompared(EPOCH, TOPIC, target, stream.buffer.start, target)
    assert repair.compared(B, compared, 0.0) == []
    assert repair.compared(ME, compared, 0.0) == []
    assert not repair.is_verified


def test_a_stream_of_another_timeline_that_ends_before_the_own_buffer_begins_is_taken_over() -> (
    None
):
    source, behind = Holder(), Holder(A)
    filled(source, range(1, 4))
    filled(behind, range(50, 80))
    stream = behind.streams.by_topic[TOPIC]
    stream.highwater = stream.buffer.end.end
    while len(stream.buffer) > 5:
        stream.buffer.drop_first()
    repair, _ = repaired(behind, source, keeps_delivered=False)
    assert repair.is_verified
    stream.begin_epoch(behind.relays, is_same_timeline=False)
    repair.release(0.0)
    held = source.streams.by_topic[TOPIC]
    assert (stream.buffer.start, stream.buffer.end) == (held.buffer.start, held.buffer.end)
    assert stream.highwater == 0
    stream.check_invariants()


def test_a_transaction_without_records_is_taken_from_nobody() -> None:
    behind = Holder(A)
    stream = behind.streams.open(TOPIC)
    start = stream.buffer.end
    identity = message_id(1, b"node-a", 0)
    empty = RelayTransaction(start.end, identity, ME, b"", next_digest(start.digest, identity, b""))
    target = StreamPoint(Offset(50), start.digest)
    repair = StreamRepair(stream, EPOCH, target, [ME, B], keeps_delivered=True)
    repair.begin(0.0)
    repair.compared(ME, RelayCompared(EPOCH, TOPIC, start, start, target), 0.0)
    repair.part(ME, RelayPart(EPOCH, TOPIC, Offset(0), (empty,)), 0.0)
    assert repair.source == B


def test_a_repair_is_counted_by_phase_unless_the_stream_is_right_when_it_begins() -> None:
    behind = Holder(A)
    stream = behind.streams.open(TOPIC)
    filled(behind, range(1, 4))
    counts = RepairCounts()
    repair = StreamRepair(
        stream, EPOCH, stream.buffer.end, [ME], keeps_delivered=True, counts=counts
    )
    repair.begin(1.0)
    repair.release(1.0)
    assert set(counts.entered.values()) == {0}

    target = StreamPoint(Offset(9_999), stream.buffer.end.digest[::-1])  # type: ignore[arg-type]
    repair = StreamRepair(stream, EPOCH, target, [ME], keeps_delivered=True, counts=counts)
    repair.begin(1.0)
    for number in range(RELAY_REPAIR_TRIES):
        assert not repair.has_failed
        repair.overdue([ME, B], 3.0 + 2 * number)
    assert repair.has_failed
    assert counts.failed == 1
    assert counts.entered[RepairPhase.LOCATE] == RELAY_REPAIR_TRIES
    assert counts.entered[RepairPhase.FETCH] == 0
    assert counts.seconds[RepairPhase.LOCATE] == 2 * RELAY_REPAIR_TRIES - 2


def test_what_is_refused_makes_no_stream() -> None:
    holder = Holder()
    assert isinstance(holder.submit(1, b"rubbish"), RelayRefused)
    assert not holder.streams.by_topic


def test_ids_that_run_over_are_refused() -> None:
    holder = Holder()
    records = produced(1, [b"one", b"two"])
    submit = RelaySubmit(TOPIC, message_id(1, b"node-a", 0xFFFF), records)
    holder.streams.submitted(BrokerId(9), submit, 0.0)
    [answer] = holder.sent(RelayRefused)
    assert isinstance(answer, RelayRefused)
    assert answer.verdict is not None
    assert answer.verdict.status is Status.MALFORMED_RECORD


def test_a_stream_of_which_the_source_keeps_nothing_any_more_begins_at_its_end() -> None:
    source, behind = Holder(), Holder(A)
    for one in (source, behind):
        filled(one, range(1, 4))
    filled(source, range(4, 9))
    held = source.streams.by_topic[TOPIC]
    held.highwater = held.buffer.end.end
    while len(held.buffer):
        held.buffer.drop_first()
    repair, _ = repaired(behind, source)
    assert repair.is_verified
    assert repair.release(0.0) is True
    stream = behind.streams.by_topic[TOPIC]
    assert stream.buffer.start == stream.buffer.end == held.buffer.end
    assert stream.producers.dump() == held.producers.dump()
