"""A producer's session when its topic gets other partitions, event by event."""

from __future__ import annotations

from octopi.clients.producing.batches import Batch, Stored
from octopi.clients.producing.effects import BeginEpoch, FindLeader, Send
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.session_options import SessionOptions
from octopi.errors import RefusedError, Status, refused
from octopi.identifiers import (
    Epoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicName,
)
from octopi.record import NO_HEADERS

OPTIONS = SessionOptions(
    linger_s=0.0,
    batch_bytes=1,
    grown_batch_bytes=1,
    batches_in_flight=5,
    delivery_timeout_s=30.0,
    request_timeout_s=5.0,
)


class Sending:
    """A session, and what it sends."""

    def __init__(self, *, is_named: bool = False) -> None:
        self.session = ProducerSession("t/0", ProducerId(bytes(16)), OPTIONS, is_named=is_named)
        self.now = 0.0

    def add(self, number: int, *, pinned: bool = False) -> Batch:
        value = b"%d" % number
        return self.session.add(value, b"key", NO_HEADERS, 0, self.now, pinned=pinned)

    def sent(self) -> list[Send]:
        """What is sent now."""
        return [one for one in self.effects() if isinstance(one, Send)]

    def effects(self) -> list[object]:
        self.session.check_invariants()
        return list(self.session.advance(self.now))

    def stale(self, send: Send) -> None:
        self.session.refused(send.batch, send.attempt, stale())

    def stored(self, send: Send) -> None:
        self.session.answered(send.batch, send.attempt, Stored(Offset(7), Epoch(1), False))


def stale() -> RefusedError:
    return refused(Status.STALE_ROUTE, "the topic has other partitions")


def numbers(batches: list[Batch]) -> list[bytes]:
    return [batch.builder._messages[0][0] for batch in batches]


def test_a_refusal_is_not_believed_before_a_later_generation_is_known() -> None:
    sending = Sending()
    sending.session.connected(1)
    sending.add(0)
    (first,) = sending.sent()
    sending.stale(first)
    assert [type(one) for one in sending.effects()] == [FindLeader]
    assert not sending.session.is_drained
    sending.session.connected(1)
    (again,) = sending.sent()
    assert (again.records, again.generation) == (first.records, 1)
    sending.stored(again)  # the generation was cancelled
    assert sending.session.is_empty


def test_what_was_sent_is_settled_there_and_the_rest_is_given_away_in_order() -> None:
    sending = Sending()
    sending.session.connected()
    for number in range(8):
        sending.add(number)
    on_their_way = sending.sent()
    assert len(on_their_way) == 5
    sending.session.supersede()
    assert not sending.session.is_drained
    sending.stored(on_their_way[0])
    assert sending.sent() == [], "nothing more goes by the former list"
    sending.stale(on_their_way[1])
    sending.effects()
    sending.session.connected(2)
    again = sending.sent()
    assert [one.batch for one in again] == [one.batch for one in on_their_way[1:]]
    sending.stored(again[0])  # it was stored before the log ended, though a refusal came first
    sending.stale(again[1])
    assert sending.session.is_drained
    assert numbers(sending.session.take_waiting()) == [b"%d" % number for number in range(2, 8)]
    assert sending.session.is_empty


def test_a_refusal_of_a_later_batch_leaves_the_one_before_it_to_its_answer() -> None:
    sending = Sending()
    sending.session.connected(2)
    sending.session.supersede()
    sending.session.go_on(1)
    for number in range(2):
        sending.add(number)
    sending.session.connected(2)
    first, second = sending.sent()
    sending.session.supersede()
    sending.stale(second)
    assert not sending.session.is_drained, "the first one may be stored"
    sending.stored(first)
    assert numbers(sending.session.take_waiting()) == [b"1"]


def test_a_log_that_goes_on_takes_the_next_generation_in_a_new_epoch_of_the_producer() -> None:
    sending = Sending()
    sending.session.connected()
    sending.add(0)
    (first,) = sending.sent()
    sending.session.supersede()
    sending.stale(first)
    sending.effects()
    sending.session.connected(2)
    (again,) = sending.sent()
    sending.stale(again)
    (batch,) = sending.session.take_waiting()
    sending.session.go_on(2)
    sending.session.put(batch)
    (later,) = sending.sent()
    assert (later.generation, later.epoch) == (2, 1)
    assert later.request(1, TopicName("t"), PartitionId(0)).generation == 2
    assert first.request(1, TopicName("t"), PartitionId(0)).generation == 0, "as it always was"


def test_a_named_producer_begins_its_life_in_a_log_that_it_goes_on_to() -> None:
    sending = Sending(is_named=True)
    sending.session.begin_life()
    sending.session.begin_life()
    assert [type(one) for one in sending.effects()] == [BeginEpoch]
    sending.session.began(ProducerEpoch(4))
    sending.session.begin_life()
    assert sending.effects() == []


def test_messages_whose_partition_is_named_share_no_batch_with_others() -> None:
    sending = Sending()
    options = SessionOptions(1.0, 10_000, 10_000, 5, 30.0, 5.0)
    sending.session = ProducerSession("t/0", ProducerId(bytes(16)), options)
    first, second, third = sending.add(0), sending.add(1, pinned=True), sending.add(2, pinned=True)
    assert first is not second
    assert second is third
    assert (first.sealed, first.pinned, second.pinned) == (True, False, True)


def test_a_batch_is_settled_by_its_time_limit_though_the_log_has_no_leader() -> None:
    sending = Sending()
    sending.session.connected()
    for number in range(7):
        sending.add(number)
    assert len(sending.sent()) == 5
    sending.session.supersede()
    sending.now = 30.0
    sending.effects()
    assert sending.session.is_drained
    assert sending.session.is_empty


def test_a_batch_that_comes_from_another_log_keeps_the_limits_of_those_before_it_in_order() -> None:
    sending = Sending()
    early = sending.add(0)
    sending.now = 5.0
    late = sending.add(1)
    moved = Batch(early.deadline, 0.0, sealed=True)
    moved.builder.add_from(early.builder, 0)
    sending.session.put(moved)
    assert moved.deadline == late.deadline
    sending.session.check_invariants()
