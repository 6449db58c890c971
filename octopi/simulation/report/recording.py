"""What is kept of one run, to be shown: all that happened, in its order, and the verdict.

Pure data.  `octopi.simulation.report.recorder` makes it of a run; `report`, `shiviz` and `timeline`
show it.  A moment is a position in `Recording.happenings`: virtual time alone doesn't say
what came first.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.simulation.history.anomalies import Anomaly
from octopi.simulation.history.events import History
from octopi.simulation.invariants.descriptions import PROMISES
from octopi.simulation.kernel.world import Event, Violation


@attrs.frozen
class Sent:
    """A message left its host."""

    number: int
    """Position among all messages of the run, from 0."""
    at: float
    """Seconds of virtual time."""
    host: str
    life: int
    target: str
    """The host that it is sent to."""
    kind: str
    """Its type name in `octopi.wire.messages`, or a word for what is no such message."""
    topic: str
    """Of the log that it is about: the name or the id of the topic; empty: of none, or of all
    in the partition."""
    partition: int | None
    size_bytes: int
    content: object
    """The message, or None."""


@attrs.frozen
class Came:
    """A message has arrived as a whole; whether a program takes it is another matter."""

    number: int
    at: float
    host: str
    life: int


Happening: TypeAlias = Event | Sent | Came


@attrs.frozen
class Note:
    """What a client noted, of the messages that a broken promise is about."""

    at: float
    text: str
    is_in_conflict: bool


@attrs.frozen
class Broken:
    """A rule was broken."""

    rule: str
    """Its name."""
    promise: str
    """What holds where it isn't broken; empty if nobody has put that in words."""
    seen: str
    """What was seen."""
    events: tuple[int, ...] = ()
    """Numbers of the events in conflict."""
    notes: tuple[Note, ...] = ()
    """In the order of time."""
    details: str = ""
    """More about it, many lines."""

    @classmethod
    def of_violation(cls, violation: Violation, details: str = "") -> Broken:
        """What an observer of the run found."""
        rule = violation.rule
        return cls(
            rule,
            PROMISES.get(rule, ""),
            str(violation).removeprefix(f"{rule}: "),
            tuple(sorted({event.number for event in violation.events})),
            details=details,
        )

    @classmethod
    def of_history(cls, fault: Anomaly, history: History) -> Broken:
        """What the checker found among the clients' notes."""
        notes = tuple(
            Note(event.at, str(event), number in fault.events)
            for number, event in enumerate(history.events)
            if number in fault.events or getattr(event, "value", None) in fault.values
        )
        return cls(
            fault.rule.name,
            fault.rule.value,
            f"{fault.log}: {fault.text}",
            notes=notes,
            details=fault.explain(history),
        )


@attrs.frozen
class Recording:
    """A run, to be shown."""

    title: str
    happenings: tuple[Happening, ...]
    hosts: tuple[tuple[str, str], ...] = ()
    """Names and kinds (``register``, ``broker``, ``client``) in the order in which they are to
    be shown; hosts that are missing come behind."""
    broken: Broken | None = None
    """None: the run went well."""
    command: str = ""
    """What repeats the run: a line for a shell."""
    options: tuple[str, ...] = ()
    """Of the plan, in words, one each: ``name = value``."""
    faults: tuple[str, ...] = ()
    """Of the plan, in words."""
    digest: str = ""
    """See `octopi.simulation.kernel.world.World.digest`."""
