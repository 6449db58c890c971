"""A recording as a log for ShiViz (bestchai.bitbucket.io/shiviz), with vector clocks.

Each event has two lines, which ShiViz's default parser,
``(?<host>\\S*) (?<clock>{.*})\\n(?<event>.*)``, reads.  The first line has the host and its clock,
a JSON object with the number of events of each host that this host knows of.  The second line says
what happened.  The sending of a message and its arrival are events, too.  ShiViz draws the causal
order of events; the page (`octopi.simulation.report.html`) also shows their times, and lost
messages.

The clocks are those of Fidge and Mattern: an event happened before another if and only if its clock
is nowhere greater, and somewhere less.
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
"""The name for faults of no single host, such as a cut between two.  `host_name` gives no host a
name with parentheses."""


def shiviz_log(recording: Recording) -> str:
    """The whole log."""
    return "".join(f"{line}\n" for line in _lines(recording))


def _lines(recording: Recording) -> Iterator[str]:
    clocks: dict[str, dict[str, int]] = defaultdict(dict)
    sent: dict[int, tuple[Sent, dict[str, int]]] = {}
    for moment, words in _with_words(recording):
        if isinstance(moment, Note):
            continue  # a note doesn't say which host it is from
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
    """The name of a host for ShiViz: without spaces, and another one for each host."""
    return quote(host, safe="", errors="backslashreplace") or _WORLD
