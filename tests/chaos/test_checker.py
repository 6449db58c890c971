"""The checker finds each fault that it is there for, and none in a clean history."""

from collections.abc import Callable

import pytest

from tests.chaos.checker import Rule, check
from tests.chaos.history import (
    Acknowledged,
    Delivered,
    Event,
    Failed,
    FinalLogs,
    History,
    Invoked,
    LogName,
    OutcomeUnknown,
    StoredMessage,
)

LOG = LogName("orders", 0)
OTHER = LogName("orders", 1)
SIZE = 10


def value(number: int) -> bytes:
    return b"p1-%d" % number


class Story:
    """One producer, two consumers, five messages: all clean until somebody changes it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.final: FinalLogs = {
            LOG: [StoredMessage(n * SIZE, (n + 1) * SIZE, value(n)) for n in range(5)],
            OTHER: [],
        }
        self.finished = {"c1": {LOG, OTHER}, "c2": {LOG}}
        for n in range(5):
            self.invoke(2.0 * n, n)
            self.events.append(Acknowledged(2.0 * n + 1, LOG, value(n), n * SIZE, 1, False))
        for consumer in ("c1", "c2"):
            for n in range(5):
                self.deliver(consumer, n)

    def invoke(self, at: float, number: int, log: LogName = LOG) -> None:
        self.events.append(Invoked(at, "p1", log, value(number)))

    def deliver(self, consumer: str, number: int, log: LogName = LOG) -> None:
        offset = number * SIZE
        self.events.append(Delivered(20.0, consumer, log, offset, offset + SIZE, value(number)))

    def drop(self, kind: type, number: int, consumer: str = "") -> None:
        self.events = [
            event
            for event in self.events
            if not (
                isinstance(event, kind)
                and event.value == value(number)
                and getattr(event, "consumer", consumer) == consumer
            )
        ]

    def rules(self) -> set[Rule]:
        return {fault.rule for fault in check(History(self.events), self.final, self.finished)}


def an_acknowledged_message_is_not_in_the_log(story: Story) -> None:
    story.final[LOG].pop()
    story.drop(Delivered, 4, "c1")
    story.drop(Delivered, 4, "c2")


def an_acknowledged_message_is_in_another_log(story: Story) -> None:
    story.final[OTHER].append(StoredMessage(0, SIZE, story.final[LOG].pop().value))


def a_message_is_stored_twice(story: Story) -> None:
    story.final[LOG].append(StoredMessage(5 * SIZE, 6 * SIZE, value(2)))


def a_message_is_not_where_its_receipt_says(story: Story) -> None:
    story.drop(Acknowledged, 3)
    story.events.append(Acknowledged(7, LOG, value(3), 35, 1, False))


def two_messages_have_one_offset_by_their_receipts(story: Story) -> None:
    story.drop(Acknowledged, 3)
    story.events.append(Acknowledged(7, LOG, value(3), 20, 1, False))


def two_consumers_get_different_messages_at_one_offset(story: Story) -> None:
    story.drop(Delivered, 4, "c2")
    story.events.append(Delivered(20, "c2", LOG, 40, 50, value(9)))


def a_consumer_gets_a_message_where_another_did_not(story: Story) -> None:
    story.events.append(Delivered(21, "c2", LOG, 50, 60, value(4)))


def two_messages_of_a_producer_are_swapped(story: Story) -> None:
    log = story.final[LOG]
    log[2], log[3] = (
        StoredMessage(20, 30, value(3)),
        StoredMessage(30, 40, value(2)),
    )


def another_producers_later_message_lies_before(story: Story) -> None:
    late = b"p2-0"
    story.events.append(Invoked(30, "p2", LOG, late))
    story.final[LOG] = [
        StoredMessage(0, SIZE, late),
        *(StoredMessage(s.offset + SIZE, s.next_offset + SIZE, s.value) for s in story.final[LOG]),
    ]


def an_older_epoch_acknowledges_behind_a_newer(story: Story) -> None:
    story.drop(Acknowledged, 2)
    story.events.append(Acknowledged(5, LOG, value(2), 20, 2, False))


def a_delivered_message_vanishes(story: Story) -> None:
    story.invoke(11, 5)
    story.events.append(OutcomeUnknown(12, value(5), "time-out"))
    story.deliver("c1", 5)


def a_failed_message_is_stored(story: Story) -> None:
    story.invoke(11, 5)
    story.events.append(Failed(12, value(5), "refused"))
    story.final[LOG].append(StoredMessage(50, 60, value(5)))


def a_failed_message_is_delivered(story: Story) -> None:
    story.invoke(11, 5)
    story.events.append(Failed(12, value(5), "refused"))
    story.deliver("c1", 5)


def a_message_comes_from_nowhere(story: Story) -> None:
    story.final[LOG].append(StoredMessage(50, 60, b"?"))


def a_delivery_is_shorter_than_the_log_has_it(story: Story) -> None:
    story.drop(Delivered, 4, "c2")
    story.events.append(Delivered(20, "c2", LOG, 40, 49, value(4)))


def a_consumer_misses_a_message(story: Story) -> None:
    story.drop(Delivered, 2, "c2")


def a_consumer_starts_late(story: Story) -> None:
    story.drop(Delivered, 0, "c1")


def a_consumer_gets_a_message_again(story: Story) -> None:
    story.deliver("c1", 4)


def a_consumer_jumps_back(story: Story) -> None:
    story.deliver("c2", 1)


def a_consumer_never_gets_to_the_end(story: Story) -> None:
    story.drop(Delivered, 4, "c1")


def a_log_has_a_hole(story: Story) -> None:
    story.final[LOG][4] = StoredMessage(45, 55, value(4))


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (an_acknowledged_message_is_not_in_the_log, Rule.LOST),
        (an_acknowledged_message_is_in_another_log, Rule.LOST),
        (a_message_is_stored_twice, Rule.DOUBLED),
        (a_message_is_not_where_its_receipt_says, Rule.TWO_OFFSETS),
        (two_messages_have_one_offset_by_their_receipts, Rule.TWO_VALUES),
        (two_consumers_get_different_messages_at_one_offset, Rule.TWO_VALUES),
        (a_consumer_gets_a_message_where_another_did_not, Rule.TWO_OFFSETS),
        (two_messages_of_a_producer_are_swapped, Rule.REORDERED),
        (another_producers_later_message_lies_before, Rule.OVERTAKEN),
        (an_older_epoch_acknowledges_behind_a_newer, Rule.EPOCH_WENT_BACK),
        (a_delivered_message_vanishes, Rule.VANISHED),
        (a_failed_message_is_stored, Rule.ABORTED),
        (a_failed_message_is_delivered, Rule.ABORTED),
        (a_message_comes_from_nowhere, Rule.INVENTED),
        (a_delivery_is_shorter_than_the_log_has_it, Rule.CONTRADICTED),
        (a_consumer_misses_a_message, Rule.SKIPPED),
        (a_consumer_starts_late, Rule.SKIPPED),
        (a_consumer_gets_a_message_again, Rule.REPEATED),
        (a_consumer_jumps_back, Rule.REPEATED),
        (a_consumer_never_gets_to_the_end, Rule.UNSEEN),
        (a_log_has_a_hole, Rule.NOT_DENSE),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[Story], None], rule: Rule) -> None:
    story = Story()
    plant(story)
    assert rule in story.rules()


def test_a_clean_history_is_accepted() -> None:
    assert Story().rules() == set()


def test_an_unknown_outcome_may_be_stored_or_not() -> None:
    story = Story()
    for number in (5, 6):
        story.invoke(11, number)
        story.events.append(OutcomeUnknown(12, value(number), "time-out"))
    story.final[LOG].append(StoredMessage(50, 60, value(5)))
    for consumer in ("c1", "c2"):
        story.deliver(consumer, 5)
    assert story.rules() == set()


def test_messages_that_were_on_their_way_together_may_lie_in_any_order() -> None:
    story = Story()
    story.events += [
        Invoked(11, "p2", LOG, b"p2-0"),
        Invoked(12, "p3", LOG, b"p3-0"),
        Acknowledged(13, LOG, b"p3-0", 50, 1, False),
        Acknowledged(14, LOG, b"p2-0", 60, 1, True),
    ]
    story.final[LOG] += [StoredMessage(50, 60, b"p3-0"), StoredMessage(60, 70, b"p2-0")]
    story.finished = {}
    assert story.rules() == set()


def test_the_history_tells_what_concerns_a_fault() -> None:
    story = Story()
    a_delivered_message_vanishes(story)
    history = History(story.events)
    [fault] = [one for one in check(history, story.final) if one.rule is Rule.VANISHED]
    kinds = [type(event) for event in history.about(fault.log, fault.values)]
    assert kinds == [Invoked, OutcomeUnknown, Delivered]
