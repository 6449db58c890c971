"""The data from which a page draws its diagram and its timeline: lists of numbers, lines of text.

=========== ========================================================================
key         value
=========== ========================================================================
lanes       the name and the kind of each lane
moments     ``[lane, us, what, log]`` for an event,
            ``[lane, us, kind, log, bytes, target]`` for a message that is sent,
            ``[lane, us, moment]`` for its arrival, with the moment of its sending
whats       of each kind of event: the code of its step or nothing, its words, its
            group
logs        the topic and the partition of each log; without a topic, all logs of the
            partition
kinds       the types of messages
lines       the lines of `octopi.simulation.report.timeline`, of all moments but
            arrivals
conflict    the moments that break a rule
focus       the moment to look at first
lives,      the fields of the classes in
spells,     `octopi.simulation.report.space_time_diagram`, in their order
leads,
reigns
marks       of each replica: its log, its lane, and a list that repeats moment, log
            end, highwater mark
=========== ========================================================================

Times are whole microseconds.  -1 stands for None, and for a sending that is no longer in the
recording.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from typing import Final

import attrs

from octopi.simulation.faults.injector import FAULT, HEALED, SKIPPED
from octopi.simulation.kernel.world import Event
from octopi.simulation.report.formatting import one_line
from octopi.simulation.report.recording import Came, Note, Sent
from octopi.simulation.report.space_time_diagram import Diagram, LogEndMark, code
from octopi.simulation.report.timeline import Moment, name

_FAULTS: Final = frozenset({FAULT, SKIPPED, HEALED})


def page_data(drawn: Diagram, lines: Iterable[str]) -> dict[str, object]:
    """The data of a page, ready for JSON."""
    whats: dict[tuple[str, str, str], int] = defaultdict(count().__next__)
    kinds: dict[str, int] = defaultdict(count().__next__)
    found = {log for one in drawn.moments if (log := drawn.names.log(one)) is not None}
    logs = {log: number for number, log in enumerate(sorted(found))}
    sent: dict[int, int] = {}

    def row(number: int, one: Moment) -> list[int]:
        log = drawn.names.log(one)
        log_number = -1 if log is None else logs[log]
        begin = [drawn.lane(one), round(one.at * 1e6)]
        match one:
            case Event():
                return [*begin, whats[code(one.what), name(one.what), _kind(one)], log_number]
            case Note():
                return [*begin, whats["", one.who, "note"], log_number]
            case Sent():
                sent[one.number] = number
                target = drawn.hosts[one.target]
                return [*begin, kinds[name(one.kind)], log_number, one.size_bytes, target]
            case Came():
                return [*begin, sent.get(one.number, -1)]

    return {
        "lanes": [[name(lane.name), one_line(lane.kind)] for lane in drawn.lanes],
        "moments": [row(number, one) for number, one in enumerate(drawn.moments)],
        "whats": list(whats),
        "logs": list(logs),
        "kinds": list(kinds),
        "lines": list(lines),
        "conflict": drawn.conflict,
        "focus": drawn.focus,
        "lives": _rows(drawn.lives),
        "spells": _rows(drawn.spells),
        "leads": _rows(drawn.leads),
        "reigns": _rows(
            attrs.evolve(one, in_sync=tuple(map(name, one.in_sync))) for one in drawn.reigns
        ),
        "marks": [
            [logs[topic, partition], lane, _flat(marks)]
            for (topic, partition, lane), marks in drawn.marks.items()
        ],
    }


def _kind(event: Event) -> str:
    """The group of an event: the letter of its step's protocol, or a word."""
    letter = code(event.what)[:1]
    if letter:
        return letter
    if event.what in _FAULTS:
        return "fault"
    return "host" if event.host else "world"


def _rows(things: Iterable[attrs.AttrsInstance]) -> list[list[object]]:
    return [
        [-1 if value is None else value for value in attrs.astuple(one, recurse=False)]
        for one in things
    ]


def _flat(marks: Iterable[LogEndMark]) -> list[int]:
    return [
        -1 if value is None else value
        for mark in marks
        for value in (mark.moment, mark.log_end, mark.highwater)
    ]
