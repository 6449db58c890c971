"""One stream of a relay partition as readers see it: the records in memory, and anchors.

The anchor of a place is the end of a transaction and the first 8 bytes of the digest there.  The
digest covers all that lies before, so who reads on with an anchor learns whether anything of what
it has read was replaced.  The end is that of the last transaction of which the reader was sent
something, so it may lie behind the place itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from octopi.errors import (
    HistoryForkedError,
    InvalidOptionError,
    NotLeaderError,
    NotReadyError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    RefusedError,
    Status,
)
from octopi.identifiers import NO_EPOCH, Epoch, Offset, PartitionId, TopicId, TopicName
from octopi.limits import RELAY_READ_TRANSACTIONS, SLICE_BYTES
from octopi.model import TopicKind
from octopi.position import NO_ANCHOR, Anchor, checked_anchor
from octopi.record import record_end, record_timestamp_ms, scan, whole_records_end
from octopi.relay.buffer import RelayTransaction
from octopi.relay.digest import Digest
from octopi.relay.message_ids import MESSAGE_ID_BYTES, MessageId
from octopi.relay.stream import RelayStream
from octopi.storage.time_slices import Slices
from octopi.wire.messages import LogCount, LogInfo
from octopi.wire.proofs import packed_proof

_ANCHOR_BYTES: Final = 8

FindStream = Callable[[TopicId], RelayStream | None]


class StreamLog:
    """The readers' view of one stream at one relay.

    Invariant: readers get only what a quorum has written, and only while `epoch` isn't 0.
    """

    def __init__(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partition: PartitionId,
        find: FindStream,
        delivering: Callable[[Offset, Offset, Digest], None] | None = None,
    ) -> None:
        """*find*: the stream as this relay holds it now; None: it is empty.  *delivering*: called
        with the range of records before a reader gets them, and the digest behind the last
        transaction of them; None: nobody observes."""
        self.name, self.topic_id, self.partition = topic, topic_id, partition
        self.epoch: Epoch = NO_EPOCH
        """Of which this relay is a part, in the form for clients; 0: it serves no readers."""
        self.knows_all = False
        """Whether nothing can be committed that this relay doesn't hold: it is the sequencer."""
        self.begun = Offset(0)
        """What the stream had when this relay became the sequencer: readers are told the end of the
        stream only when that much is committed."""
        self.delivered_bytes = 0
        self._find = find
        self._delivering = delivering
        self._wakers: dict[Callable[[], None], None] = {}
        self._read_last = (Offset(-1), NO_ANCHOR)
        """Where the last read began, and the anchor behind it."""

    # --- generations of the topic --------------------------------------------------------

    @property
    def generation(self) -> int:
        """0: a topic in memory keeps its partition."""
        return 0

    def bound(self, generation: int) -> None:
        """None: all can be read."""

    # --- waiting for more ----------------------------------------------------------------

    def add_waker(self, wake: Callable[[], None]) -> None:
        """Have *wake* called when the highwater mark has moved, or the stream is not served."""
        self._wakers[wake] = None

    def remove_waker(self, wake: Callable[[], None]) -> None:
        """Remove a waker; harmless if it was not added."""
        self._wakers.pop(wake, None)

    def wake(self) -> None:
        """Call all wakers."""
        for wake in list(self._wakers):
            wake()

    # --- reading -------------------------------------------------------------------------

    @property
    def start(self) -> Offset:
        """Where what is in memory begins."""
        stream = self._find(self.topic_id)
        return Offset(0) if stream is None else stream.buffer.start.end

    @property
    def highwater(self) -> Offset:
        """Readers are sent the records below this offset."""
        stream = self._find(self.topic_id)
        return Offset(0) if stream is None else stream.highwater

    @property
    def end(self) -> Offset:
        """Where the stream ends, committed or not."""
        stream = self._find(self.topic_id)
        return Offset(0) if stream is None else stream.buffer.end.end

    def require_end(self) -> None:
        """Check that the highwater mark covers all that was ever acknowledged.

        Raises:
          NotLeaderError: if this relay is not the sequencer.
          NotReadyError: if it doesn't know that yet.
        """
        if not self.knows_all:
            raise NotLeaderError("this relay is not the sequencer of the stream")
        if self.highwater < self.begun:
            raise NotReadyError("the new sequencer has not yet committed what it began with")

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Committed records from *offset* on, at most *bytes_max* or one record; empty at the
        highwater mark.

        Raises:
          OffsetOutOfRangeError: if they are gone, or not there yet.
          OffsetInsideRecordError: if no record begins at *offset*.
        """
        start, highwater = self.start, self.highwater
        if not start <= offset <= max(highwater, self.end):
            raise OffsetOutOfRangeError(
                f"{self.name}/{self.partition}: offset {offset} is not in memory, which has "
                f"{start} to {highwater}"
            )
        stream = self._find(self.topic_id)
        if stream is None or offset >= highwater:
            self._read_last = (offset, NO_ANCHOR)
            return b""
        first = stream.buffer.covering(offset)
        assert first is not None
        parts = [self._rest(first, offset)]
        last, size = first, len(parts[0])
        if size <= bytes_max:
            following = stream.buffer.read(
                first.end, highwater, bytes_max - size, RELAY_READ_TRANSACTIONS
            )
            for one in following:
                if size + len(one.records) > bytes_max:
                    break
                parts.append(one.records)
                size += len(one.records)
                last = one
        else:
            parts[0] = parts[0][: whole_records_end(parts[0], bytes_max)]
        self._read_last = (offset, _anchor(last.end, last.digest))
        found = b"".join(parts)
        if self._delivering is not None:
            self._delivering(offset, Offset(offset + len(found)), last.digest)
        return found

    def _rest(self, transaction: RelayTransaction, offset: Offset) -> bytes:
        """The records of *transaction* from *offset* on."""
        skip, position = offset - transaction.offset, 0
        while position < skip:
            position = record_end(transaction.records, position)
        if position != skip:
            raise OffsetInsideRecordError(
                f"{self.name}/{self.partition}: no record begins at offset {offset}"
            )
        return transaction.records[skip:]

    def read_bytes_min(self, offset: Offset) -> int:
        """The size of the smallest result of `read` from *offset*: one record, if there is one."""
        stream = self._find(self.topic_id)
        if stream is None or not stream.buffer.start.end <= offset < stream.highwater:
            return 0
        transaction = stream.buffer.covering(offset)
        assert transaction is not None
        position = offset - transaction.offset
        return record_end(transaction.records, position) - position

    async def prove(self, offset: Offset) -> None:
        """Check that a record starts at *offset*, as `read` does: the buffer knows where each
        transaction begins."""
        await trio.lowlevel.checkpoint()
        self.read(offset, 0)

    # --- anchors -------------------------------------------------------------------------

    def anchor_behind(self, offset: Offset) -> Anchor:
        """The anchor for each place in what `read` returned last, from *offset*."""
        assert self._read_last[0] == offset
        return self._read_last[1]

    def anchor_before(self, offset: Offset) -> Anchor:
        """The anchor for *offset*; empty if it isn't known."""
        stream = self._find(self.topic_id)
        if stream is None or not offset:
            return NO_ANCHOR
        digest = stream.buffer.digest_at(offset)
        if digest is not None:
            return _anchor(offset, digest)
        covering = stream.buffer.covering(offset)
        return NO_ANCHOR if covering is None else _anchor(covering.end, covering.digest)

    def proof(self, offset: Offset, end: Offset) -> bytes:
        """See `octopi.roles.broker.local_stream.LocalStream`."""
        stream = self._find(self.topic_id)
        if stream is None or end <= offset:
            return b""
        first = stream.buffer.covering(offset)
        assert first is not None, "they were read"
        before = stream.buffer.digest_at(first.offset)
        assert before is not None
        rows, one = [], first
        while True:
            rows.append((one.id, len(one.records), one.digest))
            if one.end >= end:
                return packed_proof(first.offset, before, rows)
            following = stream.buffer.transaction_at(one.end)
            assert following is not None
            one = following

    def anchor_opened(self, offset: Offset, given: str) -> Anchor:
        """See `octopi.roles.broker.local_stream.LocalStream`: *given* may lie behind *offset*, and
        then proves more."""
        return Anchor(given) or self.anchor_before(offset)

    def require_reach(self, offset: Offset) -> None:
        """Check that this relay can say whether *offset* is behind the end.

        Raises:
          NotLeaderError: if another relay has to say so: this one doesn't hold so much.
        """
        if offset > self.end and not self.knows_all:
            raise NotLeaderError(f"this relay does not hold the stream up to offset {offset} (yet)")

    def check_anchor(self, offset: Offset, anchor: str) -> None:
        """Check that what a reader has read before *offset* is what this relay holds.

        Raises:
          InvalidOptionError: if *anchor* is none of a stream in memory.
          HistoryForkedError: if the stream has something else there.
          NotLeaderError: as for `require_reach`.
        """
        if not checked_anchor(anchor):
            self.require_reach(offset)
            return
        if "-" in anchor:
            raise InvalidOptionError(f"anchor {anchor!r} is one of a log, not of a relay topic")
        end_text, _, digest = anchor.partition(".")
        end = Offset(int(end_text))
        stream = self._find(self.topic_id)
        if end > self.end or stream is None:
            self.require_reach(end)
            raise self._forked(offset)
        if min(offset, end) < stream.buffer.start.end:
            return  # reading from there fails anyway: it is gone
        held = stream.buffer.digest_at(end)
        if held is None or held[:_ANCHOR_BYTES].hex() != digest:
            raise self._forked(offset)

    def _forked(self, offset: Offset) -> HistoryForkedError:
        # A digest does not say from where on histories differ: the reader asks again with the
        # anchors of earlier places, until one is right.
        return HistoryForkedError(
            f"{self.name}/{self.partition}: what was read before offset {offset} isn't in the "
            "stream any more: more relays were lost at once than it can bear",
            offset=max(0, min(self.start, offset - 1)),
        )

    def describe(self) -> LogInfo:
        """The state of the stream, for admin pages and metrics."""
        return LogInfo(
            topic=self.name,
            topic_id=self.topic_id,
            partition=self.partition,
            epoch=self.epoch,
            log_start=self.start,
            highwater=self.highwater,
            log_end=self.end,
            size_bytes=self.end - self.start,
            fault="" if self.epoch else "the relay is part of no epoch",
            kind=TopicKind.RELAY,
        )

    # --- look-ups ------------------------------------------------------------------------

    def find(self, at: str, value: int) -> Offset:
        """Answer `octopi.wire.client.FindOffset`.

        Raises:
          RefusedError: with INVALID_OPTION.
        """
        match at:
            case "earliest":
                return self.start
            case "latest":
                return self.highwater
            case "timestamp" if value >= 0:
                return self._timestamp(value)
            case "last" if value >= 0:
                return self._last(value)
            case "boundary" if value >= 0:
                return self._boundary(Offset(value))
        raise RefusedError(
            f"an offset is found at earliest, latest, timestamp, last or boundary, not {at[:20]!r} "
            f"{value}",
            Status.INVALID_OPTION,
        )

    def find_message(self, identity: bytes) -> Offset:
        """See `octopi.roles.broker.local_stream.LocalStream`."""
        if len(identity) != MESSAGE_ID_BYTES:
            raise RefusedError(
                f"the id of a message has {MESSAGE_ID_BYTES} bytes, not {len(identity)}",
                Status.INVALID_OPTION,
            )
        stream = self._find(self.topic_id)
        found = None if stream is None else stream.buffer.find(MessageId(identity))
        if found is not None and found[0].end <= self.highwater:
            transaction, number = found
            if number < scan(transaction.records).count:
                position = 0
                for _ in range(number + 1):
                    position = record_end(transaction.records, position)
                return Offset(transaction.offset + position)
        raise OffsetOutOfRangeError(
            f"{self.name}/{self.partition}: no message with id {identity.hex()} is in memory, "
            f"which has offsets {self.start} to {self.highwater}: it is too old, or none of this "
            "topic"
        )

    def count(self) -> Slices[LogCount]:
        """The number of committed records in memory."""
        start, highwater, count, read_bytes = self.start, self.highwater, 0, 0
        for one in self._committed():
            count += scan(one.records).count
            read_bytes += len(one.records)
            if read_bytes >= SLICE_BYTES:
                read_bytes = 0
                yield
        return LogCount(self.name, self.topic_id, self.partition, start, highwater, count)

    def _committed(self) -> list[RelayTransaction]:
        stream = self._find(self.topic_id)
        if stream is None:
            return []
        buffer = stream.buffer
        return buffer.read(buffer.start.end, stream.highwater, stream.highwater)

    def _timestamp(self, since_ms: int) -> Offset:
        for one in self._committed():
            if scan(one.records).timestamp_max_ms < since_ms:
                continue
            position = 0
            while record_timestamp_ms(one.records, position) < since_ms:
                position = record_end(one.records, position)
            return Offset(one.offset + position)
        return self.highwater

    def _last(self, count: int) -> Offset:
        for one in reversed(self._committed()):
            if count <= 0:
                return one.end
            held = scan(one.records).count
            if held >= count:
                position = 0
                for _ in range(held - count):
                    position = record_end(one.records, position)
                return Offset(one.offset + position)
            count -= held
        return self.start if self.start < self.highwater else self.highwater

    def _boundary(self, offset: Offset) -> Offset:
        if offset >= self.highwater:
            return self.highwater
        stream = self._find(self.topic_id)
        if stream is None or offset <= self.start:
            return self.start
        one = stream.buffer.covering(offset)
        assert one is not None
        position = 0
        while (end := record_end(one.records, position)) <= offset - one.offset:
            position = end
        return Offset(one.offset + position)


def _anchor(end: Offset, digest: Digest) -> Anchor:
    return Anchor(f"{end}.{digest[:_ANCHOR_BYTES].hex()}")
