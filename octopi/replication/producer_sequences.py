"""Which records of which producers a log holds: exact detection of duplicates and gaps.

A producer counts its records in a log from 0, so the next sequence is known, and any other one is a
repetition or a gap.  The table is a function of the log: scanning the log, from any checkpoint on,
rebuilds it, and every replica gets the same one.

Memory is bounded: the table has the producers that wrote last, and of each the newest batches, as
many as can be unanswered.

Version 1 records have no sequence, only a request id that no other record has.  The newest
`REQUEST_IDS_PER_LOG_MAX` of these ids are remembered with their offsets, so a repetition of one of
these records is recognised, but a gap is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import lt
from typing import Any, Final

import attrs

from octopi.conditions import NO_RECORD, LastRecord
from octopi.errors import Status
from octopi.identifiers import RING_LOGS, Offset, ProducerEpoch, ProducerId, Sequence
from octopi.limits import PRODUCERS_PER_LOG_MAX, RECENT_BATCHES_COUNT, REQUEST_IDS_PER_LOG_MAX
from octopi.record import PRODUCER_ID_BYTES, Request, Run, Scan

CLOSER: Final = ProducerId(b"octopi: closed\0\0")
"""The producer of the batch that closes a log for good: nothing is appended behind that."""


SEALER: Final = b"octopi~g"
"""The ids with which leaders seal logs begin with this (`octopi.replication.generation_seals`)."""


def is_sealer(producer: ProducerId) -> bool:
    """Whether entries with this id seal a log.  No client may write with such an id."""
    return producer.startswith(SEALER)


def producer_of(name: str) -> ProducerId:
    """The producer id of all records of the internal log *name*, except fences."""
    return ProducerId(name.encode().ljust(PRODUCER_ID_BYTES, b"\0"))


_NEVER_FORGOTTEN: Final = frozenset(map(producer_of, RING_LOGS))
"""Others may crowd these producers' logs with fences, and their own sequences have to go on."""


@attrs.frozen
class Fresh:
    """The records are the producer's next."""


@attrs.frozen
class Duplicate:
    """The log has these records already."""

    offset: Offset
    """Where a record starts: the first of these records is `skip` records behind it."""
    skip: int


@attrs.frozen
class Repeated:
    """The log has these version 1 records already, in this order and without others between."""

    first: Offset
    """Where the first one starts."""
    last: Offset
    """Where the last one starts."""


@attrs.frozen
class Refused:
    """The records must not be appended."""

    status: Status
    reason: str


Verdict = Fresh | Duplicate | Refused


@attrs.define
class _Producer:
    epoch: ProducerEpoch
    next_sequence: int
    batches: deque[tuple[int, Offset]]
    """(first sequence, offset) of the newest batches, oldest first.  The records of a batch follow
    one another in the log; the next batch begins with the next sequence."""


class ProducerSequences:
    """The producers of one log.

    Invariant: for each producer, first sequences and offsets of its batches both grow, and
    all lie below its next sequence.
    """

    __slots__ = ("_batches_max", "_is_checked", "_producers", "_producers_max", "_requests")

    def __init__(
        self,
        producers_max: int = PRODUCERS_PER_LOG_MAX,
        batches_max: int = RECENT_BATCHES_COUNT,
    ) -> None:
        self._producers_max = producers_max
        self._batches_max = batches_max
        self._producers: dict[ProducerId, _Producer] = {}
        """The producer that wrote last is at the end."""
        self._requests: dict[bytes, Offset] = {}
        """The offsets of version 1 records by their request ids, in the order of the log."""
        self._is_checked = False
        """Whether nothing has changed since `check_invariants` found the table in order."""

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, run: Run) -> Verdict:
        """Check records that a producer wants to have appended.  Changes nothing."""
        known = self._producers.get(run.producer_id)
        if known is None or run.producer_epoch > known.epoch:
            if run.first_sequence == 0:
                return Fresh()
            if known is None:
                return Refused(
                    Status.UNKNOWN_PRODUCER,
                    f"this log doesn't know the producer, so its records can't start at "
                    f"sequence {run.first_sequence}",
                )
            return Refused(
                Status.SEQUENCE_GAP,
                f"a new producer epoch starts at sequence 0, not {run.first_sequence}",
            )
        if run.producer_epoch < known.epoch:
            return Refused(
                Status.PRODUCER_FENCED,
                f"producer epoch {run.producer_epoch} was replaced by {known.epoch}",
            )
        if run.first_sequence == known.next_sequence:
            return Fresh()
        if run.first_sequence > known.next_sequence:
            return Refused(
                Status.SEQUENCE_GAP,
                f"sequence {known.next_sequence} comes next, not {run.first_sequence}",
            )
        if run.first_sequence + run.count > known.next_sequence:
            return Refused(
                Status.SEQUENCE_GAP,
                f"sequences {run.first_sequence} to {run.first_sequence + run.count - 1} are "
                f"stored up to {known.next_sequence - 1}: repeat batches as they were sent",
            )
        for first, offset in reversed(known.batches):
            if first <= run.first_sequence:
                return Duplicate(offset, run.first_sequence - first)
        return Refused(
            Status.RECEIPT_FORGOTTEN,
            f"the records from sequence {run.first_sequence} are stored, too long ago to "
            "remember their offsets",
        )

    def record(self, run: Run, offset: Offset) -> None:
        """Note that the records of *run* lie at *offset*: they were just appended, or a scan of
        the log found them."""
        self._is_checked = False
        producer = self._producers.pop(run.producer_id, None)
        if producer is None or producer.epoch != run.producer_epoch:
            producer = _Producer(run.producer_epoch, 0, deque(maxlen=self._batches_max))
        producer.batches.append((run.first_sequence, offset))
        producer.next_sequence = run.first_sequence + run.count
        self._producers[run.producer_id] = producer
        if len(self._producers) > self._producers_max:
            oldest = next(
                one for one in self._producers if one not in _NEVER_FORGOTTEN and not is_sealer(one)
            )
            del self._producers[oldest]

    def check_requests(self, requests: list[Request]) -> Fresh | Repeated | Refused:
        """Check version 1 records that a producer wants to have appended together.  Changes
        nothing."""
        if len({one.request_id for one in requests}) < len(requests):
            return Refused(Status.MALFORMED_RECORD, "two records of a request have the same id")
        known = [(self._requests.get(one.request_id), one.position) for one in requests]
        begins = {None if offset is None else offset - position for offset, position in known}
        if begins <= {None}:
            return Fresh()
        (begin, *others) = begins
        if others or begin is None:
            count = sum(offset is not None for offset, _ in known)
            return Refused(
                Status.SEQUENCE_GAP,
                f"{count} of {len(known)} records of this request are stored, not as they are "
                "here: repeat requests as they were sent, and send what is missing by itself",
            )
        return Repeated(Offset(begin), Offset(begin + requests[-1].position))

    def note(self, scan: Scan, base: Offset) -> None:
        """Note the records of *scan*, which lie in the log from *base* on."""
        for run in scan.runs:
            self.record(run, Offset(base + run.start))
        if scan.requests:
            self._is_checked = False
            for request_id, position in scan.requests:
                self._requests.pop(request_id, None)
                self._requests[request_id] = Offset(base + position)
            # In one pass: finding the first key of a dictionary skips all removed ones.
            too_many = len(self._requests) - REQUEST_IDS_PER_LOG_MAX
            for request_id in list(islice(self._requests, max(0, too_many))):
                del self._requests[request_id]

    def last_epoch(self, producer: ProducerId) -> ProducerEpoch | None:
        """The newest epoch of *producer*; None: it isn't known."""
        known = self._producers.get(producer)
        return known.epoch if known else None

    def next_sequence(self, producer: ProducerId) -> Sequence:
        """The sequence that *producer* has to send next; 0 if it isn't known."""
        known = self._producers.get(producer)
        return Sequence(known.next_sequence if known else 0)

    def next_in_epoch(self, producer: ProducerId, epoch: ProducerEpoch) -> Sequence:
        """The sequence that *producer* has to send next in *epoch*, which is not below the epoch
        that is known."""
        known = self._producers.get(producer)
        return Sequence(known.next_sequence if known and known.epoch == epoch else 0)

    def last_record(self, producer: ProducerId) -> LastRecord:
        """The newest record of *producer* that the log holds."""
        known = self._producers.get(producer)
        return LastRecord(known.epoch, known.next_sequence - 1) if known else NO_RECORD

    def newest_record(self, producer: ProducerId) -> tuple[Offset, int] | None:
        """Where the newest record of *producer* is: the offset of a record, and how many records
        behind that; None: the log has none of it."""
        known = self._producers.get(producer)
        if known is None or not known.batches:
            return None
        first, offset = known.batches[-1]
        return offset, known.next_sequence - 1 - first

    def count(self, wanted: Callable[[ProducerId], bool]) -> int:
        """How many of the producers are *wanted*."""
        return sum(map(wanted, self._producers))

    def lacks(self, run: Run) -> bool:
        """Whether the log is known to have none of the records of *run*."""
        known = self._producers.get(run.producer_id)
        if known is None or run.producer_epoch > known.epoch:
            return run.first_sequence == 0
        return run.producer_epoch == known.epoch and run.first_sequence >= known.next_sequence

    @property
    def is_full(self) -> bool:
        """Whether the next new producer makes the table forget another one."""
        return len(self._producers) >= self._producers_max

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed: it takes no more records."""
        return CLOSER in self._producers

    def newest_batch(self, producer: ProducerId) -> tuple[ProducerEpoch, Offset] | None:
        """The epoch of *producer*, and where its newest batch lies; None if it isn't known."""
        known = self._producers.get(producer)
        return (known.epoch, known.batches[-1][1]) if known and known.batches else None

    def newest_first(self) -> Iterator[ProducerId]:
        """The producers, the one that wrote last first."""
        return reversed(self._producers)

    def before(self, offset: Offset) -> ProducerSequences:
        """The table of the log's records before *offset*, as far as it is still known."""
        table = ProducerSequences(self._producers_max, self._batches_max)
        for producer_id, known in self._producers.items():
            batches = list(known.batches)
            count = sum(at < offset for _, at in batches)
            if count:
                following = batches[count][0] if count < len(batches) else known.next_sequence
                earlier = deque(batches[:count], maxlen=self._batches_max)
                table._producers[producer_id] = _Producer(known.epoch, following, earlier)
        table._requests = {one: at for one, at in self._requests.items() if at < offset}
        return table

    def forget(self, offset: Offset) -> None:
        """Remove the records from *offset* on."""
        earlier = self.before(offset)
        self._is_checked = False
        self._producers, self._requests = earlier._producers, earlier._requests

    def dump(self) -> list[Any]:
        """Plain values for a checkpoint file; the producer that wrote last is at the end."""
        return [
            [
                producer_id,
                known.epoch,
                known.next_sequence,
                [list(batch) for batch in known.batches],
            ]
            for producer_id, known in self._producers.items()
        ]

    def dump_requests(self) -> list[Any]:
        """The request ids of version 1 records with their offsets, oldest first."""
        return [list(one) for one in self._requests.items()]

    @classmethod
    def load(cls, entries: list[Any], requests: Iterable[Any] = ()) -> ProducerSequences:
        """The table from what `dump` and `dump_requests` have returned."""
        table = cls()
        table._requests = {request_id: Offset(offset) for request_id, offset in requests}
        for producer_id, epoch, next_sequence, batches in entries:
            table._producers[ProducerId(producer_id)] = _Producer(
                ProducerEpoch(epoch),
                next_sequence,
                deque(
                    ((first, Offset(offset)) for first, offset in batches),
                    maxlen=table._batches_max,
                ),
            )
        return table

    def check_invariants(self) -> None:
        """Assert what the class promises, if anything has changed since the last call."""
        if self._is_checked:
            return
        assert len(self._producers) <= self._producers_max
        assert len(self._requests) <= REQUEST_IDS_PER_LOG_MAX
        offsets = list(self._requests.values())
        assert offsets == sorted(offsets)
        for known in self._producers.values():
            if known.batches:
                firsts, starts = zip(*known.batches, strict=True)
                assert all(map(lt, firsts, firsts[1:]))
                assert all(map(lt, starts, starts[1:]))
                assert firsts[-1] < known.next_sequence
        self._is_checked = True
