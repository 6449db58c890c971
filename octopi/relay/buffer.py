"""The ring buffer of a stream: the newest transactions, with the digest behind each of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

import attrs

from octopi.identifiers import BrokerId, Offset
from octopi.limits import RELAY_BUFFER_AGE_S, RELAY_BUFFER_BYTES, RELAY_BUFFER_TRANSACTIONS
from octopi.relay.digest import Digest, next_digest
from octopi.relay.message_ids import MessageId, id_behind, id_sequence

_COMPACT_AT: Final = 1_024
"""Removed places at the front before the lists are made anew."""


@attrs.frozen
class StreamPoint:
    """A place in a stream at which a transaction ends, and the digest there."""

    end: Offset
    digest: Digest


@attrs.frozen
class RelayTransaction:
    """The records of one produce request: one id, one place, and never divided."""

    offset: Offset
    id: MessageId
    """The id of its first record."""
    receiver: BrokerId
    """Who gave the id and answers the producer."""
    records: bytes
    digest: Digest
    """Behind it."""

    @property
    def end(self) -> Offset:
        """Where it ends."""
        return Offset(self.offset + len(self.records))

    @property
    def point(self) -> StreamPoint:
        """Its end."""
        return StreamPoint(self.end, self.digest)


@attrs.frozen
class BufferBounds:
    """What a buffer keeps at most."""

    size_bytes: int = RELAY_BUFFER_BYTES
    count: int = RELAY_BUFFER_TRANSACTIONS
    age_s: float = RELAY_BUFFER_AGE_S


class RelayBuffer:
    """The newest transactions of a stream.

    Invariants: each transaction begins where the one before it ends; each digest follows from the
    one before it, unless memory has changed by itself.
    """

    def __init__(self, start: StreamPoint, bounds: BufferBounds) -> None:
        """*start*: where the first transaction will begin."""
        self.bounds = bounds
        self._before = start
        """The place before the first transaction that is kept."""
        self._gone = 0
        """Places at the front of the lists that hold nothing any more."""
        self._transactions: list[RelayTransaction | None] = []
        self._ends: list[Offset] = []
        self._times: list[float] = []
        self._by_node: dict[bytes, list[RelayTransaction]] = {}
        """The transactions of each millisecond and node, which are the first bytes of an id."""

    def __len__(self) -> int:
        return len(self._ends) - self._gone

    @property
    def start(self) -> StreamPoint:
        """Where the first transaction that is kept begins."""
        return self._before

    @property
    def end(self) -> StreamPoint:
        """Where the last one ends."""
        last = self._transactions[-1] if len(self) else None
        return last.point if last is not None else self._before

    @property
    def first(self) -> RelayTransaction | None:
        """The oldest transaction that is kept; None: there is none."""
        return self._transactions[self._gone] if len(self) else None

    @property
    def size_bytes(self) -> int:
        """The records that are kept (bytes)."""
        return self.end.end - self.start.end

    def append(
        self, message: MessageId, receiver: BrokerId, records: bytes, now: float
    ) -> RelayTransaction:
        """Append a transaction with that id."""
        assert records
        before = self.end
        digest = next_digest(before.digest, message, records)
        transaction = RelayTransaction(before.end, message, receiver, records, digest)
        self.put(transaction, now)
        return transaction

    def put(self, transaction: RelayTransaction, now: float) -> None:
        """Append *transaction*, which follows the last one; its digest was computed."""
        assert transaction.offset == self.end.end
        self._transactions.append(transaction)
        self._ends.append(transaction.end)
        self._times.append(now)
        self._by_node.setdefault(transaction.id[:-2], []).append(transaction)

    # --- reading -------------------------------------------------------------------------

    def digest_at(self, end: Offset) -> Digest | None:
        """The digest at *end*; None: no transaction that is kept begins or ends there."""
        if end == self._before.end:
            return self._before.digest
        index = bisect_left(self._ends, end, self._gone)
        if index == len(self._ends) or self._ends[index] != end:
            return None
        found = self._transactions[index]
        assert found is not None
        return found.digest

    def points(self, low: Offset, high: Offset) -> list[StreamPoint]:
        """All places from *low* to *high*, both included, at which transactions begin or end."""
        first = bisect_left(self._ends, low, self._gone)
        last = bisect_right(self._ends, high, self._gone)
        found = [one.point for one in self._transactions[first:last] if one is not None]
        if low <= self._before.end <= high:
            found.insert(0, self._before)
        return found

    def read(
        self,
        offset: Offset,
        end: Offset,
        size_bytes: int,
        count: int = RELAY_BUFFER_TRANSACTIONS,
    ) -> list[RelayTransaction]:
        """The transactions from *offset* to *end*: at most *count*, and as many as have
        *size_bytes* together, but at least one if there is one.  Empty as well: none begins at
        *offset*."""
        if self.digest_at(offset) is None:
            return []
        first = bisect_right(self._ends, offset, self._gone)
        last = bisect_right(self._ends, min(end, Offset(offset + size_bytes)), first)
        if last == first and first < len(self._ends) and self._ends[first] <= end:
            last += 1
        last = min(last, first + count)
        return [one for one in self._transactions[first:last] if one is not None]

    def covering(self, offset: Offset) -> RelayTransaction | None:
        """The transaction with the byte at *offset*; None: it is not kept."""
        if offset < self._before.end:
            return None
        index = bisect_right(self._ends, offset, self._gone)
        return self._transactions[index] if index < len(self._ends) else None

    def transaction_at(self, offset: Offset) -> RelayTransaction | None:
        """The transaction that begins at *offset*, if it is kept."""
        found = self.covering(offset)
        return found if found is not None and found.offset == offset else None

    def find(self, message: MessageId) -> tuple[RelayTransaction, int] | None:
        """The transaction that has the record with that id, and how many records are before it
        there, if the transaction has so many; None: nothing is kept that could have it."""
        sequence = id_sequence(message)
        before = [
            one for one in self._by_node.get(message[:-2], ()) if id_sequence(one.id) <= sequence
        ]
        if not before:
            return None
        nearest = max(before, key=lambda one: one.id)
        return nearest, sequence - id_sequence(nearest.id)

    def is_intact(self) -> bool:
        """Whether each digest follows from the one before it: computes all of them again."""
        digest = self._before.digest
        for one in self._transactions[self._gone :]:
            assert one is not None
            digest = next_digest(digest, one.id, one.records)
            if digest != one.digest:
                return False
        return True

    # --- removing ------------------------------------------------------------------------

    def trim(self, highwater: Offset, now: float) -> None:
        """Remove the oldest transactions that are beyond the bounds.  Nothing behind *highwater*
        is removed."""
        bounds = self.bounds
        while len(self) and self._ends[self._gone] <= highwater:
            if (
                self.size_bytes <= bounds.size_bytes
                and len(self) <= bounds.count
                and now - self._times[self._gone] <= bounds.age_s
            ):
                return
            self.drop_first()

    def drop_first(self) -> None:
        """Remove the oldest transaction."""
        first = self._transactions[self._gone]
        assert first is not None
        self._before = first.point
        self._unlist(first)
        self._transactions[self._gone] = None
        self._gone += 1
        if self._gone >= _COMPACT_AT and 2 * self._gone >= len(self._ends):
            del self._transactions[: self._gone], self._ends[: self._gone]
            del self._times[: self._gone]
            self._gone = 0

    def cut(self, end: Offset) -> None:
        """Remove all transactions behind *end*, at which one begins or ends."""
        assert self.digest_at(end) is not None
        keep = bisect_right(self._ends, end, self._gone)
        for one in self._transactions[keep:]:
            assert one is not None
            self._unlist(one)
        del self._transactions[keep:], self._ends[keep:], self._times[keep:]

    def _unlist(self, transaction: RelayTransaction) -> None:
        key = transaction.id[:-2]
        left = [one for one in self._by_node[key] if one.offset != transaction.offset]
        if left:
            self._by_node[key] = left
        else:
            del self._by_node[key]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        at = self._before.end
        kept = self._transactions[self._gone :]
        assert not any(self._transactions[: self._gone])
        for one, end in zip(kept, self._ends[self._gone :], strict=True):
            assert one is not None
            assert (one.offset, one.end) == (at, end)
            at = one.end
        assert len(self._times) == len(self._ends)
        assert sum(map(len, self._by_node.values())) == len(self)
        assert all(self._by_node.values())


def record_id(transaction: RelayTransaction, number: int) -> MessageId:
    """The id of the record of *transaction* that has *number* others before it there."""
    return id_behind(transaction.id, number)
