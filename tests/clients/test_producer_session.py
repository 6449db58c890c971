"""What the producer's machine does about single refusals, losses and deadlines."""

from __future__ import annotations

import math
from itertools import pairwise

import attrs
import pytest

from octopi.clients.producing.batches import Batch, Stored
from octopi.clients.producing.effects import AskLeader, BeginEpoch, FindLeader, Send, Settled
from octopi.clients.producing.load import ProducerLoad
from octopi.clients.producing.producer_options import ProducerOptions
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.session_options import SessionOptions
from octopi.conditions import Condition
from octopi.errors import (
    ClosedError,
    ConditionFailedError,
    ConnectionLostError,
    NotDeliveredError,
    OutcomeUnknownError,
    RefusedError,
    Status,
    UnreachableError,
    refused,
)
from octopi.identifiers import (
    Epoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicName,
)
from octopi.limits import (
    CLIENT_BATCH_BYTES,
    FETCH_BYTES_DEFAULT,
    FEW_BATCHES_COUNT,
    GROWN_BATCH_BYTES,
    LEADER_SILENCE_S,
    LINGER_S,
    MANY_BATCHES_LINGER_S,
    MIB,
    PRODUCER_BUFFER_BYTES,
    QUESTION_INTERVAL_S,
    RECORDS_PER_PRODUCE_MAX,
)
from octopi.record import NO_HEADERS, decode

OPTIONS = SessionOptions(
    linger_s=1.0,
    batch_bytes=100_000,
    grown_batch_bytes=400_000,
    batches_in_flight=3,
    delivery_timeout_s=60.0,
    request_timeout_s=10.0,
)
STORED = Stored(Offset(0), Epoch(1), False)


class Log:
    """A session that is connected, and what it wants done."""

    def __init__(self, *, is_named: bool = False) -> None:
        self.session = ProducerSession("t/0", ProducerId(bytes(16)), OPTIONS, is_named=is_named)
        self.session.connected()
        self.now = 0.0

    def add(self, *values: bytes) -> list[Batch]:
        """One batch for each value."""
        batches = []
        for value in values:
            batches.append(self.session.add(value, None, NO_HEADERS, 0, self.now))
            self.session.seal()
        return batches

    def advance(self, seconds: float = 0.0) -> list[object]:
        self.now += seconds
        effects: list[object] = list(self.session.advance(self.now))
        self.session.check_invariants()
        return effects

    def sent(self) -> list[tuple[bytes, int, int]]:
        """Value, epoch and sequence of the first record of each batch sent now."""
        return [place_of(one) for one in self.advance() if isinstance(one, Send)]

    def refuse(self, batch: Batch, status: Status) -> None:
        self.session.refused(batch, batch.attempt, refused(status, "no"))

    def answer(self, batch: Batch) -> None:
        self.session.answered(batch, batch.attempt, STORED)

    def reconnect(self) -> list[tuple[bytes, int, int]]:
        self.session.disconnected(ConnectionLostError("gone"))
        self.advance()
        self.session.connected()
        return self.sent()


def place_of(send: Send) -> tuple[bytes, int, int]:
    message = decode(send.records, Offset(0), TopicName("t"), PartitionId(0))[0]
    epoch, sequence = message.request_id[16:20], message.request_id[24:]
    return message.value, int.from_bytes(epoch, "big"), int.from_bytes(sequence, "big")


def test_no_more_batches_than_the_limit_are_in_flight_and_each_answer_makes_room() -> None:
    log = Log()
    a, *_ = log.add(b"a", b"b", b"c", b"d")
    assert log.sent() == [(b"a", 0, 0), (b"b", 0, 1), (b"c", 0, 2)]
    assert log.sent() == []
    log.answer(a)
    assert log.sent() == [(b"d", 0, 3)]


def test_unanswered_batches_are_sent_again_unchanged_and_in_order() -> None:
    log = Log()
    log.add(b"a", b"b", b"c", b"d")
    before = log.sent()
    assert log.reconnect() == before


def test_a_late_answer_to_an_earlier_copy_is_ignored() -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.sent()
    attempt = a.attempt
    log.reconnect()
    log.session.refused(a, attempt, refused(Status.MALFORMED_RECORD, "an old answer"))
    assert a.outcome is None
    log.answer(a)
    assert a.outcome == STORED


def test_a_batch_refused_for_good_costs_only_itself() -> None:
    log = Log()
    a, b, c = log.add(b"a", b"b", b"c")
    log.sent()
    log.refuse(b, Status.MALFORMED_RECORD)
    assert isinstance(b.outcome, NotDeliveredError)
    assert log.sent() == []  # a has the older sequences, and no answer yet
    log.answer(a)
    assert log.sent() == [(b"c", 1, 0)]
    log.answer(c)
    assert c.outcome == STORED


def test_an_older_copy_makes_a_refusal_for_good_an_unknown_outcome() -> None:
    log = Log()
    a, _ = log.add(b"a", b"b")
    log.sent()
    log.reconnect()
    log.refuse(a, Status.MALFORMED_RECORD)
    assert isinstance(a.outcome, OutcomeUnknownError)
    assert log.reconnect() == [(b"b", 0, 1)]


@pytest.mark.parametrize("status", [Status.LOG_READ_ONLY, Status.LOG_CORRUPT, Status.INTERNAL])
def test_a_broker_that_may_have_stored_a_batch_leaves_its_outcome_unknown(status: Status) -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.sent()
    log.refuse(a, status)
    assert isinstance(a.outcome, OutcomeUnknownError)
    assert status.name.lower() in str(a.outcome)


@pytest.mark.parametrize(
    "status",
    [
        Status.NOT_LEADER,
        Status.NOT_READY,
        Status.SHUTTING_DOWN,
        Status.DISK_FULL,
        Status.TOO_MANY,
        Status.RECORD_CHECKSUM,
        Status.UNKNOWN_TOPIC,
        Status.UNKNOWN_PARTITION,
    ],
)
def test_after_a_retryable_refusal_all_batches_are_sent_again_and_none_counts_as_stored(
    status: Status,
) -> None:
    log = Log()
    (a,) = log.add(b"a")
    before = log.sent()
    log.session.refused(a, a.attempt, refused(status, "no", "ws://there:1"))
    (effect,) = log.advance()
    assert isinstance(effect, FindLeader)
    assert effect.address == "ws://there:1"
    log.session.connected()
    assert log.sent() == before
    log.refuse(a, status)
    log.advance()
    log.advance(OPTIONS.delivery_timeout_s)
    assert isinstance(a.outcome, NotDeliveredError)
    assert "no receipt within 60 s; last: no" in str(a.outcome)


def test_an_uncommitted_batch_has_an_unknown_outcome_if_no_receipt_comes() -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.sent()
    log.refuse(a, Status.UNCOMMITTED)
    log.advance(OPTIONS.delivery_timeout_s)
    assert isinstance(a.outcome, OutcomeUnknownError)


def test_a_forgotten_producer_begins_anew_without_an_error() -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.sent()
    log.answer(a)
    b, c = log.add(b"b", b"c")
    log.sent()
    log.refuse(b, Status.UNKNOWN_PRODUCER)
    assert log.sent() == [(b"b", 1, 0), (b"c", 1, 1)]
    assert (b.outcome, c.outcome) == (None, None)


def test_a_forgotten_producer_leaves_what_may_be_stored_unknown() -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.sent()
    log.answer(a)
    (b,) = log.add(b"b")
    log.sent()
    log.reconnect()
    log.refuse(b, Status.UNKNOWN_PRODUCER)
    assert isinstance(b.outcome, OutcomeUnknownError)
    (c,) = log.add(b"c")
    assert log.sent() == [(b"c", 0, 2)]
    log.refuse(c, Status.UNKNOWN_PRODUCER)
    assert log.sent() == [(b"c", 1, 0)]


def test_a_producer_unknown_from_the_start_is_refused_for_good() -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.sent()
    log.refuse(a, Status.UNKNOWN_PRODUCER)
    assert isinstance(a.outcome, NotDeliveredError)


def test_a_sequence_gap_behind_an_unanswered_batch_waits_for_that_batch() -> None:
    log = Log()
    _, b, _ = log.add(b"a", b"b", b"c")
    before = log.sent()
    log.refuse(b, Status.SEQUENCE_GAP)
    assert isinstance(log.advance()[0], FindLeader)
    log.session.connected()
    assert log.sent() == before


def test_a_sequence_gap_that_no_batch_can_fill_begins_a_new_epoch() -> None:
    log = Log()
    a, b = log.add(b"a", b"b")
    log.sent()
    log.refuse(a, Status.INTERNAL)  # unknown, so b keeps its place
    log.refuse(b, Status.SEQUENCE_GAP)
    assert log.sent() == [(b"b", 1, 0)]


def test_a_batch_whose_receipt_is_forgotten_is_reported_as_stored() -> None:
    log = Log()
    a, b = log.add(b"a", b"b")
    log.sent()
    log.refuse(a, Status.RECEIPT_FORGOTTEN)
    assert isinstance(a.outcome, OutcomeUnknownError)
    assert "stored, but the broker doesn't know where any more" in str(a.outcome)
    assert isinstance(a.outcome.__cause__, RefusedError)
    assert a.outcome.__cause__.status is Status.RECEIPT_FORGOTTEN
    log.answer(b)
    assert b.outcome == STORED


def test_a_producer_gives_up_an_open_connection_that_stays_silent() -> None:
    log = Log()
    log.add(b"a")
    log.sent()
    assert log.advance(9.9) == [AskLeader()]
    (effect,) = log.advance(0.1)
    assert isinstance(effect, FindLeader)
    assert effect.silent
    assert isinstance(effect.why, ConnectionLostError)


def test_the_register_is_asked_less_and_less_often_about_a_leader_that_owes_an_answer() -> None:
    log = Log()
    log.add(b"a")
    log.sent()
    asked = []
    while log.session.wake_at() < OPTIONS.request_timeout_s:
        effects = log.advance(log.session.wake_at() - log.now)
        assert effects == [AskLeader()]
        asked.append(log.now)
    assert asked[0] == LEADER_SILENCE_S
    assert asked == sorted(set(asked))
    waits = [after - before for before, after in pairwise(asked)]
    assert waits == sorted(waits)
    assert 5 < len(asked) < 12


def test_the_register_is_not_asked_about_a_leader_that_answers_late() -> None:
    log = Log()
    batches = log.add(b"a", b"b", b"c")
    log.sent()
    for batch in batches:
        assert log.advance(0.9 * LEADER_SILENCE_S) == []
        log.answer(batch)
        assert [type(one) for one in log.advance()] == [Settled]
    assert log.session.is_empty
    assert log.session.wake_at() == math.inf


def test_unanswered_batches_are_sent_unchanged_to_the_next_leader() -> None:
    log = Log()
    (a, b) = log.add(b"a", b"b")
    before = log.sent()
    assert log.advance(LEADER_SILENCE_S) == [AskLeader()]
    log.session.disconnected(ConnectionLostError("another one leads"))
    (effect,) = log.advance()
    assert isinstance(effect, FindLeader)
    assert not effect.silent  # other logs may still wait there
    assert log.advance(LEADER_SILENCE_S) == []  # nobody owes anything
    log.session.connected()
    assert log.sent() == before
    for batch in (a, b):
        log.answer(batch)
        assert batch.outcome == STORED


def test_the_register_is_asked_again_soon_while_nobody_leads() -> None:
    log = Log()
    log.add(b"a")
    log.sent()
    for _ in range(4):
        log.advance(log.session.wake_at() - log.now)
    log.session.no_leader_found(log.now)
    assert math.isclose(log.session.wake_at(), log.now + QUESTION_INTERVAL_S)


def test_a_batch_that_timed_out_keeps_its_place_while_a_later_one_needs_it() -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.now = 50.0
    (b,) = log.add(b"b")
    log.sent()
    log.session.disconnected(ConnectionLostError("gone"))
    log.advance(10.0)
    assert isinstance(a.outcome, OutcomeUnknownError)
    assert b.outcome is None
    log.session.connected()
    assert log.sent() == [(b"a", 0, 0), (b"b", 0, 1)]
    log.answer(a)
    log.answer(b)
    assert isinstance(a.outcome, OutcomeUnknownError)  # told is told
    assert b.outcome == STORED


def test_after_all_unanswered_batches_timed_out_the_next_one_begins_a_new_epoch() -> None:
    log = Log()
    a, b = log.add(b"a", b"b")
    log.sent()
    log.session.disconnected(ConnectionLostError("gone"))
    log.now = 59.0
    (c,) = log.add(b"c")
    log.advance(1.0)
    assert isinstance(a.outcome, OutcomeUnknownError)
    assert isinstance(b.outcome, OutcomeUnknownError)
    log.session.connected()
    assert log.sent() == [(b"c", 1, 0)]
    assert c.outcome is None


def test_a_time_out_names_the_newest_error_as_its_reason() -> None:
    log = Log()
    (a,) = log.add(b"a")
    log.session.disconnected(ConnectionLostError("gone"))
    log.session.trouble(UnreachableError("no node answers at ws://b:1"))
    log.advance(60.0)
    assert isinstance(a.outcome, NotDeliveredError)
    assert "last: no node answers at ws://b:1" in str(a.outcome)


def test_a_failing_producer_settles_each_batch_by_what_is_known_of_it() -> None:
    log = Log()
    a, b, c, d = log.add(b"a", b"b", b"c", b"d")
    log.sent()
    log.answer(a)
    log.sent()
    log.session.fail(RefusedError("no such topic", Status.UNKNOWN_TOPIC))
    effects = log.advance()
    assert [one.batch for one in effects if isinstance(one, Settled)] == [b, c, d]
    for batch in (b, c, d):
        assert isinstance(batch.outcome, OutcomeUnknownError)
    assert log.session.is_empty
    log.answer(b)  # too late
    assert isinstance(b.outcome, OutcomeUnknownError)


def test_an_open_batch_waits_for_the_linger_time_or_until_somebody_waits_for_it() -> None:
    log = Log()
    a = log.session.add(b"a", None, NO_HEADERS, 0, 0.0)
    assert log.sent() == []
    assert log.session.wake_at() == OPTIONS.linger_s
    log.session.hurry(a)
    assert log.sent() == [(b"a", 0, 0)]
    b = log.session.add(b"b", None, NO_HEADERS, 0, 0.0)
    log.session.hurry(b)
    assert log.sent() == []  # a is unanswered: more may come meanwhile
    log.answer(a)
    assert log.sent() == [(b"b", 0, 1)]
    log.answer(b)
    log.session.add(b"c", None, NO_HEADERS, 0, 0.0)
    log.now = OPTIONS.linger_s
    assert log.sent() == [(b"c", 0, 2)]


# --- many logs, and a full buffer ------------------------------------------------------------


def sessions(count: int) -> tuple[ProducerLoad, list[ProducerSession]]:
    """Connected sessions of one producer."""
    load = ProducerLoad()
    found = [
        ProducerSession("t/0", ProducerId(bytes(16)), OPTIONS, load=load) for _ in range(count)
    ]
    for one in found:
        one.connected()
    return load, found


def sent_by(session: ProducerSession, now: float) -> int:
    """How many batches it sends now."""
    effects = session.advance(now)
    session.check_invariants()
    return sum(isinstance(one, Send) for one in effects)


QUICK = attrs.evolve(OPTIONS, linger_s=LINGER_S)


def test_batches_of_few_logs_linger_for_the_usual_time() -> None:
    load = ProducerLoad()
    for load.open_count in (0, 1, FEW_BATCHES_COUNT):
        assert load.linger_s(LINGER_S) == LINGER_S


def test_the_more_batches_take_messages_the_longer_each_lingers_up_to_a_bound() -> None:
    load = ProducerLoad()
    load.open_count = 10 * FEW_BATCHES_COUNT
    assert load.linger_s(LINGER_S) == pytest.approx(10 * LINGER_S)
    load.open_count = 1000
    assert load.linger_s(LINGER_S) == MANY_BATCHES_LINGER_S
    load.open_count = 100_000
    assert load.linger_s(LINGER_S) == MANY_BATCHES_LINGER_S
    assert load.linger_s(1.0) == 1.0, "a linger time that is longer stays"
    assert load.linger_s(0.0) == 0.0, "nothing lingers if the program says so"


def test_a_batch_lingers_on_if_more_batches_were_begun_meanwhile() -> None:
    load = ProducerLoad()
    found = [ProducerSession("t", ProducerId(bytes(16)), QUICK, load=load) for _ in range(200)]
    found[0].connected()
    found[0].add(b"first", None, NO_HEADERS, 0, 0.0)
    assert found[0].wake_at() == LINGER_S
    for one in found[1:]:
        one.add(b"value", None, NO_HEADERS, 0, 0.001)
    assert load.open_count == 200
    assert sent_by(found[0], LINGER_S) == 0
    assert found[0].wake_at() == pytest.approx(10 * LINGER_S)
    assert sent_by(found[0], 10 * LINGER_S) == 1
    assert load.open_count == 199


@pytest.mark.parametrize("way", ["seal", "hurry", "many are sent", "the buffer is full"])
def test_nothing_that_somebody_waits_for_lingers_because_there_are_many(way: str) -> None:
    load = ProducerLoad()
    found = [ProducerSession("t", ProducerId(bytes(16)), QUICK, load=load) for _ in range(200)]
    batches = [one.add(b"value", None, NO_HEADERS, 0, 0.0) for one in found]
    for one in found:
        one.connected()
    if way == "seal":
        found[0].seal()
        assert sent_by(found[0], 0.0) == 1
        return
    if way == "hurry":
        found[0].hurry(batches[0])
        assert sent_by(found[0], 0.0) == 1
        following = found[0].add(b"next", None, NO_HEADERS, 0, 0.0)
        found[0].hurry(following)
        assert found[0].wake_at() == LINGER_S, "while the first is unanswered"
    elif way == "many are sent":
        for one in found[FEW_BATCHES_COUNT:]:
            one.seal()
    else:
        load.is_saturated = True
    assert sent_by(found[0], LINGER_S) == 1


def test_batches_that_take_messages_are_counted_until_they_take_no_more() -> None:
    load, (sealed, expired, failed, full, sent) = sessions(5)
    for one in (sealed, expired, failed, full, sent):
        one.add(b"value", None, NO_HEADERS, 0, 0.0)
    assert load.open_count == 5
    sealed.seal()
    failed.fail(ClosedError("closed"))
    full.add(bytes(OPTIONS.batch_bytes), None, NO_HEADERS, 0, 0.0)
    assert load.open_count == 2
    assert sent_by(sent, OPTIONS.linger_s) == 1
    assert load.open_count == 1
    expired.disconnected(ConnectionLostError("gone"))
    expired.advance(OPTIONS.delivery_timeout_s)
    assert load.open_count == 0


def test_batches_grow_while_the_buffer_is_full_and_a_request_is_unanswered() -> None:
    load, (session,) = sessions(1)
    value = bytes(OPTIONS.batch_bytes)
    load.is_saturated = True
    first = session.add(value, None, NO_HEADERS, 0, 0.0)
    assert first.sealed, "no request is unanswered"
    assert sent_by(session, 0.0) == 1
    second = [session.add(value, None, NO_HEADERS, 0, 0.0) for _ in range(4)]
    assert len(set(second)) == 1
    assert second[0].sealed
    assert len(second[0]) == 4
    third, count = session.add_many([bytes(1000)] * 1000, 0, NO_HEADERS, 0, 0.0)
    assert third.builder.size_bytes > 4 * OPTIONS.batch_bytes - 1000
    assert count < 1000
    load.is_saturated = False
    fourth, _ = session.add_many([bytes(1000)] * 1000, 0, NO_HEADERS, 0, 0.0)
    assert OPTIONS.batch_bytes <= fourth.builder.size_bytes < OPTIONS.batch_bytes + 2000


@pytest.mark.parametrize(
    ("batch_bytes", "buffer_bytes", "grown_bytes"),
    [
        (CLIENT_BATCH_BYTES, PRODUCER_BUFFER_BYTES, GROWN_BATCH_BYTES),
        (1000, PRODUCER_BUFFER_BYTES, 4000),
        (1000, 32_000, 2000),
        (1000, 5000, 1000),
        (MIB, PRODUCER_BUFFER_BYTES, MIB),
    ],
)
def test_a_batch_grows_fourfold_at_most_and_as_far_as_the_buffer_has_room_for_several(
    batch_bytes: int, buffer_bytes: int, grown_bytes: int
) -> None:
    options = ProducerOptions(
        linger_s=LINGER_S,
        batch_bytes=batch_bytes,
        batches_in_flight=8,
        buffer_bytes=buffer_bytes,
        delivery_timeout_s=60.0,
        create_topics=False,
    )
    assert options.grown_batch_bytes == grown_bytes
    assert GROWN_BATCH_BYTES < FETCH_BYTES_DEFAULT


def test_a_batch_has_no_more_messages_than_a_broker_takes_at_a_time() -> None:
    options = attrs.evolve(OPTIONS, batch_bytes=8 * MIB)
    values = [b""] * (RECORDS_PER_PRODUCE_MAX + 5)
    by_many = ProducerSession("t/0", ProducerId(bytes(16)), options)
    batch, count = by_many.add_many(values, 0, NO_HEADERS, 0, 0.0)
    assert (len(batch), count) == (RECORDS_PER_PRODUCE_MAX, RECORDS_PER_PRODUCE_MAX)
    rest, count = by_many.add_many(values, count, NO_HEADERS, 0, 0.0)
    assert (len(rest), count) == (5, 5)
    one_by_one = ProducerSession("t/0", ProducerId(bytes(16)), options)
    batches = [one_by_one.add(value, None, NO_HEADERS, 0, 0.0) for value in values]
    assert [len(one) for one in dict.fromkeys(batches)] == [RECORDS_PER_PRODUCE_MAX, 5]


# --- named producers -------------------------------------------------------------------------


def test_a_named_producer_sends_nothing_before_the_leader_has_begun_its_epoch() -> None:
    log = Log(is_named=True)
    assert log.session.needs_first_epoch
    log.session.add(b"a", None, NO_HEADERS, 0, log.now)
    assert log.advance(1.0) == [BeginEpoch(None)]
    assert log.advance(1.0) == [], "it asks once"
    assert log.session.wake_at() > log.now, "it waits for the answer, and for nothing else"
    log.session.began(ProducerEpoch(7))
    assert log.sent() == [(b"a", 7, 0)]
    assert not log.session.needs_first_epoch


def test_an_epoch_that_did_not_begin_is_asked_for_again() -> None:
    log = Log(is_named=True)
    log.add(b"a")
    assert log.advance() == [BeginEpoch(None)]
    log.session.not_begun(UnreachableError("away"))
    assert log.advance() == [BeginEpoch(None)]


def test_a_named_producer_has_the_leader_begin_the_epoch_behind_a_batch_that_failed() -> None:
    log = Log(is_named=True)
    log.session.began(ProducerEpoch(3))
    a, _ = log.add(b"a", b"b")
    assert log.sent() == [(b"a", 3, 0), (b"b", 3, 1)]
    log.refuse(a, Status.MALFORMED_RECORD)
    assert [one for one in log.advance() if isinstance(one, BeginEpoch)] == [
        BeginEpoch(ProducerEpoch(3))
    ]
    log.session.began(ProducerEpoch(4))
    assert log.sent() == [(b"b", 4, 0)]


def test_a_batch_that_waits_for_an_epoch_for_too_long_is_not_delivered() -> None:
    log = Log(is_named=True)
    (a,) = log.add(b"a")
    log.advance()
    log.advance(OPTIONS.delivery_timeout_s)
    assert isinstance(a.outcome, NotDeliveredError)
    log.session.began(ProducerEpoch(1))
    log.add(b"b")
    assert log.sent() == [(b"b", 1, 0)]


def conditional(log: Log, value: bytes, expected_end: int) -> Batch:
    """A message that is to be stored at *expected_end*."""
    condition = Condition(Offset(expected_end))
    return log.session.add(value, None, NO_HEADERS, 0, log.now, condition)


def refute(log: Log, batch: Batch, end: int) -> None:
    why = refused(Status.CONDITION_FAILED, "no", offset=end)
    log.session.refused(batch, batch.attempt, why)


def test_a_message_with_a_condition_is_on_its_way_alone() -> None:
    log = Log()
    (a,) = log.add(b"a")
    b = conditional(log, b"b", 100)
    (c,) = log.add(b"c")
    assert log.sent() == [(b"a", 0, 0)]
    log.answer(a)
    assert log.sent() == [(b"b", 0, 1)]
    log.answer(b)
    assert log.sent() == [(b"c", 0, 2)]
    log.answer(c)
    assert len(b) == 0


def test_it_does_not_join_an_open_batch_and_takes_no_further_messages() -> None:
    log = Log()
    first = log.session.add(b"a", None, NO_HEADERS, 0, log.now)
    b = conditional(log, b"b", 100)
    last = log.session.add(b"c", None, NO_HEADERS, 0, log.now)
    assert len({id(first), id(b), id(last)}) == 3
    assert [first.sealed, b.sealed, last.sealed] == [True, True, False]


def test_the_sequences_of_a_refuted_message_go_to_the_next_one() -> None:
    log = Log()
    a = conditional(log, b"a", 100)
    assert log.sent() == [(b"a", 0, 0)]
    refute(log, a, 300)
    assert isinstance(a.outcome, ConditionFailedError)
    assert (a.outcome.end, a.outcome.code) == (300, "condition_failed")
    log.add(b"b")
    assert log.sent() == [(b"b", 0, 0)]


def test_a_copy_without_answer_is_not_stored_either_if_the_log_goes_on_behind_the_offset() -> None:
    log = Log()
    a = conditional(log, b"a", 100)
    log.sent()
    assert log.reconnect() == [(b"a", 0, 0)]
    refute(log, a, 101)
    assert isinstance(a.outcome, ConditionFailedError)
    log.add(b"b")
    assert log.sent() == [(b"b", 0, 0)]


@pytest.mark.parametrize("end", [60, 100])
def test_it_may_be_stored_if_the_log_does_not_reach_beyond_the_offset(end: int) -> None:
    log = Log()
    a = conditional(log, b"a", 100)
    log.sent()
    log.reconnect()
    refute(log, a, end)
    assert isinstance(a.outcome, OutcomeUnknownError)
    log.add(b"b")
    assert log.sent() == [(b"b", 0, 1)]


def test_a_condition_that_a_leader_can_not_decide_is_sent_again() -> None:
    log = Log()
    a = conditional(log, b"a", 100)
    log.sent()
    log.refuse(a, Status.NOT_READY)
    log.advance()
    log.session.connected()
    assert log.sent() == [(b"a", 0, 0)]
    refute(log, a, 200)
    assert isinstance(a.outcome, ConditionFailedError)


def test_a_named_producer_begins_no_epoch_because_of_a_refuted_message() -> None:
    log = Log(is_named=True)
    a = conditional(log, b"a", 100)
    assert log.advance() == [BeginEpoch(None)]
    log.session.began(ProducerEpoch(7))
    assert log.sent() == [(b"a", 7, 0)]
    refute(log, a, 300)
    conditional(log, b"b", 300)
    assert log.sent() == [(b"b", 7, 0)]
