"""A receiver, which gives receipts for what a quorum has written."""

from __future__ import annotations

import attrs
import pytest

from octopi.errors import Status
from octopi.identifiers import BrokerId, Incarnation, Offset, PartitionId, TopicId
from octopi.limits import RELAY_AHEAD_MAX, RELAY_BEAT_S, RELAY_PENDING_MAX, RELAY_PRODUCE_S
from octopi.relay.buffer import StreamPoint
from octopi.relay.digest import Digest
from octopi.relay.effects import SendToRelay
from octopi.relay.message_ids import MessageIds, node_name
from octopi.relay.messages import (
    RelayRefused,
    RelaySubmit,
    RelaySubmitted,
    RelayWritten,
    SubmitRefusal,
)
from octopi.relay.receiver import (
    AnswerProducer,
    NotKnown,
    NotStored,
    ReceiverEffect,
    RelayReceipt,
    RelayReceiver,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import RelayEpoch, Timeline
from octopi.replication.producer_sequences import Refused

SET = RelaySet(PartitionId(0), [BrokerId(1), BrokerId(2), BrokerId(3)])
FIRST, SECOND, THIRD = SET.ranked
TOPIC = TopicId("0" * 16)
EPOCH = RelayEpoch(Timeline(1, 7), 0)
POINT = StreamPoint(Offset(20), Digest(b"d" * 32))


def receiver() -> RelayReceiver:
    me = BrokerId(9)
    return RelayReceiver(me, SET, MessageIds(node_name(me, Incarnation(1))))


def produce(one: RelayReceiver, now: float = 0.0) -> RelaySubmit:
    [effect] = one.produce(1, TOPIC, b"records", 1, now, 1_000)
    assert isinstance(effect, SendToRelay)
    assert isinstance(effect.message, RelaySubmit)
    return effect.message


def placed(submit: RelaySubmit, epoch: RelayEpoch = EPOCH, committed: int = 0) -> RelaySubmitted:
    return RelaySubmitted(
        epoch, TOPIC, submit.id, submit.id, Offset(10), POINT, False, Offset(committed), 2
    )


def written(epoch: RelayEpoch = EPOCH, point: StreamPoint = POINT) -> RelayWritten:
    return RelayWritten(epoch, TOPIC, point)


def refused(
    submit: RelaySubmit, refusal: SubmitRefusal, sequencer: int | None = None
) -> RelayRefused:
    named = BrokerId(sequencer) if sequencer is not None else None
    return RelayRefused(TOPIC, submit.id, refusal, named)


def receipts(effects: list[ReceiverEffect]) -> list[object]:
    return [one.outcome for one in effects if isinstance(one, AnswerProducer)]


def test_a_receipt_needs_the_same_end_and_digest_of_a_quorum() -> None:
    one = receiver()
    submit = produce(one)
    assert not receipts(one.receive(FIRST, placed(submit), 0.0))
    assert not receipts(one.receive(FIRST, written(), 0.0))
    assert not receipts(one.receive(FIRST, written(), 0.0)), "one relay counts once"
    other = attrs.evolve(POINT, digest=Digest(b"o" * 32))
    assert not receipts(one.receive(SECOND, written(point=other), 0.0))
    [receipt] = receipts(one.receive(THIRD, written(), 0.0))
    assert receipt == RelayReceipt(EPOCH, Offset(10), submit.id, POINT.digest, False)
    assert not len(one)


def test_the_sequencer_says_how_many_members_have_to_write() -> None:
    """The set may have become larger."""
    one = receiver()
    submit = produce(one)
    for member in (FIRST, SECOND):
        assert not receipts(one.receive(member, written(), 0.0))
    larger = attrs.evolve(placed(submit), quorum=3)
    assert not receipts(one.receive(FIRST, larger, 0.0))
    assert receipts(one.receive(BrokerId(4), written(), 0.0))


def test_what_is_written_may_be_heard_before_its_place_is() -> None:
    one = receiver()
    submit = produce(one)
    for member in (FIRST, SECOND):
        assert not receipts(one.receive(member, written(), 0.0))
    assert receipts(one.receive(FIRST, placed(submit), 0.0))


def test_a_later_end_of_a_quorum_covers_an_earlier_one() -> None:
    one = receiver()
    submit = produce(one)
    one.receive(FIRST, placed(submit), 0.0)
    later = StreamPoint(Offset(90), Digest(b"l" * 32))
    assert not receipts(one.receive(FIRST, written(point=later), 0.0))
    assert receipts(one.receive(THIRD, written(point=later), 0.0))


def test_what_is_written_in_another_epoch_does_not_count() -> None:
    one = receiver()
    submit = produce(one)
    one.receive(FIRST, placed(submit), 0.0)
    for member in (FIRST, SECOND, THIRD):
        assert not receipts(one.receive(member, written(EPOCH.next), 0.0))
    again = one.receive(FIRST, placed(submit, EPOCH.next), 0.0)
    assert receipts(again), "there it is found, and committed"


def test_what_the_sequencer_says_is_committed_is_acknowledged() -> None:
    one = receiver()
    submit = produce(one)
    known = attrs.evolve(placed(submit, committed=20), is_duplicate=True, id=None)
    [receipt] = receipts(one.receive(FIRST, known, 0.0))
    assert receipt == RelayReceipt(EPOCH, Offset(10), None, POINT.digest, True)


def test_an_outcome_that_nobody_tells_in_time_is_not_known() -> None:
    one = receiver()
    produce(one)
    assert not receipts(one.tick(RELAY_PRODUCE_S - 0.01))
    assert receipts(one.tick(RELAY_PRODUCE_S)) == [NotKnown()]


def test_a_receiver_that_is_fenced_gives_no_receipt() -> None:
    one = receiver()
    submit = produce(one)
    assert receipts(list(one.fenced())) == [NotKnown()]
    assert not receipts(one.receive(FIRST, placed(submit, committed=20), 0.0))


def test_a_refusal_for_good_is_told_and_is_certain_at_the_first_attempt() -> None:
    one = receiver()
    submit = produce(one)
    full = refused(submit, SubmitRefusal.BUFFER_FULL)
    assert receipts(one.receive(FIRST, full, 0.0)) == [NotStored(full)]
    submit = produce(one)
    one.tick(0.5)
    full = refused(submit, SubmitRefusal.BUFFER_FULL)
    assert receipts(one.receive(FIRST, full, 0.6)) == [NotKnown()]
    submit = produce(one)
    verdict = Refused(Status.SEQUENCE_GAP, "a gap")
    gap = attrs.evolve(refused(submit, SubmitRefusal.BY_PRODUCER), verdict=verdict)
    assert receipts(one.receive(FIRST, gap, 0.0)) == [NotStored(gap)]


def test_another_sequencer_is_asked_at_once_and_one_that_is_not_ready_a_little_later() -> None:
    one = receiver()
    submit = produce(one)
    elsewhere = refused(submit, SubmitRefusal.NOT_SEQUENCER, THIRD)
    assert one.receive(FIRST, elsewhere, 0.0) == [SendToRelay(THIRD, submit)]
    assert one.receive(THIRD, refused(submit, SubmitRefusal.NOT_READY), 0.0) == []
    assert one.tick(RELAY_BEAT_S / 2) == []
    assert len(one.tick(RELAY_BEAT_S)) == 1
    stranger = refused(submit, SubmitRefusal.NOT_SEQUENCER, 8)
    assert one.receive(THIRD, stranger, 0.1) == []


def test_a_relay_that_does_not_answer_is_left_for_the_next_one() -> None:
    one = receiver()
    submit = produce(one)
    asked = [
        effect.to
        for now in (0.4, 0.8, 1.2)
        for effect in one.tick(now)
        if isinstance(effect, SendToRelay)
    ]
    assert asked == [FIRST, SECOND, THIRD]
    assert one.sequencer_is(SECOND, 1.3) == [SendToRelay(SECOND, submit)]


def test_a_receiver_takes_so_many_produces_at_once_and_no_more() -> None:
    one = receiver()
    for _ in range(RELAY_PENDING_MAX):
        produce(one)
    [full] = receipts(one.produce(2, TOPIC, b"records", 1, 0.0, 1_000))
    assert isinstance(full, NotStored)
    assert full.refused.refusal is SubmitRefusal.BUFFER_FULL


def test_what_a_receiver_remembers_of_ends_is_bounded() -> None:
    one = receiver()
    produce(one)
    for number in range(RELAY_AHEAD_MAX + 50):
        one.receive(FIRST, written(point=StreamPoint(Offset(number + 1), POINT.digest)), 0.0)
    assert len(one._streams[TOPIC].by_end) <= RELAY_AHEAD_MAX


@pytest.mark.parametrize("message", ["placed", "refused"])
def test_an_answer_to_what_nobody_waits_for_is_ignored(message: str) -> None:
    one = receiver()
    submit = produce(one)
    one.fenced()
    answer = placed(submit) if message == "placed" else refused(submit, SubmitRefusal.TOO_LARGE)
    assert one.receive(FIRST, answer, 0.0) == []
    assert one.receive(FIRST, written(), 0.0) == []
