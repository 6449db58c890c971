"""The recording of a run, to be shown: everything that happened, in order, and the verdict.

`octopi.simulation.report.recorder` records a run, and `octopi.simulation.report.html`, `shiviz` and
`timeline` show it.  The order of `Recording.happenings` counts: virtual time alone doesn't say what
happened first.
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
    """The position among all messages of the run, from 0."""
    at: float
    """The virtual time (s)."""
    host: str
    life: int
    target: str
    """The host that the message is sent to."""
    kind: str
    """The type name in `octopi.wire.messages`, or a word for something else, such as ``ping``."""
    topic: str
    """The name or the id of the topic that the message is about.  Empty: no topic, or all topics of
    the partition."""
    partition: int | None
    size_bytes: int
    content: object
    """The message, or its fields by name, or None."""


@attrs.frozen
class Came:
    """A message has arrived as a whole.  The program may not have taken it."""

    number: int
    at: float
    host: str
    life: int


Happening: TypeAlias = Event | Sent | Came


@attrs.frozen
class Note:
    """An event of the clients' history about a message that an anomaly concerns."""

    at: float
    text: str
    is_in_conflict: bool
    who: str = "a client's note"
    """Where the note comes from, in words."""


@attrs.frozen
class Cause:
    """A fault that matters: with it the run fails."""

    code: str
    """The line of a test that plans it."""
    without: str = ""
    """What the same run does without it, such as ``passes``; empty: that was not tried."""


@attrs.frozen
class Causes:
    """The faults that are left of a test's random faults."""

    said: str
    """How many of how many matter, and where the lines go."""
    lines: tuple[str, ...]
    """The lines of a test that plan them."""
    faults: tuple[Cause, ...]


@attrs.frozen
class Broken:
    """A rule was broken."""

    rule: str
    """The name of the rule."""
    promise: str
    """What the rule promises; empty if no words for it exist."""
    seen: str
    """What was seen instead."""
    events: tuple[int, ...] = ()
    """The numbers of the events in conflict."""
    notes: tuple[Note, ...] = ()
    """The notes of clients, in the order of time."""
    details: str = ""
    """A longer explanation, of many lines."""

    @classmethod
    def of_violation(cls, violation: Violation, details: str = "") -> Broken:
        """The rule that an observer of the run found broken."""
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
        """The rule that the checker found broken in the clients' history."""
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
    """The names and the kinds (``register``, ``broker``, ``client``) of hosts, in the order in
    which they are shown.  Other hosts follow."""
    broken: Broken | None = None
    """The rule that was broken.  None: the run passed."""
    command: str = ""
    """The shell command that repeats the run."""
    options: tuple[str, ...] = ()
    """The options of the plan, each as ``name = value``."""
    faults: tuple[str, ...] = ()
    """The faults of the plan, in words."""
    digest: str = ""
    """See `octopi.simulation.kernel.world.World.digest`."""
    is_simulated: bool = True
    """Whether a simulator has run it, by a plan, and judged it.  Otherwise nodes wrote it."""
    causes: Causes | None = None
    """The faults that matter, if somebody has looked for them.  None: only `faults` are known."""
