"""One stream of a relay partition, as one relay holds it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octopi.identifiers import BrokerId, Offset, TopicId
from octopi.limits import RECORDS_PER_PRODUCE_MAX
from octopi.record import Run, scan
from octopi.relay.buffer import BufferBounds, RelayBuffer, RelayTransaction, StreamPoint
from octopi.relay.digest import first_digest
from octopi.relay.memory import RelayMemory
from octopi.relay.message_ids import MessageId
from octopi.relay.relay_set import RelaySet
from octopi.relay.written import WrittenMarks
from octopi.replication.producer_sequences import ProducerSequences


def one_run(records: bytes) -> Run | None:
    """The records of a transaction: valid, of version 2, and of one producer in sequence; None:
    they are something else."""
    found = scan(records, RECORDS_PER_PRODUCE_MAX)
    if found.fault is not None or found.valid_bytes != len(records) or len(found.runs) != 1:
        return None
    return found.runs[0] if found.runs[0].count == found.count else None


class RelayStream:
    """One stream: its buffer, its producers, and how far it may be delivered.

    Invariants: what lies below the highwater mark never changes within a timeline; the table of
    producers is a function of the transactions.
    """

    def __init__(
        self,
        topic_id: TopicId,
        me: BrokerId,
        relay_set: RelaySet,
        bounds: BufferBounds,
        memory: RelayMemory | None = None,
    ) -> None:
        """*memory*: of all streams of the broker; None: nothing bounds them together."""
        self.topic_id = topic_id
        self.memory = memory or RelayMemory()
        self.grown_at = 0.0
        """When something was added last (monotonic, s)."""
        self._me, self._set = me, relay_set
        start = StreamPoint(Offset(0), first_digest(topic_id, relay_set.partition))
        self.buffer = RelayBuffer(start, bounds)
        self.producers = ProducerSequences()
        self.highwater = Offset(0)
        """What lies before it may be delivered here."""
        self.marks = WrittenMarks(me, relay_set)
        self.outside: dict[BrokerId, Offset] = {}
        """Receivers outside the set that wait for what lies before these offsets."""

    @property
    def quorum(self) -> int:
        """How many members a quorum of the set has."""
        return self._set.quorum

    @property
    def held_bytes(self) -> int:
        """The records that are kept."""
        return self.buffer.size_bytes

    @property
    def uncommitted_bytes(self) -> int:
        """What may not be delivered yet."""
        return self.buffer.end.end - self.highwater

    def append(
        self, message: MessageId, receiver: BrokerId, records: bytes, run: Run, now: float
    ) -> RelayTransaction:
        """Append a transaction."""
        transaction = self.buffer.append(message, receiver, records, now)
        self._grew(len(records), now)
        self._note(transaction, run)
        self.marks.reached(self.buffer)
        return transaction

    def _grew(self, size_bytes: int, now: float) -> None:
        self.memory.grew(size_bytes)
        self.grown_at = now

    def leave_out(self, wanted_bytes: int, floor_bytes: int) -> int:
        """Remove the oldest transactions that were delivered, until that makes *wanted_bytes* or
        the rest would be less than *floor_bytes*; return how many bytes that made."""
        before = self.buffer.size_bytes
        while before - self.buffer.size_bytes < wanted_bytes:
            first = self.buffer.first
            if first is None or first.end > self.highwater:
                break
            if self.buffer.end.end - first.end < floor_bytes:
                break
            self.buffer.drop_first()
        return before - self.buffer.size_bytes

    def _note(self, transaction: RelayTransaction, run: Run | None) -> None:
        if run is not None:
            self.producers.record(run, transaction.offset)
        if transaction.receiver not in self._set:
            self.outside[transaction.receiver] = transaction.end

    def advance(self, now: float) -> bool:
        """Move the highwater mark as far as a quorum has written; return whether it moved."""
        committed = self.marks.committed()
        moved = committed is not None and committed > self.highwater
        if moved and committed is not None:
            self.highwater = committed
            self.outside = {one: end for one, end in self.outside.items() if end > committed}
        self.buffer.trim(self.highwater, now)
        return moved

    def shed(self) -> bool:
        """Keep the buffer within its size if this relay has not heard in time that a quorum has
        what is there; return whether something was removed that was not delivered.

        A quorum has it: the sequencer has no more than one buffer of this stream wait.
        """
        start = self.buffer.start.end
        while len(self.buffer) > 1 and self.buffer.size_bytes > self.buffer.bounds.size_bytes:
            self.buffer.drop_first()
        if start == self.buffer.start.end or self.highwater >= self.buffer.start.end:
            return False
        self.highwater = self.buffer.start.end
        return True

    def replace(
        self,
        point: StreamPoint,
        transactions: Iterable[RelayTransaction],
        producers: Iterable[Any] | None,
        now: float,
    ) -> bool:
        """Have *transactions* behind *point*, in place of what is there; return whether something
        before *point* is missing that was not delivered.

        *producers*: the table of producers before *point*, if the buffer has no such place.
        """
        if self.buffer.digest_at(point.end) == point.digest:
            if point.end < self.buffer.end.end:
                self.buffer.cut(point.end)
                self.producers.forget(point.end)
        else:
            self.buffer = RelayBuffer(point, self.buffer.bounds)
            self.producers = ProducerSequences.load(list(producers or ()))
        for one in transactions:
            self.buffer.put(one, now)
            self._grew(len(one.records), now)
            self._note(one, one_run(one.records))
        self.marks.replaced(point.end, self.buffer)
        is_gap = self.highwater < self.buffer.start.end
        self.highwater = max(self.highwater, self.buffer.start.end)
        assert self.highwater <= self.buffer.end.end
        return is_gap

    def begin_epoch(self, relay_set: RelaySet, *, is_same_timeline: bool) -> None:
        """Forget what members wrote in the last epoch; *relay_set* are those of this one."""
        self._set = relay_set
        self.marks = WrittenMarks(self._me, self._set)
        if not is_same_timeline:
            self.highwater = Offset(0)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        self.buffer.check_invariants()
        self.producers.check_invariants()
        assert self.buffer.start.end <= self.highwater <= self.buffer.end.end
