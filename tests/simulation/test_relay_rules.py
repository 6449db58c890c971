"""The rules of topics in memory: what an observer finds broken, and what the promise covers."""

from __future__ import annotations

import pytest

from octopi.identifiers import BrokerId, Offset, PartitionId, TopicId
from octopi.relay.buffer import StreamPoint
from octopi.relay.digest import first_digest, next_digest
from octopi.relay.message_ids import MessageId
from octopi.relay.messages import RelayIncoming, RelayStart, RelayStatus, RelayWritten
from octopi.relay.receiver import RelayReceipt
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import RelayEpoch, Timeline
from octopi.simulation.invariants.relay_view import MemoryLoss, RelayObserver
from octopi.simulation.kernel.host import KILL
from octopi.simulation.kernel.world import Event, World
from octopi.tracing import steps
from octopi.tracing.step import Step
from tests.relay.parts import produced

PARTITION = PartitionId(0)
TOPIC = TopicId("00000000000000aa")
MEMBERS = [BrokerId(1), BrokerId(2), BrokerId(3)]
EPOCH = RelayEpoch(Timeline(1, 7), 0)
LATER = RelayEpoch(Timeline(2, 9), 0)
BEGIN = StreamPoint(Offset(0), first_digest(TOPIC, PARTITION))


class Relays:
    """Three relays that do what a test says, and what an observer finds."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.losses: list[MemoryLoss] = []
        self.world = World(1)
        view = RelayObserver(lambda topic_id: True)
        view.rules.append(self._note)
        view.losses.append(self.losses.append)
        self.world.observe(view, view.kinds)
        self._ids = 0

    def _note(self, rule: str, text: str, event: Event) -> None:
        self.broken.append(rule)

    def take(self, broker: BrokerId, step: Step) -> None:
        self.world.record_step(step, f"broker-{broker}", 1)

    def enter(
        self, broker: BrokerId, epoch: RelayEpoch = EPOCH, status: RelayStatus = RelayStatus.NORMAL
    ) -> None:
        step = steps.M9Entered(PARTITION, broker, status, epoch, MEMBERS, 1)
        self.take(broker, step)

    def begin(self) -> Relays:
        """All are part of the first epoch."""
        for one in MEMBERS:
            self.enter(one)
        return self

    def publish(
        self, before: StreamPoint, sequence: int, epoch: RelayEpoch = EPOCH, sequencer: int = 1
    ) -> StreamPoint:
        """Publish one record of the only producer; return its end."""
        self._ids += 1
        records = produced(5, [b"value"], sequence)
        message_id = MessageId(self._ids.to_bytes(16, "big"))
        message = RelayIncoming(
            epoch, TOPIC, before.end, message_id, BrokerId(1), records, before.digest
        )
        me = BrokerId(sequencer)
        self.take(me, steps.M3Publishing(PARTITION, me, BrokerId(2), message))
        end = Offset(before.end + len(records))
        return StreamPoint(end, next_digest(before.digest, message_id, records))

    def write(self, broker: int, point: StreamPoint, epoch: RelayEpoch = EPOCH) -> None:
        me = BrokerId(broker)
        message = RelayWritten(epoch, TOPIC, point)
        self.take(me, steps.M5Telling(PARTITION, me, BrokerId(1), message))

    def commit(self, before: StreamPoint, sequence: int = 0) -> StreamPoint:
        """Have the first two write a record."""
        point = self.publish(before, sequence)
        self.write(1, point)
        self.write(2, point)
        return point

    def found(
        self, broker: int, founders: list[int], *streams: StreamPoint, epoch: RelayEpoch = LATER
    ) -> None:
        """*broker* begins another timeline, with the votes of *founders*."""
        me = BrokerId(broker)
        self.enter(me, epoch)
        begun = tuple((TOPIC, one) for one in streams)
        self.take(
            me, steps.M14Changed(PARTITION, me, epoch, [BrokerId(one) for one in founders], begun)
        )

    def kill(self, broker: int) -> None:
        self.world.note(KILL, f"broker-{broker}", 1)

    def moved(self, broker: int, point: StreamPoint) -> None:
        me = BrokerId(broker)
        self.take(me, steps.M6Moved(PARTITION, me, TOPIC, EPOCH, point.end, point.digest))


def test_what_a_quorum_has_written_may_be_delivered_and_acknowledged() -> None:
    relays = Relays().begin()
    point = relays.commit(BEGIN)
    relays.moved(1, point)
    receipt = RelayReceipt(EPOCH, Offset(0), None, point.digest, False)
    relays.take(BrokerId(3), steps.M7Answering(PARTITION, BrokerId(3), TOPIC, receipt))
    delivered = steps.M8Delivering(
        PARTITION, BrokerId(1), TOPIC, Offset(0), point.end, point.digest
    )
    relays.take(BrokerId(1), delivered)
    assert relays.broken == []


@pytest.mark.parametrize("way", ["delivered", "acknowledged", "moved"])
def test_what_one_relay_has_written_may_be_neither(way: str) -> None:
    relays = Relays().begin()
    point = relays.publish(BEGIN, 0)
    relays.write(1, point)
    me, receipt = BrokerId(1), RelayReceipt(EPOCH, Offset(0), None, point.digest, False)
    if way == "moved":
        relays.moved(1, point)
    elif way == "acknowledged":
        relays.take(me, steps.M7Answering(PARTITION, me, TOPIC, receipt))
    else:
        end, digest = point.end, point.digest
        relays.take(me, steps.M8Delivering(PARTITION, me, TOPIC, Offset(0), end, digest))
    assert relays.broken == ["relay-uncommitted"]


def test_a_digest_that_does_not_follow_from_what_was_published_is_wrong() -> None:
    relays = Relays().begin()
    point = relays.publish(BEGIN, 0)
    relays.write(1, StreamPoint(point.end, first_digest(TOPIC, PartitionId(1))))
    assert relays.broken == ["relay-digest-wrong"]


def test_two_sequences_may_not_both_be_committed() -> None:
    relays = Relays().begin()
    relays.commit(BEGIN)
    other = relays.publish(BEGIN, 0, sequencer=2)
    relays.write(3, other)
    relays.write(2, other)
    assert relays.broken == ["relay-forked"]


def test_a_message_of_a_producer_may_be_in_a_stream_once() -> None:
    relays = Relays().begin()
    first = relays.commit(BEGIN, 0)
    relays.commit(first, 0)
    assert relays.broken == ["relay-doubled"]


def test_a_relay_that_has_promised_another_epoch_may_not_write_in_the_former_one() -> None:
    relays = Relays().begin()
    point = relays.publish(BEGIN, 0)
    relays.enter(BrokerId(2), RelayEpoch(EPOCH.timeline, 1), RelayStatus.CHANGING)
    relays.write(2, point)
    assert relays.broken == ["relay-written-wrongly"]


def test_a_fenced_relay_may_neither_acknowledge_nor_deliver() -> None:
    relays = Relays().begin()
    point = relays.commit(BEGIN)
    me = BrokerId(1)
    relays.enter(me, EPOCH, RelayStatus.FENCED)
    receipt = RelayReceipt(EPOCH, Offset(0), None, point.digest, False)
    relays.take(me, steps.M7Answering(PARTITION, me, TOPIC, receipt))
    relays.take(me, steps.M8Delivering(PARTITION, me, TOPIC, Offset(0), point.end, point.digest))
    assert relays.broken == ["relay-fenced-serves", "relay-fenced-serves"]


def test_an_epoch_may_not_begin_without_what_was_committed() -> None:
    relays = Relays().begin()
    relays.commit(BEGIN)
    epoch = RelayEpoch(EPOCH.timeline, 1)
    sequencer = MEMBERS[1]
    relays.enter(sequencer, epoch)
    start = RelayStart(epoch, RelaySet(PARTITION, MEMBERS, 1), {}, ((TOPIC, BEGIN),))
    relays.take(sequencer, steps.M11Starting(PARTITION, sequencer, MEMBERS[2], start))
    assert relays.broken == ["relay-forgotten"]


def test_while_one_of_three_is_lost_a_timeline_has_to_keep_everything() -> None:
    relays = Relays().begin()
    relays.commit(BEGIN)
    relays.kill(1)
    relays.found(3, [2, 3], BEGIN)
    assert relays.broken == ["relay-lost"]
    assert [one.is_covered for one in relays.losses] == [True]


def test_when_two_of_three_are_lost_a_timeline_may_begin_with_less_and_says_so() -> None:
    relays = Relays().begin()
    first = relays.commit(BEGIN)
    relays.write(3, first)
    relays.commit(first, 1)
    relays.kill(1)
    relays.kill(2)
    relays.found(3, [3], first)
    assert relays.broken == []
    [loss] = relays.losses
    assert (loss.is_covered, loss.kept_end) == (False, first.end)


def test_what_was_committed_after_the_lost_ones_had_joined_again_has_to_stay() -> None:
    relays = Relays().begin()
    first = relays.commit(BEGIN)
    relays.kill(1)
    relays.kill(2)
    relays.enter(BrokerId(1))
    relays.enter(BrokerId(2))
    relays.commit(first, 1)
    relays.kill(2)
    relays.found(3, [1, 3], first)
    assert relays.broken == ["relay-lost"]


def test_who_was_away_when_a_timeline_began_is_lost_until_it_takes_part() -> None:
    """Two lose what the third, which was away, does not have either."""
    relays = Relays().begin()
    first = relays.commit(BEGIN)
    relays.found(1, [1, 2], first)
    relays.enter(BrokerId(2), LATER)
    second = relays.publish(first, 1, LATER)
    for one in (1, 2):
        relays.write(one, second, LATER)
    relays.kill(2)
    newest = RelayEpoch(Timeline(3, 1), 0)
    relays.enter(BrokerId(1), newest)
    begun = ((TOPIC, first),)
    relays.take(BrokerId(1), steps.M14Changed(PARTITION, BrokerId(1), newest, MEMBERS[:2], begun))
    assert relays.broken == []
    assert [one.is_covered for one in relays.losses] == [False]


def test_nothing_more_may_be_committed_in_a_timeline_behind_which_another_one_began() -> None:
    relays = Relays().begin()
    point = relays.commit(BEGIN)
    relays.found(3, [1, 2, 3], point)
    relays.commit(point, 1)
    assert relays.broken == ["relay-dead-timeline"]


def test_a_timeline_has_to_be_newer_than_all_before() -> None:
    relays = Relays().begin()
    relays.found(3, [1, 2, 3])
    relays.found(2, [1, 2, 3])
    assert relays.broken == ["relay-timeline-again"]


def test_a_timeline_may_begin_again_when_its_founder_died_alone_in_it() -> None:
    relays = Relays().begin()
    relays.found(1, [1, 2])
    relays.kill(1)
    relays.found(3, [2, 3], epoch=RelayEpoch(LATER.timeline, 1))
    assert relays.broken == []


def test_a_timeline_in_which_a_quorum_was_does_not_begin_again() -> None:
    relays = Relays().begin()
    relays.found(1, [1, 2])
    relays.enter(BrokerId(2), LATER)
    relays.found(3, [2, 3], epoch=RelayEpoch(LATER.timeline, 1))
    assert relays.broken == ["relay-timeline-again"]
