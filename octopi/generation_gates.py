"""Which logs of a topic may be read now, if the topic got other partitions
(`octopi.coordination.generations`).

`GenerationGates` decides it for a consumer, and `octopi.clients.consuming.generation_follower`
performs.  A member of a durable subscription, whose other members read other logs, asks
`range_at` (`octopi.clients.subscribing.log_gates`).

Each generation of a topic has a stretch of each log of its list: from where the log was sealed for
it to where it was sealed for the next one.  A key's messages are in one stretch of each generation,
and they are in order if the stretches are handed out one after the other.  So a stretch has
*gates*: the stretches of the generation before that may have keys of its own.  It is begun when
those are passed: all that lies before their sealed ends was handed out, and their own gates are
passed (a stretch may be empty).

A key chooses by ``crc32(key) % count``.  With *a* partitions before and *b* now, a key of index *i*
had an index *j* with ``i % gcd(a, b) == j % gcd(a, b)``.  So after doubling only place p gates the
places p and p + a, after a move a place gates itself, and if the counts have no common divisor all
places gate all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Protocol

import attrs

from octopi.identifiers import Offset, PartitionId


class NumberedList(Protocol):
    """A generation, such as `octopi.wire.common.GenerationInfo`."""

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def partitions(self) -> Sequence[int]:
        """A key chooses one by its index in here."""

    @property
    def sealed(self) -> Sequence[int]:
        """Where each log of them ended; empty: it is in force."""


def gates_of(index: int, count: int, count_before: int) -> list[int]:
    """The indexes in a list of *count_before* partitions that keys can have had which have *index*
    in the next one, of *count* partitions."""
    step = gcd(count, count_before)
    return list(range(index % step, count_before, step))


@attrs.frozen(eq=False)
class LogStretch:
    """The messages of one generation in one log."""

    partition: PartitionId
    end: Offset | None
    """The sealed end; None: the generation is in force."""
    gates: tuple[LogStretch, ...] = ()
    """What has to be passed before."""


def stretches_of(generations: Sequence[NumberedList]) -> dict[PartitionId, list[LogStretch]]:
    """The stretches of each log, the oldest first."""
    stretches: dict[PartitionId, list[LogStretch]] = {}
    before: list[LogStretch] = []
    for one in generations:
        now: list[LogStretch] = []
        for index, number in enumerate(one.partitions):
            partition = PartitionId(number)
            end = Offset(one.sealed[index]) if one.sealed else None
            found = gates_of(index, len(one.partitions), len(before)) if before else []
            now.append(LogStretch(partition, end, tuple(before[at] for at in found)))
            stretches.setdefault(partition, []).append(now[-1])
        before = now
    return stretches


def next_stretch(stretches: Sequence[LogStretch], reached: Offset) -> LogStretch:
    """Of the stretches of a log, the one with the next message when all below *reached* was handed
    out; the last one if there is none."""
    return next((one for one in stretches if one.end is None or one.end > reached), stretches[-1])


def all_partitions(generations: Sequence[NumberedList]) -> list[PartitionId]:
    """The partitions that have logs of a topic, those of its first list first."""
    numbers = [number for one in generations for number in one.partitions]
    return [PartitionId(one) for one in dict.fromkeys(numbers)]


def first_index(generations: Sequence[NumberedList], partition: PartitionId) -> int:
    """The index in the first list of the log whose keys *partition* got at first; the lowest if
    there are several."""
    stretch = stretches_of(generations)[partition][0]
    while stretch.gates:
        stretch = stretch.gates[0]
    return list(generations[0].partitions).index(stretch.partition)


@attrs.frozen
class LogRange:
    """What may be read of a log now."""

    partition: PartitionId
    end: Offset | None
    """None: without end."""


@attrs.frozen
class GatedRange:
    """What is to be read next of a log, and when it may be."""

    end: Offset | None
    """Up to where; None: without end."""
    is_over: bool
    """Whether nothing comes any more."""
    before: Mapping[PartitionId, Offset]
    """What has to be processed before: of each of these logs all below the offset."""


def range_at(
    generations: Sequence[NumberedList], partition: PartitionId, reached: Offset
) -> GatedRange:
    """What is to be read of a log of which all below *reached* was processed."""
    stretch = next_stretch(stretches_of(generations)[partition], reached)
    before: dict[PartitionId, Offset] = {}
    waiting, seen = list(stretch.gates), set(stretch.gates)
    while waiting:
        gate = waiting.pop()
        assert gate.end is not None, "what comes before another one is sealed"
        before[gate.partition] = max(gate.end, before.get(gate.partition, gate.end))
        waiting += [one for one in gate.gates if one not in seen]
        seen.update(gate.gates)
    is_over = stretch.end is not None and stretch.end <= reached
    return GatedRange(stretch.end, is_over, before)


class GenerationGates:
    """What was handed out of a topic's logs, and what may be read next.

    Invariant: what is read of a log, and was read, lies in stretches whose gates were passed.
    """

    def __init__(
        self,
        generations: Sequence[NumberedList],
        begin: Mapping[PartitionId, Offset],
        *,
        ends: Mapping[PartitionId, Offset] | None = None,
        partitions: Iterable[PartitionId] | None = None,
    ) -> None:
        """*generations*: those that are or were in force, the oldest first.  *begin*: where reading
        begins; a log that isn't named, or that is new later, is read from its beginning.  *ends*:
        nothing is read behind these offsets, and nothing of other logs; None: read without end.
        *partitions*: read only these; None: all."""
        self._reached = dict(begin)
        """Of each log, what lies below was handed out, or is not wanted."""
        self._ends = None if ends is None else dict(ends)
        self._chosen = None if partitions is None else frozenset(partitions)
        self._stretches: dict[PartitionId, list[LogStretch]] = {}
        """Those of the logs to read, the oldest first."""
        self._passed: set[LogStretch] = set()
        """Some that are passed."""
        self._open: dict[PartitionId, int] = {}
        """The logs that are read now, and the generation that was the newest when that began.  What
        is of a later one isn't read: brokers end the reading before it."""
        self._over: set[PartitionId] = set()
        """The logs of which nothing more is wanted."""
        self.newest = 0
        """The number of the newest generation that is known."""
        self.grew(generations)

    def grew(self, generations: Sequence[NumberedList]) -> None:
        """The topic has these generations now."""
        self.newest = generations[-1].number
        self._passed = set()
        self._stretches = {
            partition: stretches
            for partition, stretches in stretches_of(generations).items()
            if self._chosen is None or partition in self._chosen
        }
        for partition in self._stretches:
            self._reached.setdefault(partition, Offset(0))
            last = self._last_end(partition)
            is_sealed = self._stretches[partition][-1].end is not None
            was_wanted = self._ends is None or partition in self._ends
            is_reached = last is not None and last <= self._reached[partition]
            if is_reached and (is_sealed or not was_wanted) and partition not in self._open:
                self._over.add(partition)

    def begin(self) -> list[LogRange]:
        """What may be read from now on and wasn't yet: call `ended` when it was handed out."""
        found: list[LogRange] = []
        for partition in self._stretches:
            if partition in self._open or partition in self._over:
                continue
            reached, last = self._reached[partition], self._last_end(partition)
            stretch = self._next(partition)
            has_nothing = last is not None and last <= reached  # a broker checks its anchor
            if has_nothing or all(map(self._is_passed, stretch.gates)):
                self._open[partition] = self.newest
                found.append(LogRange(partition, self._limited(partition, stretch.end)))
        return found

    def ended(self, partition: PartitionId, offset: Offset) -> None:
        """All that was read of a log was handed out: what lies below *offset*."""
        self._open.pop(partition, None)
        self._reached[partition] = offset
        last = self._last_end(partition)
        if last is not None and last <= offset:
            self._over.add(partition)

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is wanted of any log."""
        return len(self._over) == len(self._stretches)

    @property
    def partitions(self) -> list[PartitionId]:
        """All logs that are read, were read, or will be."""
        return list(self._stretches)

    def waiting_bytes(self, partition: PartitionId) -> int:
        """The size of what is known to wait in a log that isn't read now."""
        last = self._last_end(partition)
        return 0 if last is None else max(0, last - self._reached[partition])

    def _next(self, partition: PartitionId) -> LogStretch:
        """The stretch with the next message of a log."""
        return next_stretch(self._stretches[partition], self._reached[partition])

    def _is_passed(self, stretch: LogStretch) -> bool:
        if stretch in self._passed:
            return True
        if self._is_handed_out(stretch) and all(map(self._is_passed, stretch.gates)):
            self._passed.add(stretch)
            return True
        return False

    def _is_handed_out(self, stretch: LogStretch) -> bool:
        if stretch.partition not in self._stretches:
            return True  # the program doesn't read it
        limited = self._limited(stretch.partition, stretch.end)
        return limited is not None and self._reached[stretch.partition] >= limited

    def _last_end(self, partition: PartitionId) -> Offset | None:
        return self._limited(partition, self._stretches[partition][-1].end)

    def _limited(self, partition: PartitionId, end: Offset | None) -> Offset | None:
        if self._ends is None:
            return end
        limit = self._ends.get(partition, Offset(0))
        return limit if end is None else min(end, limit)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self._over.isdisjoint(self._open)
        for partition, known in self._open.items():
            stretch = self._next(partition)
            last = self._last_end(partition)
            if known == self.newest and (last is None or last > self._reached[partition]):
                assert all(map(self._is_passed, stretch.gates))
