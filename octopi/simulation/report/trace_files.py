"""Reads the files that nodes write with ``--trace`` as one recording, to be shown like a simulated
run.

Each file is a host, each process that wrote to it one life of that host.  The lines of a host stay
in their order.  The hosts' lines are merged by time, but nothing comes before its cause: clocks of
machines differ, so a message is taken to arrive when it was sent, if it seems to have arrived
sooner.

The two ends of a link are found by the checksums of the first message of each direction, which
nodes never repeat.  A link whose other end is in no file, such as a client's, is one to a host with
the name of its peer.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from octopi.simulation.kernel.world import Event, StepEvent
from octopi.simulation.report.recording import Came, Happening, Recording, Sent

LINE_BYTES_MAX: Final = 1 << 20
"""No line of a trace is longer."""

_Line = dict[str, Any]
_End = tuple[str, int, int]
"""One end of a link: host, life, and the number of the link there."""


@attrs.frozen
class StepInFile:
    """A step as it stands in a file: an `octopi.environment.TraceEvent` whose facts are its
    attributes, too, as far as they are there.  Facts that are no numbers are texts."""

    text: str
    facts: Mapping[str, Any]

    def values(self) -> tuple[Any, ...]:
        """The values of the facts."""
        return tuple(self.facts.values())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        return self.facts.get(name)


@attrs.define
class _Host:
    """The lines of one file."""

    name: str
    lines: deque[tuple[int, _Line]] = attrs.field(factory=deque)
    """Each with the life that wrote it."""
    kind: str = "broker"


@attrs.define
class _Link:
    """One end of a link."""

    peer: str
    path: str
    sums: dict[str, str] = attrs.field(factory=dict)
    """The checksum of the first message, by ``sent`` and ``came``."""


def read_traces(paths: Sequence[Path], last: int) -> Recording:
    """The newest *last* happenings of the hosts whose files are *paths*.

    Raises:
      ValueError: if a file is no trace, or two have the same name.
      OSError: if one can't be read.
    """
    hosts: dict[str, _Host] = {}
    for path in paths:
        if path.stem in hosts:
            raise ValueError(f"{path}: another file is named {path.stem}, too")
        hosts[path.stem] = _read(path)
    happenings = deque(_Merged(hosts).happenings(), maxlen=last)
    shown = {one.host for one in happenings} | {
        one.target for one in happenings if isinstance(one, Sent)
    }
    lanes = [(one.name, one.kind) for one in hosts.values()]
    lanes += [(one, "client") for one in sorted(shown - hosts.keys())]
    title = f"What {len(hosts)} node{'s' if len(hosts) != 1 else ''} did"
    return Recording(title, tuple(happenings), tuple(lanes), is_simulated=False)


def _read(path: Path) -> _Host:
    host, life = _Host(path.stem), 0
    cut_at = 0
    """The number of a line that is none; 0: there is none.  A process that was killed while it
    wrote leaves one, and the next one begins behind it."""
    with path.open("rb") as file:
        for number, text in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
            if not text.endswith(b"\n"):
                break  # the node writes it just now, or was killed while it did
            line = _parsed(text)
            if cut_at and (line is None or "start" not in line):
                break
            cut_at = number if line is None else 0
            if line is None:
                continue
            if "start" in line:
                life += 1
                host.kind = str(line["start"])
            host.lines.append((life, line))
    if cut_at:
        raise ValueError(f"{path}: line {cut_at} is none of a node's trace (see --trace)")
    return host


def _parsed(text: bytes) -> _Line | None:
    """The line *text*; None: it is none."""
    try:
        line: _Line = json.loads(text)
        float(line["at"]), int(line.get("link", 0)), line.get("facts", {}).items()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return line


def _links(hosts: Iterable[_Host]) -> dict[_End, _Link]:
    links: dict[_End, _Link] = {}
    for host in hosts:
        for life, line in host.lines:
            if (number := line.get("link")) is None:
                continue
            peer = line.get("to") or line.get("from")
            if peer is not None:
                links[host.name, life, number] = _Link(str(peer), str(line.get("path", "")))
            elif "sum" in line and (end := links.get((host.name, life, number))) is not None:
                end.sums["sent" if "sent" in line else "came"] = str(line["sum"])
    return links


class _Merged:
    """The lines of all hosts as happenings, in an order in which nothing precedes its cause."""

    def __init__(self, hosts: Mapping[str, _Host]) -> None:
        self._hosts = hosts
        self._links = _links(hosts.values())
        self._other = _other_ends(self._links)
        self._under_way: dict[_End, deque[Sent]] = defaultdict(deque)
        """What was sent and has not arrived yet, by the end at which it will."""
        self._event_count = self._message_count = 0
        self._asked: dict[tuple[_End, int], tuple[str, int | None]] = {}
        """The logs that requests are about, by link (the lesser of its ends) and request number."""

    def happenings(self) -> Iterator[Happening]:
        """All of them."""
        zero = min(
            (host.lines[0][1]["at"] for host in self._hosts.values() if host.lines), default=0
        )
        now = 0.0
        while waiting := [host for host in self._hosts.values() if host.lines]:
            waiting.sort(key=lambda host: float(host.lines[0][1]["at"]))
            # A host whose next line is the arrival of a message that wasn't sent yet lets others go
            # first.  Were all of them to wait, a file would lack its end: then the first one goes.
            chosen = next((host for host in waiting if not self._waits(host)), waiting[0])
            life, line = chosen.lines.popleft()
            now = max(now, line["at"] - zero)
            yield from self._of(chosen.name, life, line, now)

    def _waits(self, host: _Host) -> bool:
        life, line = host.lines[0]
        if "came" not in line:
            return False
        end = host.name, life, int(line["link"])
        return end in self._other and not self._under_way[end]

    def _of(self, host: str, life: int, line: _Line, now: float) -> Iterator[Happening]:
        if "step" in line:
            step = StepInFile(str(line["step"]), line.get("facts", {}))
            yield StepEvent(self._number(), now, host, life, step.text, step)
        elif "start" in line:
            yield Event(self._number(), now, host, life, "boot", {"listen": line.get("listen", "")})
        elif "sent" in line or "came" in line:
            yield from self._message(host, life, line, now)

    def _number(self) -> int:
        self._event_count += 1
        return self._event_count - 1

    def _message(self, host: str, life: int, line: _Line, now: float) -> Iterator[Happening]:
        end = host, life, int(line["link"])
        other = self._other.get(end)
        peer = self._links[end].peer if end in self._links else "?"
        if "came" in line and other is not None and self._under_way[end]:
            yield Came(self._under_way[end].popleft().number, now, host, life)
            return
        to, ours = (other[0] if other is not None else peer), (host, life)
        sender, target = (ours, to) if "sent" in line else ((to, 1), host)
        facts = line.get("facts", {})
        topic, partition = self._log(end, facts)
        sent = Sent(
            self._message_count,
            now,
            *sender,
            target,
            str(line.get("sent") or line.get("came")),
            topic,
            partition,
            int(line.get("bytes", 0)),
            facts,
        )
        self._message_count += 1
        yield sent
        if "came" in line:
            yield Came(sent.number, now, host, life)
        elif other is not None:
            self._under_way[other].append(sent)
        else:
            yield Came(sent.number, now, peer, 1)

    def _log(self, end: _End, facts: Mapping[str, Any]) -> tuple[str, int | None]:
        """The log that a message is about; for an answer, the log of its request."""
        request, partition = facts.get("request"), facts.get("partition")
        topic = str(facts.get("topic") or facts.get("topic_id") or "")
        if not isinstance(request, int):
            return topic, partition
        link = min(end, self._other.get(end, end))
        if partition is not None:
            self._asked[link, request] = topic, partition
        return self._asked.get((link, request), (topic, partition))


def _other_ends(links: Mapping[_End, _Link]) -> dict[_End, _End]:
    """The other end of each end whose other end is in one of the files."""
    ends: dict[tuple[str, str], list[_End]] = defaultdict(list)
    for end, link in links.items():
        if {"sent", "came"} <= link.sums.keys():
            ends[link.sums["sent"], link.sums["came"]].append(end)
    others: dict[_End, _End] = {}
    for (sent, came), found in ends.items():
        theirs = ends.get((came, sent), [])
        if len(found) == len(theirs) == 1:
            others[found[0]] = theirs[0]
    return others
