"""What clients were promised and what they saw, held against what the cluster has in the end.

Small on purpose, and independent: nothing is shared with the simulator's checker, nor with
the library.  Clients write into a `Ledger` as things happen; `Ledger.judge` says what must
not be, a line for each fault.  Loss is a fault unless a run says beforehand that these very
messages may be lost (`Ledger.may_be_lost`); and then a consumer that had seen them has to be
told (`Ledger.told`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final, NamedTuple, TypeAlias

import attrs

SHOWN_MAX: Final = 5
"""Examples that a fault names."""


class LogId(NamedTuple):
    """One log.  *generation* counts topics of one name that were deleted and made again."""

    topic: str
    partition: int
    generation: int = 0

    def __str__(self) -> str:
        again = f" (made again, {self.generation})" if self.generation else ""
        return f"{self.topic}/{self.partition}{again}"


class StoredValue(NamedTuple):
    """A message as it lies in a log."""

    offset: int
    next_offset: int
    value: bytes


Content: TypeAlias = list[StoredValue]


@attrs.define
class _SentValue:
    log: LogId
    producer: str
    number: int
    acknowledged: StoredValue | None = None
    acknowledged_at: float = 0.0
    failed: bool = False
    """The client said that it is certainly not stored."""


@attrs.define
class _LogReading:
    """What one consumer saw of one log since it last began, or was told of a loss."""

    next: int
    seen: Content = attrs.field(factory=list)
    """Without what it was told to be gone and saw replaced."""
    forks: list[int] = attrs.field(factory=list)
    """Where it was told to go on, and has not yet: what came before may still be on its way."""

    def go_on(self, offset: int) -> None:
        """A message at *offset* came that is not next: if it was told so, forget what it saw
        behind that."""
        if offset in self.forks:
            self.forks.remove(offset)
            while self.seen and self.seen[-1].next_offset > offset:
                self.seen.pop()
            self.next = offset


class Ledger:
    """Everything that clients noted in one run."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        """Faults that were seen on the way: what a later look could not show."""
        self.counts: Counter[str] = Counter()
        self.acknowledged_in: Counter[LogId] = Counter()
        """Messages, of each log."""
        self._sent: dict[bytes, _SentValue] = {}
        self._readings: dict[tuple[str, LogId], _LogReading] = {}
        self._may_be_lost: set[bytes] = set()
        self._lossy: set[LogId] = set()

    # --- producers ---------------------------------------------------------------------

    def sent(self, producer: str, number: int, log: LogId, value: bytes) -> None:
        """*producer* sends its message *number*; *value* is like no other."""
        assert value not in self._sent, f"{value!r} was sent before"
        self._sent[value] = _SentValue(log, producer, number)
        self.counts["sent"] += 1

    def acknowledged(
        self, value: bytes, log: LogId, offset: int, next_offset: int, now: float
    ) -> None:
        """The producer was told that it is stored, and where."""
        one = self._sent[value]
        if log != one.log:
            self.faults.append(f"{_short(value)} was sent to {one.log}, acknowledged in {log}")
        one.acknowledged = StoredValue(offset, next_offset, value)
        one.acknowledged_at = now
        self.counts["acknowledged"] += 1
        self.acknowledged_in[log] += 1

    def failed(self, value: bytes) -> None:
        """The producer was told that it is certainly not stored."""
        self._sent[value].failed = True
        self.counts["failed"] += 1

    def unknown(self) -> None:
        """The producer was told that it may be stored or not."""
        self.counts["unknown"] += 1

    # --- consumers ---------------------------------------------------------------------

    def begins(self, consumer: str, log: LogId, offset: int) -> None:
        """*consumer* reads *log* from *offset* on."""
        reading = self._readings.get((consumer, log))
        if reading is None:
            self._readings[consumer, log] = _LogReading(offset)
            return
        if offset != reading.next:
            reading.go_on(offset)
        if offset != reading.next:
            self.faults.append(
                f"{consumer} resumes {log} at {offset}, but had read up to {reading.next}"
            )
            reading.next = offset

    def delivered(
        self, consumer: str, log: LogId, offset: int, next_offset: int, value: bytes
    ) -> None:
        """*consumer* was given a message."""
        reading = self._readings[consumer, log]
        if offset != reading.next:
            reading.go_on(offset)
        if offset != reading.next:
            what = "a gap" if offset > reading.next else "a repeat"
            self.faults.append(
                f"{consumer} saw {what} in {log}: was at {reading.next}, got {offset}"
            )
        reading.seen.append(StoredValue(offset, next_offset, value))
        reading.next = next_offset
        self.counts["delivered"] += 1

    def told(self, consumer: str, log: LogId, offset: int) -> None:
        """*consumer* was told that *log* has another history behind *offset* than it read."""
        reading = self._readings[consumer, log]
        if log not in self._lossy:
            self.faults.append(f"{consumer} was told at {offset} that {log} lost what it may not")
        reading.forks.append(offset)
        self.counts["told of loss"] += 1

    def position(self, consumer: str, log: LogId) -> int:
        """Up to where *consumer* has read *log*."""
        reading = self._readings.get((consumer, log))
        return 0 if reading is None else reading.next

    # --- what may be expected ----------------------------------------------------------

    def may_be_lost(self, logs: set[LogId], since: float) -> None:
        """All copies of *logs* lost what they had not flushed: messages that were acknowledged
        at time *since* or later, and before now, may be gone."""
        self._lossy |= logs
        for value, one in self._sent.items():
            if one.log in logs and one.acknowledged is not None and one.acknowledged_at >= since:
                self._may_be_lost.add(value)

    # --- in the end --------------------------------------------------------------------

    def judge(self, final: dict[LogId, Content]) -> list[str]:
        """What must not be, given what the logs hold in the *final* state."""
        faults = list(self.faults)
        for log, content in final.items():
            faults += self._judge_log(log, content)
        for (consumer, log), reading in self._readings.items():
            if log in final:
                faults += _judge_reading(consumer, log, reading, final[log])
        return faults

    def _judge_log(self, log: LogId, content: Content) -> list[str]:
        faults = _gaps(log, content)
        stored = {one.value: one for one in content}
        twice = [
            value for value, count in Counter(one.value for one in content).items() if count > 1
        ]
        faults += _told(f"{log}: stored more than once", twice)
        foreign = [one for one in stored if one not in self._sent or self._sent[one].log != log]
        faults += _told(f"{log}: holds what was not sent to it", foreign)
        lost, moved, undead = [], [], []
        for value, sent in self._sent.items():
            if sent.log != log:
                continue
            there = stored.get(value)
            if sent.failed and there is not None:
                undead.append(value)
            if sent.acknowledged is not None and there != sent.acknowledged:
                if there is not None:
                    moved.append(value)
                elif value not in self._may_be_lost:
                    lost.append(value)
        faults += _told(f"{log}: acknowledged, and not there", lost)
        faults += _told(f"{log}: not at the offset that was acknowledged", moved)
        faults += _told(f"{log}: stored, although its producer was told that it is not", undead)
        last: defaultdict[str, int] = defaultdict(int)
        disordered = []
        for one in content:
            sent_one = self._sent.get(one.value)
            if sent_one is not None:
                if sent_one.number < last[sent_one.producer]:
                    disordered.append(one.value)
                last[sent_one.producer] = sent_one.number
        return faults + _told(f"{log}: behind a later message of its producer", disordered)


def judge_replica(
    log: LogId, broker: str, records: Content, content: Content, *, whole: bool = True
) -> list[str]:
    """What is wrong with the *records* in the files of *broker*, if clients read *content*;
    *whole*: it has to hold all of that."""
    expected = content if whole else content[: len(records)]
    if records[: len(expected)] == expected:
        return []
    at = next(
        (n for n, (a, b) in enumerate(zip(records, expected, strict=False)) if a != b), len(records)
    )
    return [
        f"{log}: the files of {broker} hold {len(records)} records, clients read {len(content)}; "
        f"they differ from number {at} on"
    ]


def _judge_reading(consumer: str, log: LogId, reading: _LogReading, content: Content) -> list[str]:
    stored = set(content)
    told = min(reading.forks, default=None)
    vanished = [
        one.value
        for one in reading.seen
        if one not in stored and (told is None or one.next_offset <= told)
    ]
    faults = _told(f"{consumer} was given of {log} what is not there, and was not told", vanished)
    end = content[-1].next_offset if content else 0
    if reading.next < end:
        faults.append(f"{consumer} came to {reading.next} of {log} only, which ends at {end}")
    return faults


def _gaps(log: LogId, content: Content) -> list[str]:
    expected = 0
    for one in content:
        if one.offset != expected:
            return [f"{log}: {one.offset} follows on {expected}: a gap or an overlap"]
        expected = one.next_offset
    return []


def _told(what: str, values: list[bytes]) -> list[str]:
    if not values:
        return []
    shown = ", ".join(_short(value) for value in values[:SHOWN_MAX])
    return [f"{what}: {len(values)} messages: {shown}"]


def _short(value: bytes) -> str:
    return value[:40].rstrip(b".").decode(errors="replace")
