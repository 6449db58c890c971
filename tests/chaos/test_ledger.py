"""The ledger finds each kind of fault, and none in a history without any."""

from __future__ import annotations

import pytest

from sim.real.ledger import Ledger, LogId, StoredValue, judge_replica

LOG = LogId("orders", 0)
A, B, C = StoredValue(0, 10, b"a"), StoredValue(10, 20, b"b"), StoredValue(20, 30, b"c")


def ledger(*acknowledged: StoredValue) -> Ledger:
    """One producer that sent a, b and c, and one consumer at the start."""
    book = Ledger()
    for number, one in enumerate((A, B, C)):
        book.sent("p", number, LOG, one.value)
        if one in acknowledged:
            book.acknowledged(one.value, LOG, one.offset, one.next_offset, now=float(number))
    return book


def read(book: Ledger, *seen: StoredValue) -> Ledger:
    book.begins("c", LOG, 0)
    for one in seen:
        book.delivered("c", LOG, *one)
    return book


def test_a_sound_history_has_no_fault() -> None:
    book = read(ledger(A, B, C), A, B, C)
    assert book.judge({LOG: [A, B, C]}) == []


def test_a_message_without_an_outcome_may_be_stored_or_not() -> None:
    assert ledger(A, B).judge({LOG: [A, B, C]}) == []
    assert ledger(A, B).judge({LOG: [A, B]}) == []


@pytest.mark.parametrize(
    ("final", "fault"),
    [
        ([A, B], "acknowledged, and not there: 1 messages: c"),
        ([], "acknowledged, and not there: 3 messages: a, b, c"),
        ([A, C._replace(offset=10, next_offset=20)], "not at the offset"),
        ([A, B, C, StoredValue(30, 40, b"a")], "stored more than once: 1 messages: a"),
        ([A, B, C, StoredValue(30, 40, b"z")], "holds what was not sent to it: 1 messages: z"),
        ([A, B, C._replace(offset=21)], "a gap or an overlap"),
    ],
)
def test_a_log_that_differs_from_its_acknowledgements_is_a_fault(
    final: list[StoredValue], fault: str
) -> None:
    assert fault in "\n".join(ledger(A, B, C).judge({LOG: final}))


def test_a_message_in_another_log_is_a_fault() -> None:
    other = LogId("orders", 1)
    faults = ledger(A).judge({LOG: [A], other: [StoredValue(0, 10, b"b")]})
    assert faults == ["orders/1: holds what was not sent to it: 1 messages: b"]


def test_an_acknowledgement_for_another_log_is_a_fault() -> None:
    book = ledger()
    book.acknowledged(b"a", LogId("orders", 1), 0, 10, now=0.0)
    assert book.faults == ["a was sent to orders/0, acknowledged in orders/1"]


def test_a_stored_message_whose_producer_was_told_otherwise_is_a_fault() -> None:
    book = ledger(A)
    book.failed(b"b")
    assert book.judge({LOG: [A]}) == []
    assert "was told that it is not" in book.judge({LOG: [A, B]})[0]


def test_a_wrong_order_of_a_producers_messages_is_a_fault() -> None:
    final = [StoredValue(0, 10, b"b"), StoredValue(10, 20, b"a")]
    assert "behind a later message of its producer" in ledger().judge({LOG: final})[0]


def test_a_gap_that_a_consumer_saw_is_a_fault() -> None:
    assert "saw a gap" in read(ledger(A, B, C), A, C).judge({LOG: [A, B, C]})[0]


def test_a_repeat_that_a_consumer_saw_is_a_fault() -> None:
    assert "saw a repeat" in read(ledger(A, B, C), A, B, B, C).judge({LOG: [A, B, C]})[0]


def test_a_consumer_that_does_not_reach_the_end_is_a_fault() -> None:
    assert "came to 20 of" in read(ledger(A, B, C), A, B).judge({LOG: [A, B, C]})[0]


def test_a_consumer_that_resumes_at_another_offset_is_a_fault() -> None:
    book = read(ledger(A, B, C), A)
    book.begins("c", LOG, 10)
    assert book.faults == []
    book.begins("c", LOG, 20)
    assert book.faults == ["c resumes orders/0 at 20, but had read up to 10"]


def test_a_consumer_that_was_told_of_a_loss_may_resume_where_the_loss_begins() -> None:
    book = read(ledger(A, B), A, B)
    book.may_be_lost({LOG}, since=5.0)
    book.told("c", LOG, 10)
    book.begins("c", LOG, 10)
    assert book.faults == []
    book.delivered("c", LOG, *StoredValue(10, 20, b"c"))
    assert book.faults == []


def test_a_fork_is_a_fault_unless_the_consumer_was_told() -> None:
    forked = StoredValue(10, 20, b"c")
    book = read(ledger(A), A, B)
    assert "was not told: 1 messages: b" in book.judge({LOG: [A, forked]})[0]
    book.may_be_lost({LOG}, since=5.0)
    book.told("c", LOG, 10)
    book.delivered("c", LOG, *forked)
    assert book.judge({LOG: [A, forked]}) == []


def test_a_message_in_flight_when_its_consumer_was_told_of_a_loss_may_still_come() -> None:
    book = read(ledger(A), A)
    book.may_be_lost({LOG}, since=5.0)
    book.told("c", LOG, 10)
    book.delivered("c", LOG, *B)
    assert book.judge({LOG: [A]}) == []
    book.delivered("c", LOG, 10, 20, b"c")
    assert book.judge({LOG: [A, StoredValue(10, 20, b"c")]}) == []
    book.delivered("c", LOG, 10, 20, b"c")
    assert "saw a repeat" in book.faults[0]


def test_a_consumer_that_is_told_of_a_loss_where_none_may_be_is_a_fault() -> None:
    book = read(ledger(A, B), A, B)
    book.told("c", LOG, 10)
    assert book.faults == ["c was told at 10 that orders/0 lost what it may not"]


def test_only_messages_that_were_not_flushed_may_be_lost() -> None:
    book = ledger(A, B)
    book.may_be_lost({LOG}, since=1.0)
    assert book.judge({LOG: [A]}) == []
    assert book.judge({LOG: []}) == ["orders/0: acknowledged, and not there: 1 messages: a"]


def test_a_consumer_has_to_be_told_of_lost_messages_that_it_has_read() -> None:
    book = read(ledger(A, B), A, B)
    book.may_be_lost({LOG}, since=1.0)
    assert book.judge({LOG: [A]}) == [
        "c was given of orders/0 what is not there, and was not told: 1 messages: b"
    ]


def test_a_replica_that_differs_is_a_fault() -> None:
    assert judge_replica(LOG, "broker-1", [A, B], [A, B]) == []
    assert judge_replica(LOG, "broker-1", [A, B, C], [A, B]) == []
    assert judge_replica(LOG, "broker-1", [A], [A, B], whole=False) == []
    for records in ([A], [A, B._replace(value=b"x")], [], [B]):
        assert len(judge_replica(LOG, "broker-1", records, [A, B])) == 1
