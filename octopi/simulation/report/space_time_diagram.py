"""The space-time diagram of a run, as data: lanes, hosts that are up, leaders, and ends of logs.

This module reads a recording, and doesn't know how the diagram is drawn.  Numbers of moments are
positions in `Diagram.moments`.  A spell lasts from its first moment to the moment at which it ends,
which is None if it lasts to the end of the run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

import attrs

from octopi.coordination.journal_entries import EpochAnnounced, PartitionDecided
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.simulation.report.recording import Note, Recording, Sent
from octopi.simulation.report.timeline import LogNames, Moment, is_in_conflict, moments
from octopi.simulation.step_handlers import StepHandlers
from octopi.tracing import steps
from octopi.tracing.common import MarkStep
from octopi.tracing.join import IdentityStep
from octopi.tracing.register import EntriesStep

WORLD: Final = "world"
NOTES: Final = "notes"
"""The kinds of lanes that belong to no host."""

_STEP: Final = re.compile(r"([A-Z][0-9]+)[a-z]? ")
_DEATHS: Final = frozenset({"kill", "lose power", "exit"})
_NO_ERROR: Final = "None"


@attrs.frozen
class Lane:
    """A line of the diagram: a host, the world, or the clients' notes."""

    name: str
    kind: str


@attrs.frozen
class Spell:
    """A host is ``paused``, or ``down`` after it was up, or its program has ``ended`` without an
    error."""

    lane: int
    what: str
    begin: int
    end: int | None


@attrs.frozen
class UpSpan:
    """One life of a host, from its boot on."""

    lane: int
    number: int
    begin: int


@attrs.frozen
class Lead:
    """A broker believes that it leads a partition."""

    lane: int
    partition: int
    epoch: int
    begin: int
    end: int | None


@attrs.frozen
class Reign:
    """The register's decision about a partition.  It is in force until the next one."""

    partition: int
    begin: int
    epoch: int
    leader: int | None
    """The leader's lane.  None: no broker leads, because an election is under way."""
    in_sync: tuple[str, ...]
    """The names of the hosts with in-sync replicas."""


@attrs.frozen
class LogEndMark:
    """The ends of a replica's log from a moment on.  None: unknown."""

    moment: int
    log_end: int | None
    highwater: int | None


@attrs.frozen
class Diagram:
    """Everything that is drawn of a run."""

    moments: tuple[Moment, ...]
    lanes: tuple[Lane, ...]
    lives: tuple[UpSpan, ...]
    spells: tuple[Spell, ...]
    leads: tuple[Lead, ...]
    reigns: tuple[Reign, ...]
    marks: dict[tuple[str, int, int], tuple[LogEndMark, ...]]
    """The ends of logs by topic, partition and lane."""
    conflict: tuple[int, ...]
    """The moments that break a rule."""
    names: LogNames
    hosts: dict[str, int]
    """The lane of each host by its name; the world has an empty name."""

    @property
    def focus(self) -> int:
        """The moment to look at first: the last one of the conflict, or else of all.  When a test
        looks at what came of a fault, the fault is more interesting than that moment."""
        if not self.conflict:
            return max(len(self.moments) - 1, 0)
        if isinstance(self.moments[self.conflict[-1]], Note):
            events = [one for one in self.conflict if isinstance(self.moments[one], Event)]
            return events[-1] if events else self.conflict[-1]
        return self.conflict[-1]

    def lane(self, moment: Moment) -> int:
        """The lane that *moment* is in."""
        return len(self.lanes) - 1 if isinstance(moment, Note) else self.hosts[moment.host]


def code(what: str) -> str:
    """The code of a step without its edge, such as "P3"; empty for anything else."""
    found = _STEP.match(what)
    return found[1] if found else ""


def diagram(recording: Recording) -> Diagram:
    """The diagram of *recording*."""
    order = moments(recording)
    hosts, lanes = _lanes(recording, order)
    names = LogNames(recording.happenings)
    reader = _Reader(hosts, dict(recording.hosts), names)
    for number, moment in enumerate(order):
        if isinstance(moment, Event):
            reader.read(number, moment)
    return Diagram(
        tuple(order),
        tuple(lanes),
        tuple(reader.lives),
        tuple(sorted(reader.spells, key=lambda one: (one.begin, one.lane))),
        tuple(sorted(reader.leads, key=lambda one: (one.begin, one.lane, one.partition))),
        tuple(reader.reigns),
        {log: tuple(marks) for log, marks in sorted(reader.marks.items())},
        tuple(number for number, one in enumerate(order) if is_in_conflict(one, recording)),
        names,
        hosts,
    )


def _lanes(recording: Recording, order: list[Moment]) -> tuple[dict[str, int], list[Lane]]:
    """The lane number of each host, and the lanes of all hosts to which something happened.  The
    world's lane is the first and that of the notes the last, where they exist."""
    seen: dict[str, None] = {}
    for moment in order:
        if not isinstance(moment, Note):
            seen[moment.host] = None
            if isinstance(moment, Sent):
                seen[moment.target] = None
    kinds = {"": WORLD, **dict(recording.hosts)}
    names = [name for name in kinds if name in seen]
    names += [name for name in seen if name not in kinds]
    lanes = [Lane(name or WORLD, kinds.get(name, "")) for name in names]
    if any(isinstance(moment, Note) for moment in order):
        lanes.append(Lane(NOTES, NOTES))
    return {name: number for number, name in enumerate(names)}, lanes


class _Reader:
    """Reads the events of a run, one after the other, and collects what the diagram shows."""

    def __init__(self, hosts: dict[str, int], kinds: dict[str, str], names: LogNames) -> None:
        self.lives: list[UpSpan] = []
        self.spells: list[Spell] = []
        self.leads: list[Lead] = []
        self.reigns: list[Reign] = []
        self.marks: dict[tuple[str, int, int], list[LogEndMark]] = defaultdict(list)
        self._hosts = hosts
        self._kinds = kinds
        self._names = names
        self._brokers: dict[int, str] = {}
        """The host of each broker id."""
        self._open_spells: dict[tuple[int, str], int] = {}
        """The positions in `spells` of the spells that last, by lane and kind."""
        self._reigns: dict[int, Reign] = {}
        """The decisions in force, by partition."""
        self._open_leads: dict[tuple[int, int], int] = {}
        """The positions in `leads` of the leaderships that last, by lane and partition."""
        self._handlers = StepHandlers()
        on, on_word = self._handlers.on, self._handlers.on_word
        on_word(self._boot, "boot")
        on_word(self._pause, "pause")
        on_word(self._resume, "resume")
        on_word(self._die, *_DEATHS)
        on(self._identify, steps.J1Identified, steps.J4Joined)
        on(self._decide, steps.R1Read, steps.R2Appended)
        on(self._leave, steps.E5Left)
        on(self._lead, steps.E11Leading)
        on(self._append, steps.P2Appended)
        on(self._replicate, steps.P3Replicated)
        on(self._mark, steps.P6Committed, steps.P8Followed)
        on(self._flush, steps.D1Flushed)
        on(self._checkpoint, steps.D3Noted)
        on(self._truncate, steps.E13Truncated)
        on(self._restart, steps.E14Restarted)
        self._moment = 0

    def read(self, moment: int, event: Event) -> None:
        """Read the next event, which is number *moment*."""
        handler = self._handlers.of(event)
        if handler is not None:
            self._moment = moment
            handler(event)

    # --- lives ---------------------------------------------------------------------------

    def _boot(self, event: Event) -> None:
        lane = self._hosts[event.host]
        self.lives.append(UpSpan(lane, event.life, self._moment))
        self._end_spell(lane, "down", self._moment)
        self._end_spell(lane, "ended", self._moment)

    def _die(self, event: Event) -> None:
        lane = self._hosts[event.host]
        has_ended = event.what == "exit" and event.facts.get("error") == _NO_ERROR
        is_client = self._kinds.get(event.host) == "client"
        self._end_spell(lane, "paused", self._moment)
        self._begin_spell(lane, "ended" if has_ended and is_client else "down", self._moment)
        for key in [key for key in self._open_leads if key[0] == lane]:
            self._end_lead(key, self._moment)
        for log, marks in self.marks.items():
            if log[2] == lane:
                marks.append(LogEndMark(self._moment, None, None))

    def _pause(self, event: Event) -> None:
        self._begin_spell(self._hosts[event.host], "paused", self._moment)

    def _resume(self, event: Event) -> None:
        self._end_spell(self._hosts[event.host], "paused", self._moment)

    def _begin_spell(self, lane: int, what: str, moment: int) -> None:
        if (lane, what) not in self._open_spells:
            self._open_spells[lane, what] = len(self.spells)
            self.spells.append(Spell(lane, what, moment, None))

    def _end_spell(self, lane: int, what: str, moment: int) -> None:
        at = self._open_spells.pop((lane, what), None)
        if at is not None:
            self.spells[at] = attrs.evolve(self.spells[at], end=moment)

    # --- leadership ----------------------------------------------------------------------

    def _identify(self, event: StepEvent[IdentityStep]) -> None:
        broker = event.step.broker
        if broker is not None:
            self._brokers[broker] = event.host

    def _name(self, broker: int) -> str:
        return self._brokers.get(broker, f"broker {broker}")

    def _decide(self, event: StepEvent[EntriesStep]) -> None:
        moment = self._moment
        for entry in event.step.entries:
            match entry:
                case EpochAnnounced(partition, epoch):
                    self._reign(Reign(partition, moment, epoch, None, ()))
                case PartitionDecided(record):
                    leader = self._hosts.get(self._name(record.leader))
                    in_sync = tuple(map(self._name, record.in_sync))
                    self._reign(
                        Reign(record.partition, self._moment, record.epoch, leader, in_sync)
                    )

    def _reign(self, reign: Reign) -> None:
        """Note *reign*, unless the register has read its own earlier decision again."""
        before = self._reigns.get(reign.partition)
        if before is None or attrs.evolve(before, begin=reign.begin) != reign:
            self._reigns[reign.partition] = reign
            self.reigns.append(reign)

    def _lead(self, event: StepEvent[steps.E11Leading]) -> None:
        key = self._hosts[event.host], event.step.partition
        self._end_lead(key, self._moment)
        self._open_leads[key] = len(self.leads)
        self.leads.append(Lead(*key, event.step.epoch, self._moment, None))

    def _leave(self, event: StepEvent[steps.E5Left]) -> None:
        self._end_lead((self._hosts[event.host], event.step.partition), self._moment)

    def _end_lead(self, key: tuple[int, int], moment: int) -> None:
        at = self._open_leads.pop(key, None)
        if at is not None:
            self.leads[at] = attrs.evolve(self.leads[at], end=moment)

    # --- logs ----------------------------------------------------------------------------

    def _append(self, event: StepEvent[steps.P2Appended]) -> None:
        self._note(event, event.step.end)

    def _replicate(self, event: StepEvent[steps.P3Replicated]) -> None:
        self._note(event, event.step.end)

    def _mark(self, event: StepEvent[MarkStep]) -> None:
        self._note(event, event.step.log_end, event.step.highwater)

    def _flush(self, event: StepEvent[steps.D1Flushed]) -> None:
        self._note(event, event.step.log_end)

    def _checkpoint(self, event: StepEvent[steps.D3Noted]) -> None:
        self._note(event, event.step.log_end, event.step.highwater)

    def _truncate(self, event: StepEvent[steps.E13Truncated]) -> None:
        self._note(event, event.step.end, event.step.highwater)

    def _restart(self, event: StepEvent[steps.E14Restarted]) -> None:
        self._note(event, event.step.begin, event.step.begin)

    def _note(self, event: Event, log_end: int, highwater: int | None = None) -> None:
        moment = self._moment
        log = self._names.log(event)
        if log is None:
            return
        marks = self.marks[*log, self._hosts[event.host]]
        before = marks[-1] if marks else LogEndMark(moment, None, None)
        mark = LogEndMark(moment, log_end, before.highwater if highwater is None else highwater)
        if (mark.log_end, mark.highwater) != (before.log_end, before.highwater):
            marks.append(mark)
