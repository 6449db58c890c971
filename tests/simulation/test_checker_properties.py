"""The checker accepts every valid history, and finds a single change in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from octopi.simulation.history import json_lines
from octopi.simulation.history.checker import Rule, check
from octopi.simulation.history.events import (
    Acknowledged,
    Assigned,
    Committed,
    Delivered,
    Event,
    Failed,
    FinalLog,
    History,
    Invoked,
    LogName,
    PositionStored,
    ReachedEnd,
    Resumed,
    StoredMessage,
)
from tests.simulation.reference_log import true_histories

Events: TypeAlias = list[Event]
Mutation: TypeAlias = Callable[[Events], Iterator[Events]]
"""Changes one thing, in each place where that can be done."""
E = TypeVar("E", bound=Event)


@given(true_histories())
def test_a_valid_history_is_always_accepted(history: History) -> None:
    assert check(history) == []


@given(true_histories(is_long=True))
def test_a_valid_long_history_is_always_accepted(history: History) -> None:
    assert check(history) == []


# --- what can be changed -------------------------------------------------------------------


def each(events: Events, kind: type[E]) -> list[tuple[int, E]]:
    return [(index, event) for index, event in enumerate(events) if isinstance(event, kind)]


def replaced(events: Events, index: int, *others: Event) -> Events:
    return [*events[:index], *others, *events[index + 1 :]]


def with_messages(events: Events, index: int, messages: Sequence[StoredMessage]) -> Events:
    final = events[index]
    assert isinstance(final, FinalLog)
    return replaced(events, index, final._replace(messages=tuple(messages)))


def values(events: Events, kind: type[E]) -> set[bytes]:
    return {getattr(event, "value", b"") for _, event in each(events, kind)}


def in_the_end(events: Events) -> set[bytes]:
    return {one.value for _, final in each(events, FinalLog) for one in final.messages}


def reading(event: Event) -> tuple[str, LogName] | None:
    """Which way of a consumer an event belongs to."""
    if isinstance(event, Assigned | Delivered | PositionStored | Resumed):
        return event.consumer, event.log
    return None


def loses_what_is_acknowledged(events: Events) -> Iterator[Events]:
    acknowledged = values(events, Acknowledged)
    for index, final in each(events, FinalLog):
        for one in final.messages:
            if one.value in acknowledged:
                yield with_messages(events, index, [m for m in final.messages if m != one])


def loses_what_was_handed_out(events: Events) -> Iterator[Events]:
    delivered = values(events, Delivered)
    for index, final in each(events, FinalLog):
        if final.messages and final.messages[-1].value in delivered:
            yield with_messages(events, index, final.messages[:-1])


def swaps_two_messages(events: Events) -> Iterator[Events]:
    seen = values(events, Acknowledged) | values(events, Delivered)
    for index, final in each(events, FinalLog):
        for place, (one, two) in enumerate(pairwise(final.messages)):
            if one.value in seen:
                swapped = [one._replace(value=two.value), two._replace(value=one.value)]
                messages = [*final.messages[:place], *swapped, *final.messages[place + 2 :]]
                yield with_messages(events, index, messages)


def stores_a_message_twice(events: Events) -> Iterator[Events]:
    for index, final in each(events, FinalLog):
        for one in final.messages:
            end = final.messages[-1].next_offset
            again = one._replace(offset=end, next_offset=end + one.next_offset - one.offset)
            yield with_messages(events, index, [*final.messages, again])


def makes_a_hole(events: Events) -> Iterator[Events]:
    for index, final in each(events, FinalLog):
        for place, one in enumerate(final.messages):
            moved = one._replace(offset=one.offset + 1, next_offset=one.next_offset + 1)
            messages = [*final.messages[:place], moved, *final.messages[place + 1 :]]
            yield with_messages(events, index, messages)


def skips_a_delivery(events: Events) -> Iterator[Events]:
    for index, one in each(events, Delivered):
        way = reading(one)
        before = [event for event in events[:index] if reading(event) == way]
        after = [event for event in events[index + 1 :] if reading(event) == way]
        has_begun = any(not isinstance(event, PositionStored) for event in before)
        if has_begun and after and isinstance(after[0], Delivered):
            yield replaced(events, index)


def delivers_again(events: Events) -> Iterator[Events]:
    for index, one in each(events, Delivered):
        yield replaced(events, index, one, one)


def changes_a_value(events: Events) -> Iterator[Events]:
    for index, one in each(events, Delivered):
        yield replaced(events, index, one._replace(value=one.value + b"!"))


def changes_a_key(events: Events) -> Iterator[Events]:
    for index, one in each(events, Delivered):
        yield replaced(events, index, one._replace(key=b"other"))


def changes_headers(events: Events) -> Iterator[Events]:
    for index, final in each(events, FinalLog):
        for place, one in enumerate(final.messages):
            changed = one._replace(headers={"other": b""})
            messages = [*final.messages[:place], changed, *final.messages[place + 1 :]]
            yield with_messages(events, index, messages)


def fails_what_is_stored(events: Events) -> Iterator[Events]:
    stored = in_the_end(events)
    for index, one in each(events, Acknowledged):
        if one.value in stored:
            yield replaced(events, index, Failed(one.at, one.value, "refused"))


def stores_what_nobody_sent(events: Events) -> Iterator[Events]:
    stored = in_the_end(events)
    for _, sent in each(events, Invoked):
        if sent.value in stored:
            yield [
                event
                for event in events
                if isinstance(event, Delivered) or getattr(event, "value", b"") != sent.value
            ]


def sends_to_another_log(events: Events) -> Iterator[Events]:
    stored = in_the_end(events)
    for index, sent in each(events, Invoked):
        if sent.value in stored and sent.partition is not None:
            yield replaced(events, index, sent._replace(partition=sent.partition + 1))


def sends_in_another_order(events: Events) -> Iterator[Events]:
    for _, final in each(events, FinalLog):
        stored = {one.value for one in final.messages}
        sends = [(index, one) for index, one in each(events, Invoked) if one.value in stored]
        for (first, one), (second, two) in pairwise(sends):
            between = {getattr(event, "value", b"") for event in events[first + 1 : second]}
            if one.producer == two.producer and one.value not in between:
                yield replaced(replaced(events, first, two), second, one)


def sends_after_what_lies_behind_was_acknowledged(events: Events) -> Iterator[Events]:
    for _, final in each(events, FinalLog):
        offsets = {one.value: one.offset for one in final.messages}
        for index, sent in each(events, Invoked):
            heard_of = False
            for after, event in enumerate(events[index + 1 :], index + 1):
                heard_of |= getattr(event, "value", b"") == sent.value
                if heard_of or sent.value not in offsets:
                    break
                if (
                    isinstance(event, Acknowledged)
                    and offsets.get(event.value, -1) > offsets[sent.value]
                ):
                    yield replaced(replaced(events, after, event, sent), index)


def goes_back_in_epochs(events: Events) -> Iterator[Events]:
    for _, final in each(events, FinalLog):
        receipts = [(one.offset, index) for index, one in each(events, Acknowledged)]
        receipts = [(o, i) for o, i in receipts if getattr(events[i], "log", None) == final.log]
        for _, index in sorted(receipts)[1:]:
            one = events[index]
            assert isinstance(one, Acknowledged)
            yield replaced(events, index, one._replace(epoch=-1))


def stores_a_position_ahead(events: Events) -> Iterator[Events]:
    for index, one in each(events, PositionStored):
        before = [event for event in events[:index] if reading(event) == reading(one)]
        if any(not isinstance(event, PositionStored) for event in before):
            yield replaced(events, index, one._replace(offset=one.offset + 10_000))


def stores_an_older_position(events: Events) -> Iterator[Events]:
    for index, one in each(events, PositionStored):
        if one.offset > 0:
            yield replaced(events, index, one, one._replace(offset=0))


def resumes_behind_its_position(events: Events) -> Iterator[Events]:
    for index, one in each(events, Resumed):
        if any(reading(event) == reading(one) for event in events[:index]):
            yield replaced(events, index, one._replace(offset=one.offset + 1))


def stops_before_the_end(events: Events) -> Iterator[Events]:
    for index, one in each(events, Delivered):
        if not any(reading(event) == reading(one) for event in events[index + 1 :]):
            yield replaced(events, index)


def takes_an_older_end(events: Events) -> Iterator[Events]:
    for index, one in each(events, ReachedEnd):
        if any(
            receipt.log == one.log and receipt.at < one.since
            for _, receipt in each(events[:index], Acknowledged)
        ):
            yield replaced(events, index, one._replace(offset=0))


def delivers_beyond_the_highwater_mark(events: Events) -> Iterator[Events]:
    for index, one in each(events, Delivered):
        marks = [mark for _, mark in each(events[:index], Committed) if mark.log == one.log]
        if marks:
            yield [
                event._replace(highwater=0) if any(event is mark for mark in marks) else event  # type: ignore[call-arg]
                for event in events
            ]


@pytest.mark.parametrize(
    ("mutate", "rule"),
    [
        (loses_what_is_acknowledged, Rule.LOST_WRITE),
        (loses_what_was_handed_out, Rule.DIRTY_READ),
        (swaps_two_messages, Rule.INCONSISTENT_OFFSET),
        (stores_a_message_twice, Rule.DUPLICATE),
        (makes_a_hole, Rule.NOT_DENSE),
        (skips_a_delivery, Rule.POLL_SKIP),
        (delivers_again, Rule.NONMONOTONIC_POLL),
        (changes_a_value, Rule.CORRUPT),
        (changes_a_key, Rule.CORRUPT),
        (changes_headers, Rule.CORRUPT),
        (fails_what_is_stored, Rule.ABORTED_READ),
        (stores_what_nobody_sent, Rule.PHANTOM),
        (sends_to_another_log, Rule.WRONG_LOG),
        (sends_in_another_order, Rule.NONMONOTONIC_SEND),
        (sends_after_what_lies_behind_was_acknowledged, Rule.REAL_TIME_ORDER),
        (goes_back_in_epochs, Rule.EPOCH_WENT_BACK),
        (stores_a_position_ahead, Rule.POSITION_AHEAD),
        (stores_an_older_position, Rule.POSITION_WENT_BACK),
        (resumes_behind_its_position, Rule.POLL_SKIP),
        (stops_before_the_end, Rule.UNSEEN),
        (takes_an_older_end, Rule.STALE_TAIL),
        (delivers_beyond_the_highwater_mark, Rule.DIRTY_READ),
    ],
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
@given(history=true_histories(is_long=True), data=st.data())
def test_one_change_in_a_valid_history_is_found(
    mutate: Mutation, rule: Rule, history: History, data: st.DataObject
) -> None:
    mutants = list(mutate(history.events))
    assume(mutants)
    mutant = History(mutants[data.draw(st.integers(0, len(mutants) - 1))])
    faults = check(mutant)
    assert rule in {fault.rule for fault in faults}
    # The same of a history that was kept, and whatever else was judged before.
    assert check(json_lines.load(json_lines.dump(mutant))) == faults
    for fault in faults:
        assert fault.events == tuple(sorted(set(fault.events)))
        assert str(fault) in fault.explain(mutant)
