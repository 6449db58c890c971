"""The leader of one log: what is appended, what is committed, who is answered.

Pure: calls are events, results are lists of effects (`octopi.replication.effects`) that
the caller performs in order.  With one replica, a record is committed when the leader
has it: in the page cache, or on the device where the topic asks for that.
"""

from __future__ import annotations

from collections import deque

import attrs

from octopi.errors import Status
from octopi.identifiers import Epoch, Offset
from octopi.record import Scan
from octopi.replication.effects import (
    Answer,
    Append,
    Effect,
    FindDuplicate,
    Flush,
    PublishHighwater,
    Receipt,
    Refusal,
    Reply,
)
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.producer_sequences import Duplicate, ProducerSequences, Refused


@attrs.frozen
class _Waiting:
    """An appended batch whose sender waits for the commit."""

    end: Offset
    receipt: Receipt
    answer: Answer


class LogLeader:
    """Leads one log in one epoch.

    Invariant: ``highwater <= log_end``, and neither goes back while leading; whoever waits
    waits for an end above the highwater mark, in order of the log.
    """

    def __init__(
        self,
        epoch: Epoch,
        log_end: Offset,
        *,
        epochs: EpochHistory,
        sequences: ProducerSequences,
        flush_before_ack: bool,
    ) -> None:
        self.epoch = epoch
        self.log_end = log_end
        self.highwater = log_end
        """Committed below this: what a sole replica holds when it begins to lead."""
        self._epochs = epochs
        self._sequences = sequences
        self._flush_before_ack = flush_before_ack
        self._waiting: deque[_Waiting] = deque()

    def receive(self, records: bytes, scan: Scan, answer: Answer) -> list[Effect]:
        """A producer sent valid *records*, which *scan* describes (step 1)."""
        if not scan.runs:
            return [Append(records, scan, answer)]  # version 1: nothing to recognise them by
        run = scan.runs[0]
        if len(scan.runs) > 1 or run.count != scan.count:
            return [
                Reply(
                    answer,
                    Refusal(
                        Status.MALFORMED_RECORD,
                        "one request carries records of one producer, in sequence, and of one "
                        "version",
                    ),
                )
            ]
        verdict = self._sequences.check(run)
        if isinstance(verdict, Refused):
            return [Reply(answer, Refusal(verdict.status, verdict.reason))]
        if isinstance(verdict, Duplicate):
            return [FindDuplicate(verdict.offset, verdict.skip, answer)]
        return [Append(records, scan, answer)]

    def appended(self, base: Offset, scan: Scan, answer: Answer) -> list[Effect]:
        """The log holds the batch from *base* on (step 2)."""
        assert base == self.log_end, "batches are appended one behind the other"
        self._epochs.begin(self.epoch, base)
        for run in scan.runs:
            self._sequences.record(run, Offset(base + run.start))
        self.log_end = Offset(base + scan.valid_bytes)
        self._waiting.append(_Waiting(self.log_end, Receipt(base, self.epoch, False), answer))
        if self._flush_before_ack:
            return [Flush()]
        return self._commit(self.log_end)

    def found_duplicate(self, offset: Offset, answer: Answer) -> list[Effect]:
        """The records of a repeated request begin at *offset*; they are acknowledged as the
        first time, and not before they are committed."""
        receipt = Receipt(offset, self._epochs.epoch_at(offset), True)
        if offset < self.highwater:
            return [Reply(answer, receipt)]
        at = next(i for i, waiting in enumerate(self._waiting) if waiting.end > offset)
        self._waiting.insert(at + 1, _Waiting(self._waiting[at].end, receipt, answer))
        return []

    def flushed(self, end: Offset) -> list[Effect]:
        """The log is durable below *end*."""
        return self._commit(end) if self._flush_before_ack else []

    def stop(self, reason: str) -> list[Effect]:
        """No longer the leader, or unable to go on: who waits is refused.

        Their records may become committed later; a retry finds out.
        """
        effects: list[Effect] = [
            Reply(waiting.answer, Refusal(Status.UNCOMMITTED, reason)) for waiting in self._waiting
        ]
        self._waiting.clear()
        return effects

    def _commit(self, end: Offset) -> list[Effect]:
        """Everything below *end* is where it has to be (steps 6 and 7)."""
        end = min(end, self.log_end)
        if end <= self.highwater:
            return []
        self.highwater = end
        effects: list[Effect] = [PublishHighwater(end)]
        while self._waiting and self._waiting[0].end <= end:
            waiting = self._waiting.popleft()
            effects.append(Reply(waiting.answer, waiting.receipt))
        return effects

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.highwater <= self.log_end
        ends = [waiting.end for waiting in self._waiting]
        assert ends == sorted(ends)
        assert all(self.highwater < end <= self.log_end for end in ends)
