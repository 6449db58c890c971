"""ShiViz logs: its parser reads them, and their clocks say what happened before what."""

from __future__ import annotations

import json
import re

from hypothesis import given, strategies as st

from octopi.simulation.report.recording import Recording, Sent
from octopi.simulation.report.shiviz import host_name, shiviz_log
from tests.simulation.recordings import Story, aborted_read, lost_write, real_run

PARSER = re.compile(r"(?P<host>\S*) (?P<clock>{.*})\n(?P<event>.*)\n")
"""ShiViz's default, and the end of the line."""


def parsed(recording: Recording) -> list[tuple[str, dict[str, int], str]]:
    log, found, at = shiviz_log(recording), [], 0
    while at < len(log):
        match = PARSER.match(log, at)
        assert match is not None, log[at : at + 200]
        found.append((match["host"], json.loads(match["clock"]), match["event"]))
        at = match.end()
    return found


def happened_before(one: dict[str, int], other: dict[str, int]) -> bool:
    return one != other and all(other.get(host, 0) >= count for host, count in one.items())


HOST = st.sampled_from(["a", "b", "c", "with spaces", "{}", ""])
ACTIONS = st.lists(
    st.tuples(HOST, HOST, st.integers(0, 9), st.sampled_from(["event", "send", "arrive"])),
    max_size=25,
)


@given(ACTIONS)
def test_clocks_are_ordered_exactly_as_the_events_are(
    actions: list[tuple[str, str, int, str]],
) -> None:
    story, flying = Story(), list[Sent]()
    before: list[set[int]] = []  # of each event: all that happened before it
    last: dict[str, int] = {}
    sent_at: dict[int, int] = {}
    for host, target, choice, action in actions:
        causes = set[int]()
        if action == "send":
            flying.append(story.send(host, target))
            sent_at[flying[-1].number] = len(before)
        elif action == "arrive" and flying:
            sent = flying.pop(choice % len(flying))
            host = story.arrive(sent).host
            causes.add(sent_at[sent.number])
        else:
            story.event("something", host)
        if host in last:
            causes.add(last[host])
        last[host] = len(before)
        before.append(causes.union(*(before[cause] for cause in causes)))
    clocks = [clock for _, clock, _ in parsed(story.recording())]
    assert len(clocks) == len(before)
    for number, clock in enumerate(clocks):
        found = {other for other, one in enumerate(clocks) if happened_before(one, clock)}
        assert found == before[number]


def test_each_host_counts_its_own_events_one_by_one() -> None:
    counts: dict[str, int] = {}
    for host, clock, _ in parsed(real_run()):
        counts[host] = counts.get(host, 0) + 1
        assert clock[host] == counts[host]
    assert {"register", "broker-1", "producer-1", "consumer-1"} <= set(counts)


def test_shiviz_events_name_the_step_with_its_facts() -> None:
    events = [(host, words) for host, _, words in parsed(lost_write())]
    assert ("broker-2", "gets replicate from broker-1") in events
    assert any(
        host == "broker-1" and words.startswith("P6b leader advanced") and "highwater=100" in words
        for host, words in events
    )


def test_a_lost_message_is_sent_and_never_arrives() -> None:
    (sent,) = [words for *_, words in parsed(lost_write()) if "to broker-1" in words]
    assert "never arrives" in sent


def test_notes_are_left_out() -> None:
    assert [host for host, *_ in parsed(aborted_read())] == ["register", "broker-1", "broker-2"]


@given(st.text(), st.text())
def test_hosts_keep_different_names_without_spaces(one: str, other: str) -> None:
    assert re.fullmatch(r"\S+", host_name(one))
    assert (host_name(one) == host_name(other)) == (one == other)


@given(st.text(), st.text())
def test_a_shiviz_log_is_readable_with_any_names_of_hosts_and_facts(host: str, value: str) -> None:
    story = Story()
    story.event(value, host, fact=value)
    story.arrive(story.send(host, value, kind=value))
    assert len(parsed(story.recording())) == 3
