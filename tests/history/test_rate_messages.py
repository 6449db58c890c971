"""What a broker's counters become: amounts that add up, of a bounded number of topics."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from octopi.history.rate_messages import Amounts, LogCounters, RateMessages, grown_by_topic
from octopi.limits import HISTORY_BATCH_MAX, HISTORY_SAMPLES_MAX, HISTORY_TOPICS_MAX


def led(topic: str, count: int, *, leads: bool = True) -> LogCounters:
    return LogCounters(topic, leads, count, 10 * count, 5 * count)


def test_partitions_of_a_topic_count_together() -> None:
    before = {("a", 0): led("orders", 1), ("a", 1): led("orders", 2)}
    now = {("a", 0): led("orders", 4), ("a", 1): led("orders", 7)}
    assert grown_by_topic(before, now) == {"orders": Amounts(8, 80, 40)}


def test_what_a_follower_copies_is_not_counted() -> None:
    before = {("a", 0): led("orders", 1, leads=False)}
    now = {("a", 0): LogCounters("orders", False, 9, 90, 5)}
    assert grown_by_topic(before, now) == {}


def test_what_came_around_a_change_of_leader_is_counted_at_no_broker_twice() -> None:
    follower, leader = led("orders", 1, leads=False), led("orders", 9)
    assert grown_by_topic({("a", 0): follower}, {("a", 0): leader}) == {"orders": Amounts(0, 0, 40)}
    assert grown_by_topic({("a", 0): leader}, {("a", 0): follower}).get("orders", Amounts()) == (
        Amounts(0, 0, 5)
    )


def test_a_new_log_counts_from_its_beginning_and_a_deleted_one_no_more() -> None:
    assert grown_by_topic({("a", 0): led("gone", 3)}, {("b", 0): led("new", 2)}) == {
        "new": Amounts(2, 20, 10)
    }


def test_a_counter_that_began_anew_counts_from_zero() -> None:
    assert grown_by_topic({("a", 0): led("orders", 9)}, {("a", 0): led("orders", 2)}) == {
        "orders": Amounts(2, 20, 10)
    }


def test_the_busiest_topics_are_named_and_the_total_has_all() -> None:
    messages = RateMessages()
    messages.note(3, 2, 1_000, 0.0, {})
    assert messages.pending() == []
    logs = {(f"id-{n}", 0): led(f"topic-{n:02}", n) for n in range(1, 31)}
    messages.note(3, 2, 11_000, 10.0, logs)
    [message] = messages.pending()
    content = json.loads(message.value)
    topics = content.pop("topics")
    total = sum(range(1, 31))
    assert content == {
        "format": 1,
        "broker": 3,
        "incarnation": 2,
        "at_ms": 11_000,
        "seconds": 10.0,
        "messages_in": total,
        "bytes_in": 10 * total,
        "bytes_out": 5 * total,
        "topics_count": 30,
    }
    assert [one["topic"] for one in topics] == [f"topic-{n}" for n in range(30, 20, -1)]
    assert len(topics) == HISTORY_TOPICS_MAX
    assert topics[0] == {"topic": "topic-30", "messages_in": 30, "bytes_in": 300, "bytes_out": 150}


def test_notes_that_can_not_be_written_are_dropped_the_oldest_first() -> None:
    messages = RateMessages()
    for second in range(HISTORY_SAMPLES_MAX + 11):
        messages.note(1, 1, 1_000 * second, float(second), {})
    assert messages.dropped_count == 10
    assert messages.pending()[0].at_ms == 11_000
    assert len(messages.pending()) == HISTORY_BATCH_MAX


def test_a_note_that_is_dropped_while_it_is_written_takes_no_other_with_it() -> None:
    messages = RateMessages()
    for second in range(HISTORY_SAMPLES_MAX + 1):
        messages.note(1, 1, 1_000 * second, float(second), {})
    pending = messages.pending()
    messages.note(1, 1, 9_999_000, 9_999.0, {})
    assert messages.dropped_count == 1
    messages.written(2)
    assert messages.pending()[0] is pending[2]


@given(st.lists(st.integers(0, 1_000), min_size=1), st.data())
def test_the_amounts_of_all_notes_add_up_to_the_counter(
    growth: list[int], data: st.DataObject
) -> None:
    messages, count, total = RateMessages(), 0, 0
    messages.note(1, 1, 0, 0.0, {})
    for second, more in enumerate(growth, 1):
        count += more
        messages.note(1, 1, 1_000 * second, float(second), {("a", 0): led("orders", count)})
        pending = messages.pending()
        done = data.draw(st.integers(0, len(pending)))
        messages.written(done)
        total += sum(json.loads(one.value)["messages_in"] for one in pending[:done])
    rest = messages.pending()
    total += sum(json.loads(one.value)["messages_in"] for one in rest)
    assert total == count or len(rest) == HISTORY_BATCH_MAX
