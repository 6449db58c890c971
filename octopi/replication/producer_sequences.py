"""Which records of which producer a log holds: exact detection of duplicates and gaps.

A producer counts its records in a log from 0, so what comes next is known and anything
else is a repetition or a gap.  The table is a function of the log: it is rebuilt by
scanning it, from any checkpoint on, and every replica arrives at the same one.

Memory is bounded: the producers that wrote last are remembered, and of each the batches
that can still be unanswered.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import attrs

from octopi.errors import Status
from octopi.identifiers import Offset, ProducerEpoch, ProducerId, Sequence
from octopi.limits import PRODUCERS_PER_LOG_MAX, RECENT_BATCHES_COUNT
from octopi.record import Run


@attrs.frozen
class Fresh:
    """The records are the producer's next."""


@attrs.frozen
class Duplicate:
    """The log has these records already."""

    offset: Offset
    """Where the first of them is, after `skip` records from here on."""
    skip: int


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
    """(first sequence, offset) of the newest batches, oldest first.  The records of a batch
    lie one behind the other in the log, up to the next batch's first sequence."""


class ProducerSequences:
    """The producers of one log.

    Invariant: for each producer, first sequences and offsets of its batches both grow, and
    all lie below its next sequence.
    """

    __slots__ = ("_batches_max", "_producers", "_producers_max")

    def __init__(
        self,
        producers_max: int = PRODUCERS_PER_LOG_MAX,
        batches_max: int = RECENT_BATCHES_COUNT,
    ) -> None:
        self._producers_max = producers_max
        self._batches_max = batches_max
        self._producers: dict[ProducerId, _Producer] = {}
        """The one that wrote last at the end."""

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, run: Run) -> Verdict:
        """Judge records that ask to be appended; changes nothing."""
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
        """Note that the records of *run* were appended at *offset* (also when scanning a
        log, whose records are right by definition)."""
        producer = self._producers.pop(run.producer_id, None)
        if producer is None or producer.epoch != run.producer_epoch:
            producer = _Producer(run.producer_epoch, 0, deque(maxlen=self._batches_max))
        producer.batches.append((run.first_sequence, offset))
        producer.next_sequence = run.first_sequence + run.count
        self._producers[run.producer_id] = producer
        if len(self._producers) > self._producers_max:
            del self._producers[next(iter(self._producers))]

    def next_sequence(self, producer: ProducerId) -> Sequence:
        """What *producer* has to send next; 0 if it isn't known."""
        known = self._producers.get(producer)
        return Sequence(known.next_sequence if known else 0)

    def before(self, offset: Offset) -> ProducerSequences:
        """What this was when the log ended at *offset*, as far as it is still known."""
        table = ProducerSequences(self._producers_max, self._batches_max)
        for producer_id, known in self._producers.items():
            batches = list(known.batches)
            count = sum(at < offset for _, at in batches)
            if count:
                following = batches[count][0] if count < len(batches) else known.next_sequence
                earlier = deque(batches[:count], maxlen=self._batches_max)
                table._producers[producer_id] = _Producer(known.epoch, following, earlier)
        return table

    def dump(self) -> list[Any]:
        """Plain values for a checkpoint file, longest silent producer first."""
        return [
            [
                producer_id,
                known.epoch,
                known.next_sequence,
                [list(batch) for batch in known.batches],
            ]
            for producer_id, known in self._producers.items()
        ]

    @classmethod
    def load(cls, entries: list[Any]) -> ProducerSequences:
        """From what `dump` returned."""
        table = cls()
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
        """Assert what the class promises."""
        assert len(self._producers) <= self._producers_max
        for known in self._producers.values():
            batches = list(known.batches)
            assert batches == sorted(batches)
            assert len({first for first, _ in batches}) == len(batches)
            assert all(first < known.next_sequence for first, _ in batches)
