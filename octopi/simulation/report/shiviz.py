"""A recording as a log for ShiViz (bestchai.bitbucket.io/shiviz), with vector clocks.

Each event has two lines, which ShiViz's default parser,
``(?<host>\\S*) (?<clock>{.*})\\n(?<event>.*)``, reads: the host and its clock, as a JSON object
of the hosts that it knows of and how many events of each, and what happened.  Sending a
message and its arrival are events, too.  ShiViz draws what happened before what; the page
(`octopi.simulation.report.html`) also knows when, and what was lost.

A clock is that of Fidge and Mattern: an event happened before another exactly if its clock is
nowhere greater, and somewhere less.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from octopi.simulation.report.recording import Came, Note, Recording, Sent
from octopi.simulation.report.timeline import Moment, fields, moments, name, timeline

_WORLD: Final = "(world)"
"""Faults of no host, such as a cut between two.  Names of hosts have no parentheses here."""


def shiviz_log(recording: Recording) -> str:
    """The whole log."""
    return "".join(f"{line}\n" for line in _lines(recording))


def _lines(recording: Recording) -> Iterator[str]:
    clocks: dict[str, dict[str, int]] = defaultdict(dict)
    sent: dict[int, tuple[Sent, dict[str, int]]] = {}
    for moment, words in _with_words(recording):
        if isinstance(moment, Note):
            continue  # of the notes nobody knows which host's they are
        host = host_name(moment.host)
        clock = clocks[host]
        clock[host] = clock.get(host, 0) + 1
        if isinstance(moment, Sent):
            sent[moment.number] = moment, dict(clock)
        elif isinstance(moment, Came) and moment.number in sent:
            message, theirs = sent[moment.number]
            words = f"gets {name(message.kind)} from {name(message.host)}"
            for other, count in theirs.items():
                clock[other] = max(clock.get(other, 0), count)
        yield f"{host} {json.dumps(clock)}"
        yield words


def _with_words(recording: Recording) -> Iterator[tuple[Moment, str]]:
    lines = timeline(recording)
    for moment in moments(recording):
        if isinstance(moment, Came):
            yield moment, "gets a message"
        else:
            yield moment, " ".join(fields(next(lines))[3:])


def host_name(host: str) -> str:
    """The name of a host as ShiViz may have it: without spaces, and one for each."""
    return quote(host, safe="", errors="backslashreplace") or _WORLD
