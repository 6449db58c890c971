"""What a pipe makes of what the log of its output has, and what it refuses to guess."""

from __future__ import annotations

import attrs
import pytest

from octopi.clients.piping.input_place import InputPlace, Unit
from octopi.clients.piping.pipe_log import Found, PipeLog, PipeResult
from octopi.conditions import NO_RECORD, LastRecord
from octopi.errors import (
    HistoryForkedError,
    MemberFencedError,
    RecordError,
    RefusedError,
    Status,
)
from octopi.identifiers import Claim, Offset, PartitionId, ProducerId, TopicId
from octopi.limits import INPUT_BYTES_MAX, OFFSET_MAX
from octopi.record_headers import NO_HEADERS

TOPIC = TopicId("5f0c2a1b5f0c2a1b")


def unit(number: int, check: int = 7) -> Unit:
    first = Offset(100 * number)
    return Unit(TOPIC, PartitionId(3), first, Offset(first + 100), check)


def place(number: int, index: int = 0, *, is_last: bool = True) -> InputPlace:
    return InputPlace(unit(number), index, is_last)


def result(value: bytes = b"value") -> PipeResult:
    return PipeResult(value, None, NO_HEADERS, 0)


def pipe(claim: int = 4, *, from_mark: bool = False) -> PipeLog:
    return PipeLog("orders/3", ProducerId(b"p" * 16), Claim(claim), from_mark=from_mark)


def test_a_place_is_text_of_a_bounded_size() -> None:
    text = place(12, 2, is_last=False).encode()
    assert text == b"5f0c2a1b5f0c2a1b 3 1200 1300 00000007 2 more"
    assert InputPlace.decode(text) == place(12, 2, is_last=False)
    far = attrs.evolve(
        unit(0, 2**32 - 1), offset=Offset(OFFSET_MAX), next_offset=Offset(OFFSET_MAX)
    )
    assert len(InputPlace(far, 2**32 - 1, is_last=True).encode()) <= INPUT_BYTES_MAX


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no place",
        b"5f0c2a1b5f0c2a1b 3 1200 1300 00000007 2 perhaps",
        b"5f0c2a1b5f0c2a1b 3 -1 1300 00000007 2 more",
        b"5f0c2a1b5f0c2a1b 3 1200 1300 00000007 2 more\n",
    ],
)
def test_what_no_pipe_wrote_is_no_place(value: bytes) -> None:
    with pytest.raises(RecordError):
        InputPlace.decode(value)


def test_an_empty_log_is_gone_on_with_from_the_mark() -> None:
    log = pipe()
    log.found(Found(NO_RECORD, None))
    assert log.wants(unit(5))


def test_messages_before_the_place_are_not_processed_again() -> None:
    log = pipe()
    log.found(Found(LastRecord(3, 8), place(2)))
    assert [log.wants(unit(one)) for one in range(5)] == [False, False, False, True, True]


def test_of_a_message_whose_results_are_stored_in_part_the_rest_is_sent() -> None:
    log = pipe()
    log.found(Found(LastRecord(3, 8), place(2, 1, is_last=False)))
    assert log.wants(unit(2))
    log.processed(unit(2), [result(), result(), result()])
    batch = log.next_batch()
    assert batch is not None
    assert batch.places == [place(2, 2)]
    assert batch.condition is not None
    assert batch.condition.after == LastRecord(3, 8)


def test_only_the_first_request_has_a_condition() -> None:
    log = pipe()
    log.found(Found(NO_RECORD, None))
    for number in range(2):
        log.processed(unit(number), [result()])
        batch = log.next_batch()
        assert batch is not None
        assert (batch.condition is not None) == (number == 0)
        assert log.next_batch() is None, "one is on its way at a time"
        log.stored()
        assert log.take_done() == unit(number)
    assert log.is_settled


def test_results_that_the_member_before_has_stored_meanwhile_are_dropped() -> None:
    log = pipe()
    log.found(Found(NO_RECORD, None))
    for number in range(3):
        log.processed(unit(number), [result()])
    log.next_batch()
    log.refuted()
    log.found(Found(LastRecord(3, 1), place(1)))
    assert log.take_done() == unit(1)
    batch = log.next_batch()
    assert batch is not None
    assert batch.places == [place(2)]


def test_a_log_with_a_later_claim_is_left_to_that_member() -> None:
    with pytest.raises(MemberFencedError):
        pipe(4).found(Found(LastRecord(5, 0), place(0)))


@pytest.mark.parametrize(
    "found", [Found(LastRecord(3, 8), None), Found(NO_RECORD, None, forgets=True)]
)
def test_a_log_that_has_forgotten_the_pipe_is_refused_unless_the_mark_is_to_count(
    found: Found,
) -> None:
    with pytest.raises(RefusedError, match="from_mark=True") as caught:
        pipe().found(found)
    assert caught.value.status is Status.RECEIPT_FORGOTTEN
    log = pipe(from_mark=True)
    log.found(found)
    assert log.wants(unit(9))


def test_a_log_that_forgets_its_newest_record_while_a_pipe_sends_is_no_reason_to_stop() -> None:
    log = pipe()
    log.found(Found(NO_RECORD, None))
    log.processed(unit(0), [result()])
    log.next_batch()
    log.stored()
    log.found(Found(LastRecord(4, 0), None))
    assert log.place == place(0)


def test_another_message_at_the_offset_of_the_last_result_is_an_error() -> None:
    log = pipe()
    log.found(Found(LastRecord(3, 8), place(2)))
    assert not log.wants(unit(1))
    assert not log.is_checked, "so the messages before it are not marked"
    with pytest.raises(HistoryForkedError, match="that the input has lost"):
        log.wants(unit(2, check=8))


def test_a_log_that_has_lost_what_it_had_acknowledged_is_an_error() -> None:
    log = pipe()
    log.found(Found(LastRecord(3, 8), place(2)))
    with pytest.raises(HistoryForkedError, match="acknowledged are gone"):
        log.found(Found(LastRecord(3, 7), place(1)))


def test_a_message_that_comes_again_to_the_same_member_is_not_processed_again() -> None:
    log = pipe()
    log.found(Found(NO_RECORD, None))
    log.processed(unit(0), [result()])
    assert not log.wants(unit(0))
    assert log.wants(unit(1))
