"""Histories go to lines of JSON and come back; each event can be read by people."""

import json
from typing import get_args

import pytest
from hypothesis import given, settings, strategies as st

from octopi.simulation.history import json_lines
from octopi.simulation.history.events import (
    Acknowledged,
    Delivered,
    Event,
    FinalLog,
    History,
    HistoryError,
    Invoked,
    LogName,
    StoredMessage,
    name_of,
    show,
    unique_value,
)
from tests.simulation.stories import Story

NUMBERS = st.integers(0, 2**63 - 1)
SECONDS = st.floats(allow_nan=False, allow_infinity=False)
HEADERS = st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=2)
FIELDS: dict[str, st.SearchStrategy[object]] = {
    **dict.fromkeys(("producer", "consumer", "topic", "why"), st.text(max_size=8)),
    **dict.fromkeys(("offset", "next_offset", "epoch", "highwater", "start", "end"), NUMBERS),
    **dict.fromkeys(("at", "since"), SECONDS),
    "log": st.builds(LogName, st.text(max_size=8), NUMBERS),
    "partition": st.none() | NUMBERS,
    "value": st.binary(max_size=20),
    "key": st.none() | st.binary(max_size=5),
    "headers": HEADERS,
    "duplicate": st.booleans(),
    "forked": st.booleans(),
    "messages": st.lists(
        st.builds(
            StoredMessage,
            NUMBERS,
            NUMBERS,
            st.binary(max_size=20),
            st.none() | st.binary(max_size=5),
            HEADERS,
        ),
        max_size=3,
    ).map(tuple),
}


def events(kind: type[Event]) -> st.SearchStrategy[Event]:
    return st.builds(kind, **{name: FIELDS[name] for name in kind._fields})


EVENTS = st.one_of([events(kind) for kind in get_args(Event)])


@given(st.lists(EVENTS, max_size=5))
def test_a_history_comes_back_from_its_lines(noted: list[Event]) -> None:
    lines = list(json_lines.dump(History(noted)))
    assert len(lines) == len(noted)
    assert all("\n" not in line for line in lines)
    again = json_lines.load(lines)
    assert again.events == noted
    # Tuples of different classes may be equal.
    assert list(map(type, again.events)) == list(map(type, noted))


def test_a_line_is_an_object_that_leaves_out_what_is_usual() -> None:
    log = LogName("orders", 0)
    events: list[Event] = [
        Invoked(1.5, "p1", "orders", None, b"\x00a|\xff", headers={"n": b"1"}),
        Acknowledged(2, log, b"a", 0, 58, 1),
        FinalLog(3, log, (StoredMessage(0, 58, b"a"),)),
    ]
    assert [json.loads(line) for line in json_lines.dump(History(events))] == [
        {
            "event": "Invoked",
            "at": 1.5,
            "producer": "p1",
            "topic": "orders",
            "partition": None,
            "value": "\x00a|\xff",
            "headers": {"n": "1"},
        },
        {
            "event": "Acknowledged",
            "at": 2,
            "log": ["orders", 0],
            "value": "a",
            "offset": 0,
            "next_offset": 58,
            "epoch": 1,
        },
        {
            "event": "FinalLog",
            "at": 3,
            "log": ["orders", 0],
            "messages": [{"offset": 0, "next_offset": 58, "value": "a"}],
        },
    ]


def test_empty_lines_are_skipped() -> None:
    lines = list(json_lines.dump(History(Story().events)))
    assert json_lines.load(["", *lines, "\n"]).events == Story().events


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"event": "Exploded", "at": 1}',
        '{"event": ["Rested"], "at": 1}',
        '{"event": "TopicRemoved", "at": 1}',
        '{"event": "TopicRemoved", "at": "1", "topic": "orders"}',
        '{"event": "TopicRemoved", "at": 1, "topic": 7}',
        '{"event": "TopicRemoved", "at": 1, "topic": "orders", "why": "old"}',
        '{"event": "TopicRemoved", "at": 1, "topic": "orders", "colour": "red"}',
        '{"event": "Rested", "at": 1, "consumer": "c", "log": "orders/0"}',
        '{"event": "Rested", "at": 1, "consumer": "c", "log": ["orders"]}',
        '{"event": "Committed", "at": 1, "log": ["orders", 0], "highwater": true}',
        '{"event": "Failed", "at": 1, "value": "\\u0100", "why": ""}',
        '{"event": "FinalLog", "at": 1, "log": ["orders", 0], "messages": [{"offset": 0}]}',
        '{"event": "FinalLog", "at": 1, "log": ["orders", 0], "messages": {}}',
    ],
)
def test_a_line_that_is_no_event_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(HistoryError, match="line 2 is no event of a history"):
        json_lines.load(["", line])


def test_a_duplicate_that_is_no_truth_value_is_refused() -> None:
    event = Acknowledged(2, LogName("orders", 0), b"a", 0, 58, 1, True)
    [line] = json_lines.dump(History([event]))
    assert json_lines.load([line]).events == [event]
    with pytest.raises(HistoryError, match="should be true or false"):
        json_lines.load([line.replace("true", "1")])


@pytest.mark.parametrize("kind", get_args(Event))
@settings(max_examples=5)
@given(data=st.data())
def test_every_event_has_a_description(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(events(kind))
    assert str(event) != repr(event)


def test_an_event_is_described_in_words() -> None:
    log, value = LogName("orders", 0), unique_value("p1", 3, 60)
    assert str(Invoked(1, "p1", "orders", None, value)) == "p1 sends 'p1-3' to orders"
    assert str(Acknowledged(1, log, value, 0, 117, 2, True)) == (
        "'p1-3' is acknowledged in orders/0 from 0 to 117 in epoch 2, as a duplicate"
    )
    assert str(Delivered(1, "c1", log, 0, 117, value)) == (
        "c1 is handed 'p1-3' in orders/0 from 0 to 117"
    )


def test_a_value_has_its_name_and_its_size() -> None:
    assert unique_value("p1", 7) == b"p1-7|"
    assert unique_value("p1", 7, 9) == b"p1-7|...."
    assert len(unique_value("ä", 10, 100)) == 100
    assert name_of(unique_value("p1", 7, 9)) == b"p1-7"
    assert name_of(b"some value") == b"some value"


def test_a_value_without_a_name_is_shown_in_part() -> None:
    assert show(b"\xff1") == r"'\xff1'"
    assert show(b"1234567890" * 5) == f"{'1234567890' * 4!r}... (50 bytes)"
