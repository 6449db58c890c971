"""What a sequencer does with what a receiver has submitted: refuse it, find it, or append it."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.errors import Status
from octopi.identifiers import BrokerId, Offset
from octopi.record import Run, record_end
from octopi.relay.buffer import RelayTransaction, StreamPoint, record_id
from octopi.relay.message_ids import SEQUENCES, id_sequence
from octopi.relay.messages import RelayRefused, RelaySubmit, RelaySubmitted, SubmitRefusal
from octopi.relay.stream import RelayStream, one_run
from octopi.relay.timelines import RelayEpoch
from octopi.replication.producer_sequences import Duplicate, Fresh, Refused


@attrs.frozen
class PutInOrder:
    """A transaction was appended; publish it."""

    transaction: RelayTransaction
    before: StreamPoint
    answer: RelaySubmitted


Ordered: TypeAlias = PutInOrder | RelaySubmitted | RelayRefused


def put_in_order(
    stream: RelayStream, epoch: RelayEpoch, receiver: BrokerId, submit: RelaySubmit, now: float
) -> Ordered:
    """Append what *receiver* has submitted to *stream*, unless it is there, or must not be."""
    run = one_run(submit.records)
    if run is None:
        reason = "one request carries records of one producer, in sequence, and of version 2"
        return _refused(submit, Refused(Status.MALFORMED_RECORD, reason))
    if id_sequence(submit.id) + run.count > SEQUENCES:
        return _refused(submit, Refused(Status.MALFORMED_RECORD, "the ids run over"))
    match verdict := stream.producers.check(run):
        case Refused():
            return _refused(submit, verdict)
        case Duplicate():
            return _again(stream, epoch, submit, verdict)
        case Fresh():
            return _append(stream, epoch, receiver, submit, run, now)


def _append(
    stream: RelayStream,
    epoch: RelayEpoch,
    receiver: BrokerId,
    submit: RelaySubmit,
    run: Run,
    now: float,
) -> Ordered:
    bounds, size = stream.buffer.bounds, len(submit.records)
    if size > bounds.size_bytes:
        return RelayRefused(submit.topic_id, submit.id, SubmitRefusal.TOO_LARGE)
    waiting = stream.uncommitted_bytes
    if waiting and waiting + size > bounds.size_bytes // 2:
        return RelayRefused(submit.topic_id, submit.id, SubmitRefusal.BUFFER_FULL)
    if stream.memory.is_full:
        return RelayRefused(submit.topic_id, submit.id, SubmitRefusal.MEMORY_FULL)
    before = stream.buffer.end
    transaction = stream.append(submit.id, receiver, submit.records, run, now)
    answer = RelaySubmitted(
        epoch,
        submit.topic_id,
        submit.id,
        submit.id,
        transaction.offset,
        transaction.point,
        is_duplicate=False,
        committed=stream.highwater,
        quorum=stream.quorum,
    )
    return PutInOrder(transaction, before, answer)


def _again(
    stream: RelayStream, epoch: RelayEpoch, submit: RelaySubmit, found: Duplicate
) -> RelaySubmitted | RelayRefused:
    """Answer a repetition with the place of the first time."""
    known = stream.buffer.transaction_at(found.offset)
    offset = found.offset
    if known is not None:
        position = 0
        for _ in range(found.skip):
            position = record_end(known.records, position)
        offset = Offset(known.offset + position)
    elif found.skip:
        reason = "the records are stored, and those before them are gone by now: where is not known"
        return _refused(submit, Refused(Status.RECEIPT_FORGOTTEN, reason))
    return RelaySubmitted(
        epoch,
        submit.topic_id,
        submit.id,
        record_id(known, found.skip) if known is not None else None,
        offset,
        known.point if known is not None else None,
        is_duplicate=True,
        committed=stream.highwater,
        quorum=stream.quorum,
    )


def _refused(submit: RelaySubmit, verdict: Refused) -> RelayRefused:
    return RelayRefused(submit.topic_id, submit.id, SubmitRefusal.BY_PRODUCER, verdict=verdict)
