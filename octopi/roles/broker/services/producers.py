"""Tells the last epoch of a producer in a log, and begins new ones.

A new epoch is an entry in the partition's internal log (`octopi.replication.producer_fences`).  The
leader chooses the number and appends the entry in one step, and answers when it is committed: so no
two lives of a producer get the same epoch, and no record of an older one is appended later.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from octopi.errors import NotReadyError, OffsetOutOfRangeError, Status, refused
from octopi.identifiers import SUBSCRIPTIONS_LOG, Offset, ProducerEpoch, ProducerId, TopicId
from octopi.limits import INPUT_BYTES_MAX
from octopi.record import PRODUCER_ID_BYTES, decode
from octopi.record_headers import INPUT_HEADER
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.replication.internal_log import EncodedEntry, fence_entry
from octopi.replication.producer_fences import ProducerFences, last_epoch
from octopi.roles.broker.internal_logs import InternalLogs
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.services.context import ClientContext
from octopi.transport.memory_budget import FETCHES
from octopi.transport.services import Service
from octopi.wire import messages as m

_UINT32_MAX: Final = 0xFFFFFFFF


class ProducersService(Service):
    """Answers what `octopi.wire.producers.DescribeProducer` asks."""

    def __init__(self, internal: InternalLogs, context: ClientContext) -> None:
        super().__init__({m.DescribeProducer: self._describe})
        self._internal = internal
        self._context = context

    def _describe(self, message: m.DescribeProducer) -> None:
        if len(message.producer_id) != PRODUCER_ID_BYTES:
            raise refused(
                Status.INVALID_OPTION,
                f"a producer id has {PRODUCER_ID_BYTES} bytes, this one has "
                f"{len(message.producer_id)}",
            )
        log = self._context.log(message.topic, message.partition)
        self._fences(log)
        self._context.charge_task(FETCHES)
        self._context.tasks.start_soon(self._answer, log, message)

    async def _answer(self, log: LocalLog, message: m.DescribeProducer) -> None:
        try:
            with self._context.refusing(log, message.request):
                if message.begins:
                    found = await self._begin(log, message)
                else:
                    found = self._found(log, message)
                newest = log.state.sequences.newest_record(ProducerId(message.producer_id))
                await self._internal.committed(message.partition, log, found.end)
                if message.of_pipe and newest is not None:
                    found = attrs.evolve(found, input=await _input_of(log, *newest))
                self._context.connection.post(found)
        finally:
            self._context.release_task(FETCHES)

    def _found(self, log: LocalLog, message: m.DescribeProducer) -> m.ProducerDescription:
        """What the log says now."""
        producer = ProducerId(message.producer_id)
        epoch = last_epoch(log.state, self._fences(log), producer)
        after = log.state.sequences.next_in_epoch(producer, epoch or ProducerEpoch(0))
        told = m.ProducerDescription(message.request, epoch, after, log.state.end)
        if message.of_pipe:
            last, is_full = log.state.sequences.last_record(producer), log.state.sequences.is_full
            told = attrs.evolve(told, last=last, forgets=is_full)
        return told

    async def _begin(self, log: LocalLog, message: m.DescribeProducer) -> m.ProducerDescription:
        """Begin a new epoch, and wait until that is committed.

        Raises:
          ProducerFencedError: if `DescribeProducer.after` isn't the last epoch any more.
          NotLeaderError: if this broker doesn't lead the partition.
          NotReadyError: if too few replicas are in sync.
          RefusedError: UNCOMMITTED, if it isn't known whether the epoch has begun.
        """
        answered = trio.Event()
        answers: list[CommitReceipt | Refusal] = []
        begun: list[m.ProducerDescription] = []

        def fence() -> EncodedEntry:
            producer = ProducerId(message.producer_id)
            last = self._found(log, message).epoch
            if message.after is not None and message.after != last:
                what = "is not known any more" if last is None else f"was replaced by {last}"
                raise refused(Status.PRODUCER_FENCED, f"producer epoch {message.after} {what}")
            if (epoch := (last or 0) + 1) > _UINT32_MAX:
                raise refused(Status.INVALID_OPTION, "the producer has used up all its epochs")
            replica = self._context.replica(message.partition)
            internal = replica.machine.log_leader(TopicId(SUBSCRIPTIONS_LOG))
            internal.begin_fences(TopicId(log.topic_id), log.state)
            begun.append(m.ProducerDescription(message.request, epoch, 0, log.state.end))
            return fence_entry(TopicId(log.topic_id), producer, ProducerEpoch(epoch))

        def take(answer: CommitReceipt | Refusal) -> None:
            answers.append(answer)
            answered.set()

        self._internal.append_fence(message.partition, fence, take)
        await answered.wait()
        if isinstance(answers[0], Refusal):
            raise refused(answers[0].status, answers[0].reason)
        return begun[0]

    def _fences(self, log: LocalLog) -> ProducerFences:
        """The fences of *log*.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition.
          NotReadyError: if it doesn't lead the log yet, or too few replicas are in sync.
        """
        machine = self._context.replica(log.partition).machine
        machine.log_leader(TopicId(SUBSCRIPTIONS_LOG))
        fences = machine.log_leader(log.topic_id).fences
        in_sync = len(machine.leader.in_sync) if machine.leader is not None else 0
        if fences is None or in_sync < log.state.min_insync:
            raise NotReadyError(
                f"{in_sync} of at least {log.state.min_insync} replicas are in sync"
            )
        return fences


async def _input_of(log: LocalLog, offset: Offset, count: int) -> bytes:
    """The header `INPUT_HEADER` of the record that lies *count* records behind the one at *offset*;
    empty: it has none, or retention has removed it."""
    try:
        at = await log.skip(offset, count)
        await log.prove(at)
        records = log.read(at, log.read_bytes_min(at))
    except OffsetOutOfRangeError:
        return b""
    if not records:
        return b""
    [message] = decode(records, at, log.name, log.partition)
    told = message.headers.get(INPUT_HEADER, b"")
    return told if len(told) <= INPUT_BYTES_MAX else b""
