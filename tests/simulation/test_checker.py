"""The checker finds each anomaly, and takes it for no other."""

from collections.abc import Callable
from typing import Final

import pytest

from octopi.simulation.history.checker import Rule
from octopi.simulation.history.events import (
    Acknowledged,
    Assigned,
    Committed,
    Delivered,
    Failed,
    FinalLog,
    Invoked,
    LossTold,
    OutcomeUnknown,
    PositionStored,
    ReachedEnd,
    Rested,
    Resumed,
    StoredMessage,
    TopicCreation,
    TopicRemoval,
)
from tests.simulation.stories import COUNT, LOG, OTHER, SIZE, Story, stored, value

Change = Callable[[Story], None]


def change_final(story: Story, *messages: StoredMessage) -> None:
    story.change(story.find(FinalLog), messages=messages)


# --- lost, aborted, dirty ------------------------------------------------------------------


def an_acknowledged_message_is_not_in_the_log(story: Story) -> None:
    for consumer in ("c1", "c2"):
        story.drop(Delivered, 4, consumer)
        story.change(story.find(PositionStored, consumer=consumer), offset=4 * SIZE)
    story.drop(ReachedEnd)
    change_final(story, *(stored(n) for n in range(4)))


def an_acknowledged_message_is_in_another_log(story: Story) -> None:
    an_acknowledged_message_is_not_in_the_log(story)
    story.finish([stored(4, 0)], OTHER)
    story.drop(Rested)
    story.note(Assigned(0, "c1", OTHER, SIZE))
    story.note(Assigned(0, "c2", OTHER, SIZE))


def consumers_read_past_an_acknowledged_message_that_nobody_gets(story: Story) -> None:
    for consumer in ("c1", "c2"):
        story.drop(Delivered, 2, consumer)
    story.rewind()


def a_later_final_read_has_less(story: Story) -> None:
    story.finish([stored(n) for n in range(4)])


def a_failed_message_is_stored(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.note(Failed(12, value(5), "refused"))
    for consumer in ("c1", "c2"):
        story.deliver(consumer, 5)
    story.finish([stored(n) for n in range(6)])


def a_failed_message_is_delivered_first(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.deliver("c1", 5)
    story.note(Failed(12, value(5), "refused"))


def a_message_is_acknowledged_and_failed(story: Story) -> None:
    story.insert_before(story.find(Delivered), lambda: story.note(Failed(12, value(4), "too late")))


def a_delivered_message_vanishes(story: Story) -> None:
    index = story.find(FinalLog)
    story.insert_before(index, lambda: story.invoke(5))
    story.insert_before(index + 1, lambda: story.note(OutcomeUnknown(12, value(5), "time-out")))
    story.insert_before(index + 2, lambda: story.deliver("c1", 5))


def a_message_is_delivered_before_it_is_committed(story: Story) -> None:
    index = story.find(Delivered, 4)
    story.insert_before(index, lambda: story.note(Committed(19, LOG, 4 * SIZE)))
    story.insert_before(index + 2, lambda: story.note(Committed(19, LOG, 5 * SIZE)))


# --- phantom, corrupt, wrong log -----------------------------------------------------------


def a_message_comes_from_nowhere(story: Story) -> None:
    nowhere = StoredMessage(500, 500 + 58, b"?")
    change_final(story, *(stored(n) for n in range(5)), nowhere)
    del story.events[-2:]


def a_consumer_gets_what_nobody_sent(story: Story) -> None:
    story.rewind()
    story.note(Delivered(50, "c1", LOG, 500, 558, b"?"))


def one_byte_is_changed(story: Story) -> None:
    index = story.find(Delivered, 3, "c2")
    story.change(index, value=value(3)[:-1] + b"!")


def a_changed_message_is_at_no_known_place(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.note(Delivered(50, "c1", LOG, 500, 600, value(5)[:-1] + b"!"))


def the_name_of_a_message_is_changed(story: Story) -> None:
    story.change(story.find(Delivered, 3, "c2"), value=b"x" * 43)


def a_stored_message_is_cut(story: Story) -> None:
    messages = [stored(n) for n in range(COUNT)]
    messages[4] = messages[4]._replace(value=value(4)[:-9])
    change_final(story, *messages)


def a_message_gets_a_key(story: Story) -> None:
    story.change(story.find(Delivered, 3, "c2"), key=b"k")


def a_message_loses_a_header(story: Story) -> None:
    story.change(story.find(Invoked, 3), headers={"trace": b"1"})
    for consumer in ("c1", "c2"):
        story.change(story.find(Delivered, 3, consumer), headers={"trace": b"1"})
    # The last reader doesn't see it.


def a_message_is_in_a_log_that_it_was_not_sent_to(story: Story) -> None:
    story.change(story.find(Invoked, 3), partition=1)


# --- offsets -------------------------------------------------------------------------------


def a_message_is_not_where_its_receipt_says(story: Story) -> None:
    story.change(story.find(Acknowledged, 3), offset=350, next_offset=450)


def a_receipt_has_another_end(story: Story) -> None:
    story.change(story.find(Acknowledged, 4), next_offset=501)


def two_receipts_have_one_offset(story: Story) -> None:
    story.change(story.find(Acknowledged, 3), offset=200, next_offset=300)


def two_consumers_get_different_messages_at_one_offset(story: Story) -> None:
    story.rewind()
    story.invoke(9)
    story.deliver("c1", 9, 5)
    story.invoke(8)
    story.deliver("c2", 8, 5)


def two_consumers_get_one_message_at_two_offsets(story: Story) -> None:
    story.rewind()
    story.invoke(9)
    story.deliver("c1", 9, 5)
    story.note(Assigned(50, "c2", LOG, 600))
    story.deliver("c2", 9, 6)


def a_delivery_is_shorter_than_others(story: Story) -> None:
    story.change(story.find(Delivered, 4, "c2"), next_offset=499)
    story.change(story.find(PositionStored, consumer="c2"), offset=499)
    story.rewind()


def a_message_is_stored_twice(story: Story) -> None:
    change_final(story, *(stored(n) for n in range(5)), stored(2, 5))
    for consumer in ("c1", "c2"):
        story.insert_before(
            story.find(PositionStored, consumer=consumer),
            lambda consumer=consumer: story.deliver(consumer, 2, 5),  # type: ignore[misc]
        )


def a_consumer_gets_a_message_at_two_places(story: Story) -> None:
    story.rewind()
    story.deliver("c1", 2, 5)


def the_last_record_lies_behind_a_hole(story: Story) -> None:
    story.rewind()
    story.invoke(6)
    messages = [*(stored(n) for n in range(5)), StoredMessage(550, 650, value(6))]
    story.note(FinalLog(50, LOG, tuple(messages)))


def the_log_does_not_begin_at_its_start(story: Story) -> None:
    """Nobody knows of what is missing."""
    story.events = [FinalLog(1, OTHER, (StoredMessage(100, 200, value(0)),))]
    story.insert_before(0, lambda: story.invoke(0, log=OTHER))


def two_records_overlap(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.note(Acknowledged(50, LOG, value(5), 450, 550, 1))


def a_record_is_larger_than_its_message(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.note(Delivered(50, "c1", LOG, 500, 601, value(5)))


# --- order ---------------------------------------------------------------------------------


def two_messages_of_a_producer_are_swapped(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.invoke(6)
    for consumer in ("c1", "c2"):
        story.deliver(consumer, 6, 5)
        story.deliver(consumer, 5, 6)


def another_producers_later_message_lies_before(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.acknowledge(5, 6)
    story.invoke(6, "p2")
    story.acknowledge(6, 5)


def an_older_epoch_acknowledges_behind_a_newer(story: Story) -> None:
    story.change(story.find(Acknowledged, 2), epoch=2)


# --- consumers -----------------------------------------------------------------------------


def a_consumer_misses_a_message(story: Story) -> None:
    story.drop(Delivered, 2, "c2")


def a_consumer_starts_late(story: Story) -> None:
    story.drop(Delivered, 0, "c1")


def a_consumer_resumes_behind_its_position(story: Story) -> None:
    index = story.find(Delivered, 3, "c1")
    story.drop(Delivered, 3, "c1")
    story.insert_before(index, lambda: story.note(PositionStored(21, "c1", LOG, 300)))
    story.insert_before(index + 1, lambda: story.note(Resumed(22, "c1", LOG, 400)))


def a_consumer_gets_a_message_again(story: Story) -> None:
    story.insert_before(story.find(PositionStored), lambda: story.deliver("c1", 4))


def a_consumer_jumps_back(story: Story) -> None:
    index = story.find(PositionStored, consumer="c2")
    for number in range(1, COUNT):
        story.insert_before(index, lambda number=number: story.deliver("c2", number))  # type: ignore[misc]
        index += 1


def a_stored_position_goes_back(story: Story) -> None:
    story.note(PositionStored(50, "c1", LOG, 3 * SIZE))


def a_consumer_resumes_before_its_position(story: Story) -> None:
    story.rewind()
    story.note(Resumed(50, "c1", LOG, 4 * SIZE))


def a_position_is_stored_before_its_messages_are_handed_out(story: Story) -> None:
    story.insert_before(
        story.find(Delivered, 3), lambda: story.note(PositionStored(20, "c1", LOG, 400))
    )


def a_consumer_never_gets_to_the_end(story: Story) -> None:
    story.drop(Delivered, 4, "c1")
    story.change(story.find(PositionStored), offset=4 * SIZE)


def a_consumer_gets_nothing(story: Story) -> None:
    story.note(Rested(50, "c3", LOG))


def a_consumer_never_gets_what_was_acknowledged(story: Story) -> None:
    a_consumer_never_gets_to_the_end(story)
    story.drop(FinalLog)


def a_consumer_takes_an_older_end_for_the_end(story: Story) -> None:
    story.change(story.find(ReachedEnd), offset=4 * SIZE)


# --- topics --------------------------------------------------------------------------------


def a_topic_loses_a_message_after_it_was_made_anew(story: Story) -> None:
    story.events = [TopicRemoval(1, "orders"), TopicCreation(2, "orders")]
    story.invoke(0)
    story.acknowledge(0)
    story.note(FinalLog(40, LOG, ()))


def a_consumer_reads_on_where_what_it_read_is_lost(story: Story) -> None:
    story.drop(FinalLog)
    story.drop(Rested)
    story.drop(Rested)
    story.note(LossTold(50, LOG, 3 * SIZE, 2))
    for number, place in ((10, 3), (11, 4), (12, 5)):
        story.invoke(number, "p2")
        story.acknowledge(number, place, epoch=2)
    story.deliver("c1", 12, 5)


GUILTY: Final[list[tuple[Change, set[Rule]]]] = [
    (an_acknowledged_message_is_not_in_the_log, {Rule.LOST_WRITE}),
    (a_consumer_reads_on_where_what_it_read_is_lost, {Rule.SILENT_FORK, Rule.LOST_WRITE}),
    (
        an_acknowledged_message_is_in_another_log,
        {Rule.LOST_WRITE, Rule.INCONSISTENT_OFFSET},
    ),
    (
        consumers_read_past_an_acknowledged_message_that_nobody_gets,
        {Rule.LOST_WRITE, Rule.POLL_SKIP},
    ),
    (a_later_final_read_has_less, {Rule.LOST_WRITE, Rule.DIRTY_READ}),
    (a_failed_message_is_stored, {Rule.ABORTED_READ}),
    (a_failed_message_is_delivered_first, {Rule.ABORTED_READ}),
    (a_message_is_acknowledged_and_failed, {Rule.ABORTED_READ}),
    (a_delivered_message_vanishes, {Rule.DIRTY_READ}),
    (a_message_is_delivered_before_it_is_committed, {Rule.DIRTY_READ}),
    (a_message_comes_from_nowhere, {Rule.PHANTOM}),
    (a_consumer_gets_what_nobody_sent, {Rule.PHANTOM}),
    (one_byte_is_changed, {Rule.CORRUPT}),
    (a_changed_message_is_at_no_known_place, {Rule.CORRUPT}),
    (the_name_of_a_message_is_changed, {Rule.CORRUPT}),
    (a_stored_message_is_cut, {Rule.CORRUPT}),
    (a_message_gets_a_key, {Rule.CORRUPT}),
    (a_message_loses_a_header, {Rule.CORRUPT, Rule.NOT_DENSE}),
    (a_message_is_in_a_log_that_it_was_not_sent_to, {Rule.WRONG_LOG}),
    (a_message_is_not_where_its_receipt_says, {Rule.INCONSISTENT_OFFSET}),
    (a_receipt_has_another_end, {Rule.INCONSISTENT_OFFSET, Rule.NOT_DENSE, Rule.STALE_TAIL}),
    (two_receipts_have_one_offset, {Rule.INCONSISTENT_OFFSET}),
    (two_consumers_get_different_messages_at_one_offset, {Rule.INCONSISTENT_OFFSET}),
    (two_consumers_get_one_message_at_two_offsets, {Rule.INCONSISTENT_OFFSET}),
    (a_delivery_is_shorter_than_others, {Rule.INCONSISTENT_OFFSET}),
    (a_message_is_stored_twice, {Rule.DUPLICATE}),
    (a_consumer_gets_a_message_at_two_places, {Rule.DUPLICATE}),
    (the_last_record_lies_behind_a_hole, {Rule.NOT_DENSE}),
    (the_log_does_not_begin_at_its_start, {Rule.NOT_DENSE}),
    (two_records_overlap, {Rule.NOT_DENSE, Rule.LOST_WRITE}),
    (a_record_is_larger_than_its_message, {Rule.NOT_DENSE}),
    (two_messages_of_a_producer_are_swapped, {Rule.NONMONOTONIC_SEND}),
    (another_producers_later_message_lies_before, {Rule.REAL_TIME_ORDER}),
    (an_older_epoch_acknowledges_behind_a_newer, {Rule.EPOCH_WENT_BACK}),
    (a_consumer_misses_a_message, {Rule.POLL_SKIP}),
    (a_consumer_starts_late, {Rule.POLL_SKIP}),
    (a_consumer_resumes_behind_its_position, {Rule.POLL_SKIP}),
    (a_consumer_gets_a_message_again, {Rule.NONMONOTONIC_POLL}),
    (a_consumer_jumps_back, {Rule.NONMONOTONIC_POLL}),
    (a_stored_position_goes_back, {Rule.POSITION_WENT_BACK}),
    (a_consumer_resumes_before_its_position, {Rule.POSITION_WENT_BACK}),
    (a_position_is_stored_before_its_messages_are_handed_out, {Rule.POSITION_AHEAD}),
    (a_consumer_never_gets_to_the_end, {Rule.UNSEEN}),
    (a_consumer_gets_nothing, {Rule.UNSEEN}),
    (a_consumer_never_gets_what_was_acknowledged, {Rule.UNSEEN}),
    (a_consumer_takes_an_older_end_for_the_end, {Rule.STALE_TAIL}),
    (a_topic_loses_a_message_after_it_was_made_anew, {Rule.LOST_WRITE}),
]


@pytest.mark.parametrize(("plant", "rules"), GUILTY)
def test_a_planted_anomaly_is_found_and_no_other(plant: Change, rules: set[Rule]) -> None:
    story = Story()
    plant(story)
    assert story.rules() == rules


def test_every_rule_can_be_broken() -> None:
    assert {rule for _, rules in GUILTY for rule in rules} == set(Rule)
