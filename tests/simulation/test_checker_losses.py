"""Reported losses: they are permitted, and a consumer that read lost records must be told first."""

from __future__ import annotations

from octopi.simulation.history.checker import Rule, check
from octopi.simulation.history.events import (
    Acknowledged,
    Assigned,
    Delivered,
    Event,
    FinalLog,
    History,
    Invoked,
    LossTold,
    PositionStored,
    Rested,
    Resumed,
)
from tests.simulation.stories import LOG, SIZE, stored, value


def sent(number: int, place: int, epoch: int) -> list[Event]:
    """A message that is sent and acknowledged."""
    offset = place * SIZE
    return [
        Invoked(0, f"p{epoch}", "orders", 0, value(number)),
        Acknowledged(0, LOG, value(number), offset, offset + SIZE, epoch),
    ]


def handed(number: int, place: int) -> Event:
    """A message that the consumer is handed."""
    return Delivered(0, "c1", LOG, place * SIZE, (place + 1) * SIZE, value(number))


BEFORE: list[Event] = [
    Assigned(0, "c1", LOG, 0),
    *(event for number in range(4) for event in sent(number, number, 1)),
]
LOSS = LossTold(1, LOG, 2 * SIZE, 2)
"""Messages 2 and 3 are lost."""
AFTER: list[Event] = [*sent(10, 2, 2), *sent(11, 3, 2), *sent(12, 4, 2)]
END: list[Event] = [
    FinalLog(9, LOG, (stored(0), stored(1), stored(10, 2), stored(11, 3), stored(12, 4))),
    Rested(9, "c1", LOG),
]


def rules(*events: Event) -> list[Rule]:
    """The rules that a history breaks."""
    return [fault.rule for fault in check(History(list(events)))]


def test_only_records_of_a_reported_loss_may_be_lost() -> None:
    read = [handed(number, place) for place, number in enumerate((0, 1, 10, 11, 12))]
    assert rules(*BEFORE, LOSS, *AFTER, *read, *END) == []
    assert Rule.LOST_WRITE in rules(
        *BEFORE, LossTold(1, LOG, 3 * SIZE, 2), *AFTER, *read, *END
    ) or Rule.INCONSISTENT_OFFSET in rules(
        *BEFORE, LossTold(1, LOG, 3 * SIZE, 2), *AFTER, *read, *END
    )
    assert rules(*BEFORE, *AFTER, *read, *END) != []


def test_a_consumer_that_read_lost_records_is_told_before_it_reads_on() -> None:
    ahead = [handed(number, number) for number in range(4)]
    told = [Assigned(2, "c1", LOG, 2 * SIZE), handed(10, 2), handed(11, 3), handed(12, 4)]
    assert rules(*BEFORE, *ahead, LOSS, *AFTER, *told, *END) == []
    assert rules(*BEFORE, *ahead, LOSS, *AFTER, handed(12, 4), *END) == [Rule.SILENT_FORK]


def test_a_consumer_is_sent_back_to_the_first_lost_record_that_it_read() -> None:
    ahead = [handed(number, number) for number in range(4)]
    far = [Assigned(2, "c1", LOG, 2 * SIZE, True), handed(10, 2), handed(11, 3), handed(12, 4)]
    assert rules(*BEFORE, *ahead, LOSS, *AFTER, *far, *END) == []
    near = [Assigned(2, "c1", LOG, 3 * SIZE, True), handed(11, 3), handed(12, 4)]
    assert rules(*BEFORE, *ahead, LOSS, *AFTER, *near, *END) == [Rule.SILENT_FORK]


def test_a_consumer_that_resumes_behind_a_loss_is_told_too() -> None:
    ahead: list[Event] = [
        *(handed(number, number) for number in range(4)),
        PositionStored(1, "c1", LOG, 4 * SIZE),
    ]
    resumed = Resumed(2, "c1", LOG, 4 * SIZE)
    assert rules(*BEFORE, *ahead, LOSS, *AFTER, resumed, handed(12, 4), *END) == [Rule.SILENT_FORK]
    told: list[Event] = [resumed, Assigned(3, "c1", LOG, 2 * SIZE)]
    read = [handed(10, 2), handed(11, 3), handed(12, 4)]
    assert rules(*BEFORE, *ahead, LOSS, *AFTER, *told, *read, *END) == []


def test_lost_records_may_still_be_delivered_when_their_loss_is_reported() -> None:
    # A receipt and a message of the old epoch arrive behind the news.
    late = sent(4, 4, 1)
    read = [handed(number, number) for number in range(4)]
    told = [Assigned(2, "c1", LOG, 2 * SIZE), handed(10, 2), handed(11, 3), handed(12, 4)]
    assert rules(*BEFORE, late[0], *read, LOSS, late[1], *AFTER, *told, *END) == []
    assert rules(*BEFORE, *read[:2], LOSS, *read[2:], *AFTER, *told, *END) == []
    assert rules(*BEFORE, *read[:2], LOSS, *read[2:], *AFTER, handed(12, 4), *END) == [
        Rule.SILENT_FORK
    ]


def test_a_lost_message_may_be_sent_again_and_is_stored_then() -> None:
    again = Acknowledged(0, LOG, value(3), 2 * SIZE, 3 * SIZE, 2)
    final = FinalLog(9, LOG, (stored(0), stored(1), stored(3, 2)))
    read = [handed(0, 0), handed(1, 1), handed(3, 2)]
    assert rules(*BEFORE, LOSS, again, *read, final, Rested(9, "c1", LOG)) == []


def test_a_lost_message_may_be_back_at_another_offset() -> None:
    """An earlier leader had it, too, uncommitted, and the order to accept the loss kept that."""
    ahead = [handed(number, number) for number in range(4)]
    after = [*sent(11, 3, 2), *sent(12, 4, 2)]
    told = [Assigned(2, "c1", LOG, 2 * SIZE, True), handed(3, 2), handed(11, 3), handed(12, 4)]
    final = FinalLog(9, LOG, (stored(0), stored(1), stored(3, 2), stored(11, 3), stored(12, 4)))
    end: list[Event] = [final, Rested(9, "c1", LOG)]
    assert rules(*BEFORE, *ahead, LOSS, *after, *told, *end) == []
    assert rules(*BEFORE, *ahead, LOSS, *after, handed(12, 4), *end) == [Rule.SILENT_FORK]
