"""Which events of the register become messages, and that none comes twice or unnoticed."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from octopi.history.event_messages import EventMessages, HistoryMessage
from octopi.limits import HISTORY_BATCH_MAX
from octopi.wire.messages import ClusterEvent


def event(number: int) -> ClusterEvent:
    return ClusterEvent(
        number=number,
        at_ms=1_000 + number,
        kind="broker_left",
        partition=None,
        broker=None,
        topic="",
        epoch=None,
        in_sync=[],
        text=f"event {number}",
    )


class Register:
    """A list of the newest events, as the register keeps it."""

    def __init__(self, kept_max: int) -> None:
        self.kept_max = kept_max
        self.events: list[ClusterEvent] = []
        self.noted = 0

    def note(self, count: int) -> None:
        for _ in range(count):
            self.noted += 1
            self.events = [*self.events, event(self.noted)][-self.kept_max :]

    def after(self, number: int) -> list[ClusterEvent]:
        return [one for one in self.events if one.number > number]


def numbers(messages: list[HistoryMessage]) -> list[int]:
    return [json.loads(one.value)["number"] for one in messages]


def test_an_event_is_pending_until_it_is_written() -> None:
    register = Register(10)
    messages = EventMessages(register.after, lambda: "life")
    register.note(3)
    assert numbers(messages.pending()) == [1, 2, 3]
    messages.written(2)
    assert numbers(messages.pending()) == [3]
    messages.written(1)
    assert messages.pending() == []


def test_a_message_has_all_fields_of_its_event() -> None:
    register = Register(10)
    register.note(1)
    [message] = EventMessages(register.after, lambda: "a1b2").pending()
    assert message.at_ms == 1_001
    assert json.loads(message.value) == {
        "format": 1,
        "life": "a1b2",
        "number": 1,
        "at_ms": 1_001,
        "kind": "broker_left",
        "partition": None,
        "broker": None,
        "topic": "",
        "epoch": None,
        "in_sync": [],
        "text": "event 1",
    }


def test_nothing_is_pending_before_the_register_has_a_life() -> None:
    register = Register(10)
    register.note(1)
    life = ""
    messages = EventMessages(register.after, lambda: life)
    assert messages.pending() == []
    life = "life"
    assert numbers(messages.pending()) == [1]


@given(
    st.lists(st.tuples(st.integers(0, 250), st.floats(0, 1))),
    st.integers(1, 300),
)
def test_each_event_is_written_once_or_counted_as_dropped(
    turns: list[tuple[int, float]], kept_max: int
) -> None:
    register = Register(kept_max)
    messages = EventMessages(register.after, lambda: "life")
    written: list[int] = []
    for count, share in turns:
        register.note(count)
        pending = messages.pending()
        assert len(pending) <= HISTORY_BATCH_MAX
        done = int(share * len(pending))
        messages.written(done)
        written += numbers(pending[:done])
    while pending := messages.pending():
        messages.written(len(pending))
        written += numbers(pending)
    assert written == sorted(set(written))
    assert len(written) + messages.dropped_count == register.noted
