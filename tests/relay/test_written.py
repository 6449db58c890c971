"""Which ends a quorum has written, and with which digest."""

from __future__ import annotations

import pytest

from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.limits import RELAY_AHEAD_MAX, RELAYS_MAX
from octopi.relay.buffer import BufferBounds, RelayBuffer, StreamPoint
from octopi.relay.digest import Digest, first_digest
from octopi.relay.message_ids import message_id
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import NEVER, RelayEpoch, Timeline
from octopi.relay.written import Agreement, WrittenMarks

ME, A, B, C, D = (BrokerId(one) for one in (1, 2, 3, 4, 5))
START = StreamPoint(Offset(0), first_digest(TopicId("0" * 16), PartitionId(0)))
OTHER, THIRD = Digest(b"o" * 32), Digest(b"t" * 32)


def buffer_of(count: int) -> RelayBuffer:
    buffer = RelayBuffer(START, BufferBounds())
    for number in range(count):
        buffer.append(message_id(number, b"node-a", 0), ME, b"x" * 10, 0.0)
    return buffer


def marks(members: int = 3) -> WrittenMarks:
    return WrittenMarks(ME, RelaySet(PartitionId(0), [BrokerId(1 + one) for one in range(members)]))


def point(buffer: RelayBuffer, end: int) -> StreamPoint:
    digest = buffer.digest_at(Offset(end))
    assert digest is not None
    return StreamPoint(Offset(end), digest)


def test_a_quorum_with_this_relay_among_it_commits() -> None:
    buffer, known = buffer_of(3), marks()
    known.hear(A, point(buffer, 30), buffer)
    known.hear(B, point(buffer, 20), buffer)
    assert known.committed() is None, "two others are a quorum, but this relay has not written"
    known.hear(ME, point(buffer, 10), buffer)
    assert known.committed() == 10
    known.hear(ME, point(buffer, 30), buffer)
    assert known.committed() == 30


def test_a_broker_outside_the_set_counts_for_nothing() -> None:
    buffer, known = buffer_of(1), marks()
    known.hear(ME, point(buffer, 10), buffer)
    known.hear(BrokerId(9), point(buffer, 10), buffer)
    assert known.committed() is None


def test_a_slow_relay_that_always_hears_of_later_ends_commits_what_it_reaches() -> None:
    whole, known = buffer_of(5), marks()
    buffer = buffer_of(0)
    for number in range(5):
        known.hear(A, point(whole, 10 * number + 10), buffer)
        if number:
            buffer.append(message_id(number - 1, b"node-a", 0), ME, b"x" * 10, 0.0)
            known.reached(buffer)
            known.hear(ME, buffer.end, buffer)
            assert known.committed() == 10 * number


def test_what_a_relay_remembers_of_one_that_is_ahead_is_bounded() -> None:
    buffer, known = buffer_of(0), marks()
    for number in range(RELAY_AHEAD_MAX + 100):
        known.hear(A, StreamPoint(Offset(number + 1), OTHER), buffer)
    assert len(known._ahead[A]) == RELAY_AHEAD_MAX
    assert min(known._ahead[A]) == 101


def test_a_digest_that_differs_does_not_count() -> None:
    buffer, known = buffer_of(1), marks()
    known.hear(ME, point(buffer, 10), buffer)
    known.hear(A, StreamPoint(Offset(10), OTHER), buffer)
    assert known.committed() is None
    assert known.agreement()[0] is Agreement.OPEN, "the third one may have either"


def test_a_quorum_with_another_digest_shows_that_this_relay_is_wrong() -> None:
    buffer, known = buffer_of(1), marks()
    known.hear(ME, point(buffer, 10), buffer)
    other = StreamPoint(Offset(10), OTHER)
    known.hear(A, other, buffer)
    known.hear(B, other, buffer)
    assert known.agreement() == (Agreement.OFF_QUORUM, other, [A, B])


def test_three_different_digests_of_three_are_no_quorum_and_will_be_none() -> None:
    buffer, known = buffer_of(1), marks()
    known.hear(ME, point(buffer, 10), buffer)
    known.hear(A, StreamPoint(Offset(10), OTHER), buffer)
    known.hear(B, StreamPoint(Offset(10), THIRD), buffer)
    assert known.agreement()[0] is Agreement.NONE


@pytest.mark.parametrize(
    ("heard", "agreement"),
    [
        ({A: OTHER, B: THIRD}, Agreement.OPEN),
        ({A: OTHER, B: OTHER, C: THIRD}, Agreement.OPEN),
        ({A: OTHER, B: OTHER, C: THIRD, D: THIRD}, Agreement.NONE),
        ({A: OTHER, B: OTHER, C: OTHER}, Agreement.OFF_QUORUM),
    ],
)
def test_of_five_relays(heard: dict[BrokerId, Digest], agreement: Agreement) -> None:
    buffer, known = buffer_of(1), marks(5)
    known.hear(ME, point(buffer, 10), buffer)
    for member, digest in heard.items():
        known.hear(member, StreamPoint(Offset(10), digest), buffer)
    assert known.agreement()[0] is agreement


def test_an_end_inside_a_transaction_is_another_history() -> None:
    buffer, known = buffer_of(1), marks()
    known.hear(ME, point(buffer, 10), buffer)
    for member in (A, B):
        known.hear(member, StreamPoint(Offset(5), OTHER), buffer)
    assert known.agreement()[0] is Agreement.OFF_QUORUM


def test_a_repaired_stream_counts_only_up_to_where_it_was_kept() -> None:
    buffer, known = buffer_of(3), marks()
    for member in (ME, A):
        known.hear(member, point(buffer, 30), buffer)
    buffer.cut(Offset(10))
    known.replaced(Offset(10), buffer)
    assert known.committed() == 10
    assert not known.is_level(BrokerId(3), buffer)


def test_a_relay_set_has_a_bounded_number_of_members() -> None:
    with pytest.raises(AssertionError):
        RelaySet(PartitionId(0), [BrokerId(one + 1) for one in range(RELAYS_MAX + 1)])


def test_each_member_is_the_sequencer_in_turn_and_partitions_begin_with_different_ones() -> None:
    members = [BrokerId(one) for one in (4, 8, 15)]
    firsts = set()
    for number in range(30):
        relays = RelaySet(PartitionId(number), members)
        epochs = [RelayEpoch(Timeline(1, 1), number) for number in range(3)]
        turn = [relays.sequencer(one) for one in epochs]
        assert sorted(turn) == members
        firsts.add(turn[0])
        for member in members:
            assert (
                relays.sequencer(RelayEpoch(Timeline(1, 1), relays.first_number(member))) == member
            )
    assert firsts == set(members)


def test_timelines_are_ordered_by_generation_and_their_bytes_as_well() -> None:
    some = [Timeline(1, 5), Timeline(1, 6), Timeline(2, 0), Timeline((1 << 24) - 1, (1 << 40) - 1)]
    assert sorted(some) == some == sorted(some, key=Timeline.to_bytes)
    assert [Timeline.from_bytes(one.to_bytes()) for one in some] == some
    assert RelayEpoch(some[0], 9) < RelayEpoch(some[1], 0) == RelayEpoch(some[1], 0)
    assert RelayEpoch(some[0], 9).next == RelayEpoch(some[0], 10)
    assert RelayEpoch(some[0], 0) > NEVER
