"""The checker accepts histories that only look like anomalies."""

from collections.abc import Callable

import pytest

from octopi.record import HEADER_BYTES
from octopi.simulation.history.events import (
    Acknowledged,
    Assigned,
    Committed,
    Delivered,
    Failed,
    FinalLog,
    Invoked,
    OutcomeUnknown,
    PositionStored,
    ReachedEnd,
    Resumed,
    StartMoved,
    TopicCreation,
    TopicRemoval,
)
from tests.simulation.stories import COUNT, LOG, OTHER, SIZE, Story, stored, value

Change = Callable[[Story], None]


def nothing_is_wrong(story: Story) -> None:
    pass


def nothing_was_noted(story: Story) -> None:
    story.events = []


def an_unknown_outcome_is_stored_and_another_is_not(story: Story) -> None:
    story.rewind()
    for number in (5, 6):
        story.invoke(number)
        story.note(OutcomeUnknown(12, value(number), "time-out"))
    for consumer in ("c1", "c2"):
        story.deliver(consumer, 5)
    story.finish([stored(n) for n in range(6)])


def a_send_without_any_outcome_is_stored(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.finish([stored(n) for n in range(6)])
    for consumer in ("c1", "c2"):
        story.insert_before(story.find(FinalLog), lambda name=consumer: story.deliver(name, 5))  # type: ignore[misc]


def a_failed_message_is_nowhere(story: Story) -> None:
    story.insert_before(0, lambda: story.invoke(7))
    story.insert_before(1, lambda: story.note(Failed(1, value(7), "refused")))


def messages_that_were_on_their_way_together_lie_in_any_order(story: Story) -> None:
    story.rewind()
    story.invoke(5, "p2")
    story.invoke(6, "p3")
    story.acknowledge(6, 5)
    story.acknowledge(5, 6)


def one_producers_messages_in_two_logs_have_no_order(story: Story) -> None:
    story.invoke(5, log=OTHER)
    story.note(Acknowledged(50, OTHER, value(5), 0, SIZE, 1))


def a_later_message_has_a_newer_epoch(story: Story) -> None:
    story.change(story.find(Acknowledged, 4), epoch=2)


def a_receipt_of_a_later_epoch_comes_before_one_of_an_earlier(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.invoke(6)
    story.acknowledge(6, epoch=3)
    story.acknowledge(5, epoch=2)


def a_message_is_seen_before_it_is_acknowledged(story: Story) -> None:
    index = story.find(Acknowledged, 4)
    receipt = story.events.pop(index)
    story.insert_before(story.find(PositionStored), lambda: story.note(receipt))


def a_message_is_delivered_up_to_the_highwater_mark(story: Story) -> None:
    story.insert_before(story.find(Delivered), lambda: story.note(Committed(19, LOG, COUNT * SIZE)))
    # An older leader's mark says nothing about what is committed.
    story.insert_before(story.find(Delivered), lambda: story.note(Committed(19, LOG, SIZE)))


def the_producer_chooses_the_partition(story: Story) -> None:
    for number in range(COUNT):
        story.change(story.find(Invoked, number), partition=None)


def a_message_has_a_key_and_headers(story: Story) -> None:
    story.events = []
    about = {"key": b"k" * 7, "headers": {"n": b"2" * 9}}
    end = SIZE + 7 + 2 + 1 + 4 + 9
    story.invoke(0)
    story.change(0, **about)
    story.note(Delivered(1, "c1", LOG, 0, end, value(0)))
    story.change(1, **about)


def an_opaque_record_has_another_size(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    end = 500 + HEADER_BYTES + len(value(5))
    story.note(Delivered(50, "c1", LOG, 500, end, value(5)))


def a_consumer_begins_anywhere(story: Story) -> None:
    story.deliver("c3", 3)
    story.deliver("c3", 4)


def a_consumer_seeks(story: Story) -> None:
    story.note(Assigned(50, "c1", LOG, 1 * SIZE))
    story.deliver("c1", 1)
    story.note(PositionStored(50, "c1", LOG, 2 * SIZE))
    story.note(Assigned(50, "c1", LOG, 4 * SIZE))
    story.deliver("c1", 4)


def a_seek_jumps_over_an_acknowledged_message(story: Story) -> None:
    index = story.find(Delivered, 2, "c1")
    for consumer in ("c1", "c2"):
        story.drop(Delivered, 2, consumer)
    story.insert_before(index, lambda: story.note(Assigned(20, "c1", LOG, 3 * SIZE)))
    index = story.find(Delivered, 3, "c2")
    story.insert_before(index, lambda: story.note(Assigned(20, "c2", LOG, 3 * SIZE)))
    story.rewind()


def a_consumer_resumes_at_its_stored_position(story: Story) -> None:
    story.insert_before(
        story.find(Delivered, 3), lambda: story.note(PositionStored(20, "c1", LOG, 2 * SIZE))
    )
    index = story.find(PositionStored, consumer="c1") + 2
    story.insert_before(index, lambda: story.note(Resumed(20, "c1", LOG, 2 * SIZE)))
    story.insert_before(index + 1, lambda: story.deliver("c1", 2))
    story.insert_before(index + 2, lambda: story.deliver("c1", 3))


def a_consumer_resumes_where_it_was(story: Story) -> None:
    index = story.find(Delivered, 3)
    story.insert_before(index, lambda: story.note(Resumed(20, "c1", LOG, 3 * SIZE)))


def an_end_was_asked_for_before_the_last_receipt(story: Story) -> None:
    index = story.find(ReachedEnd)
    story.change(index, offset=4 * SIZE, since=9.0)


def retention_removed_the_first_messages(story: Story) -> None:
    story.rewind()
    story.note(StartMoved(35, LOG, 2 * SIZE))
    story.finish([stored(n) for n in range(2, COUNT)])


def retention_removed_all(story: Story) -> None:
    story.rewind()
    story.note(StartMoved(35, LOG, COUNT * SIZE))
    story.finish([])


def a_topic_is_removed_with_its_messages(story: Story) -> None:
    story.rewind()
    story.note(TopicRemoval(50, "orders"))
    story.finish([])


def what_is_said_of_a_topic_while_it_is_removed_does_not_count(story: Story) -> None:
    story.rewind()
    story.note(TopicRemoval(50, "orders"))
    story.invoke(5)
    story.acknowledge(5, 0)
    story.deliver("c1", 1)
    story.note(Delivered(50, "c1", LOG, 7, 8, b"?"))


def a_topic_is_made_anew_and_begins_at_zero(story: Story) -> None:
    story.rewind()
    story.invoke(5)
    story.note(TopicRemoval(50, "orders"))
    story.note(TopicCreation(51, "orders"))
    story.invoke(6)
    # It was sent to the old topic, and its producer tried again.
    story.acknowledge(5, 0)
    story.acknowledge(6, 1)
    # It is the old one's, and was on its way.
    story.deliver("c1", 3)
    for consumer in ("c1", "c2"):
        story.note(Assigned(52, consumer, LOG, 0))
        story.deliver(consumer, 5, 0)
        story.deliver(consumer, 6, 1)
    story.finish([stored(5, 0), stored(6, 1)])


def another_topic_is_removed(story: Story) -> None:
    story.note(TopicRemoval(50, "other"))
    story.note(TopicCreation(50, "orders"))


@pytest.mark.parametrize(
    "tell",
    [
        nothing_is_wrong,
        nothing_was_noted,
        an_unknown_outcome_is_stored_and_another_is_not,
        a_send_without_any_outcome_is_stored,
        a_failed_message_is_nowhere,
        messages_that_were_on_their_way_together_lie_in_any_order,
        one_producers_messages_in_two_logs_have_no_order,
        a_later_message_has_a_newer_epoch,
        a_receipt_of_a_later_epoch_comes_before_one_of_an_earlier,
        a_message_is_seen_before_it_is_acknowledged,
        a_message_is_delivered_up_to_the_highwater_mark,
        the_producer_chooses_the_partition,
        a_message_has_a_key_and_headers,
        an_opaque_record_has_another_size,
        a_consumer_begins_anywhere,
        a_consumer_seeks,
        a_seek_jumps_over_an_acknowledged_message,
        a_consumer_resumes_at_its_stored_position,
        a_consumer_resumes_where_it_was,
        an_end_was_asked_for_before_the_last_receipt,
        retention_removed_the_first_messages,
        retention_removed_all,
        a_topic_is_removed_with_its_messages,
        what_is_said_of_a_topic_while_it_is_removed_does_not_count,
        a_topic_is_made_anew_and_begins_at_zero,
        another_topic_is_removed,
    ],
)
def test_a_history_that_only_looks_wrong_is_accepted(tell: Change) -> None:
    story = Story()
    tell(story)
    assert story.faults() == []
