"""The timeline: a line for everything, fit for searching and for taking apart again."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import attrs
from hypothesis import given, strategies as st

from octopi.simulation.report.formatting import brief, one_line
from octopi.simulation.report.recording import Broken, Came, Recording
from octopi.simulation.report.timeline import LINE_LENGTH_MAX, fields, timeline
from octopi.tracing import steps
from octopi.wire.messages import Acknowledge, Replicate
from tests.simulation.recordings import LOG, Story, aborted_read, lost_write, real_run


@attrs.frozen
class Pair:
    one: object
    other: object = None


class Colour(enum.Enum):
    RED = 1


class Named(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def line_of(recording: Recording, words: str) -> str:
    (found,) = [line for line in timeline(recording) if words in line]
    return found


# --- values -----------------------------------------------------------------------------


def test_values_are_described_in_a_few_words() -> None:
    assert brief(12) == "12"
    assert brief(None) == "None"
    assert brief(0.25) == "0.25"
    assert brief("orders") == "orders"
    assert brief("two words") == "'two words'"
    assert brief([1, 2, 3]) == "[1,2,3]"
    assert brief({"b", "a"}) == "{a, b}"
    assert brief({"key": [1]}) == "{key: [1]}"
    assert brief(bytes(range(16))) == "00010203…"
    assert brief(Colour.RED) == "RED"
    assert brief(Pair(1, "x")) == "Pair(one=1, other=x)"
    assert brief(Named("orders", 1)) == "orders/1"
    assert brief(ValueError("no good")) == "ValueError: 'no good'"


def test_an_object_without_words_never_shows_its_address() -> None:
    assert brief(object()) == "<object>"
    assert "0x" not in brief([object(), Pair(object())])


def test_many_elements_and_deep_ones_are_left_out() -> None:
    assert brief(list(range(40)), 500).endswith(",11,… 28 more]")
    value: object = 1
    for _ in range(50):
        value = [value]
    assert "…" in brief(value)


def test_very_large_numbers_are_shown_in_part() -> None:
    assert brief(10**10_000).startswith("0x")
    assert len(brief(10**10_000)) <= 160


@given(st.text(), st.integers(1, 50))
def test_one_line_is_printable_bounded_and_has_no_two_spaces(text: str, length: int) -> None:
    line = one_line(text, length)
    assert line.isprintable()
    assert "  " not in line
    assert len(line) <= max(length, 1)
    line.encode()


# --- lines ------------------------------------------------------------------------------


def test_an_event_has_its_number_time_host_step_log_and_facts() -> None:
    line = line_of(lost_write(), "P3b")
    assert fields(line) == [
        "5",
        "0.007000 s",
        "broker-2",
        "P3b follower appended the records",
        "orders/0",
        "epoch=1",
        "offset=0",
        "end=100",
        "records_epoch=1",
    ]


def test_lines_in_conflict_are_marked() -> None:
    marked = [fields(line)[3] for line in timeline(lost_write()) if line.startswith(">")]
    assert marked == [steps.P6Committed.text, steps.E11Leading.text]


def test_a_message_says_when_it_arrives_or_that_it_never_does() -> None:
    first, second = (line for line in timeline(lost_write()) if "sends replicate" in line)
    assert fields(first)[3:5] == ["sends replicate to broker-2", "arrives 0.006000 s"]
    assert fields(second)[3:5] == ["sends replicate to broker-1", "never arrives"]
    assert "orders/0" in first


def test_a_message_sent_just_before_the_end_may_be_under_way() -> None:
    story = Story()
    story.send("broker-1", "broker-2")
    story.event("boot", "broker-3")
    assert "under way at the end" in line_of(story.recording(), "sends")


def test_a_message_shows_its_fields_and_of_bulk_the_size() -> None:
    story = Story()
    replicate = Replicate(0, 3, 1, 1, "0a", 100, 3, b"x" * 200, 100)
    story.send("broker-1", "broker-2", "replicate", replicate)
    story.send("broker-2", "broker-1", "acknowledge", Acknowledge(0, 3, 2, 1, 1, "0a", 300))
    first, second = timeline(story.recording())
    assert "offset=100" in fields(first)
    assert "records=200 bytes" in fields(first)
    assert "end=300" in fields(second)


def test_each_incarnation_of_a_host_is_shown_with_its_number() -> None:
    story = Story()
    story.event("boot", "broker-1", 2)
    assert fields(*timeline(story.recording()))[2] == "broker-1 (2)"


def test_a_topic_that_was_created_twice_is_shown_with_its_id() -> None:
    story = Story()
    for topic_id in ("0a", "0b"):
        story.event(steps.P2Appended.text, "broker-1", **(LOG | {"topic_id": topic_id}), end=1)
    story.event(steps.P2Appended.text, "broker-1", topic="other", topic_id="0c", partition=0, end=1)
    first, second, other = timeline(story.recording())
    assert "topic_id=0a" in fields(first)
    assert "topic_id=0b" in fields(second)
    assert "topic_id" not in other


def test_notes_stand_between_what_was_before_and_after() -> None:
    lines = list(timeline(aborted_read()))
    assert [fields(line)[0] for line in lines] == ["0", "note", "1", "2", "note"]
    assert fields(lines[1])[3] == "alice is told that 'm1' is surely not stored"


def test_every_event_but_an_arrival_has_a_line() -> None:
    recording = real_run()
    arrivals = sum(isinstance(one, Came) for one in recording.happenings)
    assert len(list(timeline(recording))) == len(recording.happenings) - arrivals
    assert arrivals > 100


@given(st.text(), st.text(), st.text(), st.text())
def test_fields_of_a_line_can_be_separated_whatever_they_contain(
    host: str, what: str, fact: str, value: str
) -> None:
    story = Story()
    facts: dict[str, Any] = {fact: value}
    story.event(what, host, **facts)
    broken = Broken("rule", "", "seen", (0,))
    (line,) = timeline(story.recording(broken=broken))
    assert line.isprintable()
    assert len(line) <= LINE_LENGTH_MAX
    known = fact in {"topic", "topic_id", "partition", "request"}
    assert len(fields(line)) == (4 if known else 5)
