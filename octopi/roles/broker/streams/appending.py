"""Writes to streams: appends their records through the leader's machine, in one order.

Whether a stream takes a write is decided when all earlier writes are in the log, from what the log
holds, committed or not.  An answer that depends on what the log holds is given when that is
committed.  So a write that is acknowledged is neither lost nor there twice, whichever broker leads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import NeedsTimeError, Status, refused
from octopi.identifiers import (
    Epoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicId,
    TopicName,
)
from octopi.limits import STREAM_COMMIT_S
from octopi.record import NO_HEADERS, BatchBuilder, decode
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.replication.log_leader import LogLeader
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.streams.forks import copier
from octopi.streams.problems import StreamProblem
from octopi.streams.writing import (
    CLOSER,
    MARK,
    AlreadyWritten,
    Known,
    Write,
    WriteNote,
    judge,
    log_producer,
    noted,
)

_REMEMBERED_MAX: Final = 1_000

Settle = Callable[[CommitReceipt | Refusal | None], None]


@attrs.frozen
class Written:
    """A write was acknowledged."""

    end: Offset
    """Behind its records; or, if they were there before, the end of the stream."""
    is_repeated: bool
    """Whether the stream had it already."""
    sequence: int | None
    """The highest sequence of its producer that the stream has."""


@attrs.define
class _Outcome:
    """What was decided about a write."""

    decided: AlreadyWritten | StreamProblem | None = None
    size_bytes: int = 0
    unproven: Offset | None = None
    """What has to be proved to be the start of a record, before anything can be decided."""


class StreamWriter:
    """Writes to the streams that this broker leads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._remembered: OrderedDict[
            tuple[TopicId, ProducerId], tuple[Epoch, Offset, WriteNote]
        ] = OrderedDict()
        """What the newest writes noted, so that their records needn't be read."""
        self._stream_seqs: OrderedDict[TopicId, tuple[Epoch, str | None, Offset]] = OrderedDict()
        """The newest ``Stream-Seq`` of the records before an offset, so that what other producers
        wrote before that needn't be read: there may be many of them."""

    async def write(
        self, driver: ReplicaDriver, log: LocalLog, write: Write, settle: Settle | None
    ) -> Written:
        """Write, and wait until that is committed.  *settle* is called once, with the outcome, also
        if this is cancelled.

        Raises:
          StreamProblem: if the stream doesn't take it.
          RefusedError: if the broker can't write it; UNCOMMITTED if it may be written later.
        """
        while True:
            outcome = _Outcome()
            written = await self._try(driver, log, write, outcome, settle)
            if outcome.unproven is None:
                return written
            try:
                await log.prove(outcome.unproven)
            except BaseException:
                if settle is not None:
                    settle(None)
                raise

    async def _try(
        self,
        driver: ReplicaDriver,
        log: LocalLog,
        write: Write,
        outcome: _Outcome,
        settle: Settle | None,
    ) -> Written:
        settled = trio.Event()
        content: CommitReceipt | Refusal | None = None

        def answer(given: CommitReceipt | Refusal) -> None:
            nonlocal content
            content = given
            if settle is not None and outcome.unproven is None:
                settle(None if outcome.decided is not None else given)
            settled.set()

        driver.append_made(log, lambda leader: self._make(leader, log, write, outcome), answer)
        with self._environment.clock.timeout(STREAM_COMMIT_S):
            await settled.wait()
        if content is None:
            raise refused(Status.UNCOMMITTED, "the write was not committed in time")
        if outcome.unproven is not None:
            return Written(log.highwater, False, None)
        if isinstance(content, Refusal):
            raise refused(content.status, content.reason)
        if isinstance(outcome.decided, StreamProblem):
            raise outcome.decided
        sequence = write.producer.sequence if write.producer is not None else None
        if isinstance(outcome.decided, AlreadyWritten):
            return Written(log.highwater, True, outcome.decided.sequence)
        return Written(Offset(content.offset + outcome.size_bytes), False, sequence)

    def _make(
        self, leader: LogLeader, log: LocalLog, write: Write, outcome: _Outcome
    ) -> bytes | Offset:
        """Decide about *write*; return its records, or the batch that has to be committed first."""
        sequences = leader.log.sequences
        newest = next((one for one in sequences.newest_first()), None)
        behind = sequences.newest_batch(newest) if newest is not None else None
        of_producer = ProducerId(b"")
        try:
            if write.is_initial and (behind is not None or leader.log.end > 0):
                outcome.decided = AlreadyWritten()
            else:
                name = write.producer.name if write.producer is not None else ""
                of_producer = log_producer(log.topic_id, name)
                known = Known(
                    self._noted(leader, log, of_producer) if write.producer is not None else None,
                    (self._noted(leader, log, CLOSER) or WriteNote())
                    if sequences.is_closed
                    else None,
                    self._newest_stream_seq(leader, log),
                )
                outcome.decided = judge(write, known)
        except StreamProblem as problem:
            outcome.decided = problem
        except _UnprovenError as error:
            outcome.unproven = error.offset
            return b""
        if outcome.decided is not None:
            return behind[1] if behind is not None else b""
        records = self._records(leader, log, write, of_producer)
        outcome.size_bytes = len(records)
        return records

    def _records(
        self, leader: LogLeader, log: LocalLog, write: Write, of_producer: ProducerId
    ) -> bytes:
        sequences = leader.log.sequences
        stream_seq = write.stream_seq
        if stream_seq is None:
            stream_seq = self._newest_stream_seq(leader, log)
        note = WriteNote(stream_seq=stream_seq, is_initial=write.is_initial)
        producer, epoch = write.producer, ProducerEpoch(0)
        if producer is not None:
            note = attrs.evolve(
                note, producer=producer.name, epoch=producer.epoch, sequence=producer.sequence
            )
            newest = sequences.newest_batch(of_producer)
            last = self._noted(leader, log, of_producer)
            if newest is not None:
                is_same = last is not None and last.epoch == producer.epoch
                epoch = newest[0] if is_same else ProducerEpoch(newest[0] + 1)
        if write.closes:
            of_producer, epoch = CLOSER, ProducerEpoch(0)
        builder = BatchBuilder()
        if write.copied:
            # Their records have the sizes of those in the source, and so the same offsets.
            for one in write.copied:
                builder.add(one.value, one.key, one.headers, one.timestamp_ms or 0)
            for value in write.values:
                builder.add(value, None, {}, self._environment.clock.wall_ms())
            return builder.encode(copier(log.topic_id), ProducerEpoch(0), Sequence(0))
        headers = {MARK: note.encode()}
        now_ms = self._environment.clock.wall_ms()
        for value in write.values or [b""]:
            builder.add(value, None, headers, now_ms)
            headers = dict(NO_HEADERS)
        sequence = Sequence(sequences.next_in_epoch(of_producer, epoch))
        records = builder.encode(of_producer, epoch, sequence)
        self._remember(log.topic_id, of_producer, leader.epoch, leader.log.end, note)
        return records

    # --- what the log holds ----------------------------------------------------------------

    def _remember(
        self, topic_id: TopicId, producer: ProducerId, epoch: Epoch, offset: Offset, note: WriteNote
    ) -> None:
        remembered = self._remembered
        remembered[topic_id, producer] = (epoch, offset, note)
        remembered.move_to_end((topic_id, producer))
        if len(remembered) > _REMEMBERED_MAX:
            remembered.popitem(last=False)

    def _noted(self, leader: LogLeader, log: LocalLog, producer: ProducerId) -> WriteNote | None:
        """What the newest write of *producer* noted; None if that isn't known."""
        newest = leader.log.sequences.newest_batch(producer)
        if newest is None:
            return None
        _, offset = newest
        known = self._remembered.get((log.topic_id, producer))
        if known is not None and known[:2] == (leader.epoch, offset):
            return known[2]
        note = _read_note(log, offset)
        if note is not None:
            self._remember(log.topic_id, producer, leader.epoch, offset, note)
        return note

    def _newest_stream_seq(self, leader: LogLeader, log: LocalLog) -> str | None:
        """The newest ``Stream-Seq``: each write over HTTP notes it."""
        known = self._stream_seqs.get(log.topic_id)
        found, begin = known[1:] if known is not None and known[0] == leader.epoch else (None, 0)
        sequences, inherited = leader.log.sequences, copier(log.topic_id)
        for producer in sequences.newest_first():
            newest = sequences.newest_batch(producer)
            if newest is None or newest[1] < begin:
                break  # the others are older still
            if producer == inherited:
                found = None  # the headers of its records are those of another stream
                break
            note = self._noted(leader, log, producer)
            if note is not None:
                found = note.stream_seq
                break
        self._stream_seqs[log.topic_id] = (leader.epoch, found, leader.log.end)
        self._stream_seqs.move_to_end(log.topic_id)
        if len(self._stream_seqs) > _REMEMBERED_MAX:
            self._stream_seqs.popitem(last=False)
        return found


def _read_note(log: LocalLog, offset: Offset) -> WriteNote | None:
    """What the record at *offset* notes; None if it notes nothing, or retention has removed it.

    Raises:
      OctopiError: if it can't be read, or only after `LocalLog.prove`.
    """
    if offset < log.start:
        return None
    try:
        records = log.read_uncommitted(offset, 1)
    except NeedsTimeError:
        raise _UnprovenError(offset) from None
    messages = decode(records, offset, TopicName(log.topic.topic), log.partition)
    return noted(messages[0].headers) if messages else None


class _UnprovenError(NeedsTimeError):
    def __init__(self, offset: Offset) -> None:
        super().__init__("the index of the log is being rebuilt")
        self.offset: Final = offset
