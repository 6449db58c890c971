"""A recording as lines of text: one for each event, message and note, in their order.

The fields are number, time, host, what happened, and facts.  Two or more spaces separate them, and
no field contains two spaces in a row.  The number of a message begins with ``m``; a line that is in
conflict with a rule begins with ``>``.  From the second life of a host on, the number of the life
follows the host's name in parentheses::

    >   1203    1.204518 s  broker-2      E13b follower cut its log  orders/0  end=512
        m371    1.204518 s  broker-2 (2)  sends follow to broker-3  orders/0  arrives 1.205131 s
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import attrs

from octopi.simulation.kernel.world import Event
from octopi.simulation.report.formatting import brief, one_line
from octopi.simulation.report.recording import Came, Happening, Note, Recording, Sent

LINE_LENGTH_MAX: Final = 1000
"""The most characters of a line.  A longer line is cut, because any program may have sent its text,
and nobody reads so much."""

UNDER_WAY_S: Final = 0.05
"""A message that was sent this shortly before the end of the run may still be in flight."""

_NAME_LENGTH_MAX: Final = 100
_LEFT_OUT: Final = frozenset({"topic", "topic_id", "partition", "request"})
_WORLD: Final = "-"
_BETWEEN_FIELDS: Final = re.compile(" {2,}")

Moment: TypeAlias = Happening | Note


def moments(recording: Recording) -> list[Moment]:
    """All happenings and notes by time; a note follows what happened at the same time."""
    notes = list(recording.broken.notes) if recording.broken is not None else []
    merged: list[Moment] = []
    for happening in recording.happenings:
        while notes and notes[0].at < happening.at:
            merged.append(notes.pop(0))
        merged.append(happening)
    return merged + notes


def is_in_conflict(moment: Moment, recording: Recording) -> bool:
    """Whether *moment* is one of those that break a rule."""
    if isinstance(moment, Note):
        return moment.is_in_conflict
    broken = recording.broken
    return broken is not None and isinstance(moment, Event) and moment.number in broken.events


class LogNames:
    """The names of the logs of a run.  Messages have the ids of topics instead."""

    def __init__(self, happenings: Iterable[Happening]) -> None:
        self._topics: dict[str, str] = {}
        """The name of each topic id."""
        ids: dict[str, set[str]] = {}
        for one in happenings:
            if isinstance(one, Event):
                topic, topic_id = one.get("topic"), one.get("topic_id")
                if isinstance(topic, str) and isinstance(topic_id, str):
                    self._topics[topic_id] = topic
                    ids.setdefault(topic, set()).add(topic_id)
        self._ambiguous = {topic for topic, known in ids.items() if len(known) > 1}

    def log(self, moment: Moment) -> tuple[str, int] | None:
        """The topic and the partition that *moment* is about; an empty topic means all logs of the
        partition."""
        if isinstance(moment, Event):
            topic, partition = moment.get("topic"), moment.get("partition")
        elif isinstance(moment, Sent):
            topic, partition = self._topics.get(moment.topic, moment.topic), moment.partition
        else:
            return None
        if not isinstance(partition, int):
            return None
        return one_line(topic, _NAME_LENGTH_MAX) if isinstance(topic, str) else "", partition

    def words(self, moment: Moment) -> str:
        """The log that *moment* is about, as text; empty if it is about none."""
        log = self.log(moment)
        if log is None:
            return ""
        return log_words(*log)

    def needs_id(self, event: Event) -> bool:
        """Whether the topic that *event* is about was created more than once."""
        return event.get("topic") in self._ambiguous


def log_words(topic: str, partition: int) -> str:
    """The name of a log, or of all logs of a partition."""
    return f"{topic}/{partition}" if topic else f"partition {partition}"


def fields(line: str) -> list[str]:
    """The fields of a line: number, time, host, what, facts, without the mark of a conflict."""
    return _BETWEEN_FIELDS.split(line[1:].strip())


def timeline(recording: Recording) -> Iterator[str]:
    """The lines of *recording*, without line ends, to be printed or searched."""
    names = LogNames(recording.happenings)
    came = {one.number: one.at for one in recording.happenings if isinstance(one, Came)}
    order = moments(recording)
    end = max((one.at for one in recording.happenings), default=0.0)
    width = max((len(_host(one)) for one in order if not isinstance(one, Came)), default=0)
    for moment in order:
        if isinstance(moment, Came):
            continue
        mark = ">" if is_in_conflict(moment, recording) else " "
        shown = [f"{moment.at:.6f} s".rjust(13), _host(moment).ljust(width)]
        match moment:
            case Event():
                number = str(moment.number)
                shown += [name(moment.what), names.words(moment), *_facts(moment, names)]
            case Sent():
                number = f"m{moment.number}"
                shown += [
                    f"sends {name(moment.kind)} to {name(moment.target)}",
                    _arrival(moment, came.get(moment.number), end),
                    f"{moment.size_bytes} bytes" if moment.size_bytes else "",
                    names.words(moment),
                    *_content(moment.content),
                ]
            case Note():
                number = "note"
                shown += [one_line(moment.text).strip() or _WORLD]
        line = "  ".join(filter(None, [f"{mark}{number.rjust(7)}", *shown])).rstrip()
        yield line if len(line) <= LINE_LENGTH_MAX else f"{line[: LINE_LENGTH_MAX - 1]}…"


def name(text: str) -> str:
    """*text* as a short name, which is never empty."""
    return one_line(text, _NAME_LENGTH_MAX).strip() or _WORLD


def _host(moment: Event | Sent | Note) -> str:
    if isinstance(moment, Note):
        return _WORLD
    return name(moment.host) + (f" ({moment.life})" if moment.life > 1 else "")


def _facts(event: Event, names: LogNames) -> Iterator[str]:
    if names.needs_id(event):
        yield f"topic_id={brief(event.get('topic_id'))}"
    for fact, value in event.facts.items():
        if fact not in _LEFT_OUT:
            yield f"{name(fact)}={brief(value)}"


def _arrival(sent: Sent, came: float | None, end: float) -> str:
    if came is not None:
        return f"arrives {came:.6f} s"
    return "under way at the end" if end - sent.at <= UNDER_WAY_S else "never arrives"


def _content(content: object) -> Iterator[str]:
    """The fields of a message; of bytes only the size."""
    cls = type(content)
    if isinstance(content, Mapping):
        values = content
    elif attrs.has(cls):
        values = {field.name: getattr(content, field.name) for field in attrs.fields(cls)}
    else:
        values = {}
    for field, value in values.items():
        if field not in _LEFT_OUT:
            bulk = f"{len(value)} bytes" if isinstance(value, bytes) else ""
            yield f"{name(field)}={bulk or brief(value)}"
