"""Traces the steps of one producer on one log, derived from the effects of its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octopi.clients.producing.batches import Batch, Stored
from octopi.clients.producing.effects import Effect, FindLeader, Send, Settled
from octopi.environment import Trace
from octopi.identifiers import PartitionId, ProducerEpoch, ProducerId, TopicName
from octopi.tracing import client as steps
from octopi.wire.messages import Failure, Produced


class SenderTracer:
    """Traces the steps of a `octopi.clients.producing.log_sender.LogSender`."""

    def __init__(
        self, trace: Trace, topic: TopicName, partition: PartitionId, producer_id: ProducerId
    ) -> None:
        self._trace = trace
        self._producer_id = producer_id
        self._topic = topic
        self._partition = partition
        self._sent: dict[tuple[Batch, int], dict[str, Any]] = {}
        """The facts in the step of each batch and attempt that has no answer yet."""

    def before(self, effect: Effect) -> Callable[[], None] | None:
        """Trace that *effect* is performed next.  Return a function that traces that it was
        performed, if there is a step for that."""
        match effect:
            case Send(batch, attempt, _, epoch):
                told = self._sent[batch, attempt] = self._facts(batch, attempt, epoch)
                if attempt == 1:
                    self._trace(steps.C1Sending(**told))
                    return lambda: self._trace(steps.C1Sent(**told))
                self._trace(steps.C2Repeating(**told))
                return lambda: self._trace(steps.C2Repeated(**told))
            case Settled(batch, count) if not isinstance(batch.outcome, Stored):
                self._trace(
                    steps.C7GaveUp(
                        topic=self._topic,
                        partition=self._partition,
                        sequence=batch.first_sequence,
                        count=count,
                        why=repr(batch.outcome),
                    )
                )
            case FindLeader(why, address):
                self._trace(
                    steps.C5Redirected(
                        topic=self._topic,
                        partition=self._partition,
                        address=address,
                        why=str(why),
                    )
                )
        return None

    def answered(self, batch: Batch, attempt: int, answer: object) -> None:
        """Trace the *answer* to an attempt of *batch*.  The end of the connection, which is
        reported as an answer, too, has no step."""
        told = self._sent.pop((batch, attempt))
        if isinstance(answer, Produced):
            self._trace(
                steps.C3Receipt(
                    **told,
                    offset=answer.offset,
                    duplicate=answer.duplicate,
                    records_epoch=answer.epoch,
                )
            )
        elif isinstance(answer, Failure):
            self._trace(steps.C4Refused(**told, status=answer.status, reason=answer.reason))

    def found(self, address: str) -> None:
        """Trace that the leader was found at *address*."""
        self._trace(steps.C6Found(topic=self._topic, partition=self._partition, address=address))

    def _facts(self, batch: Batch, attempt: int, epoch: ProducerEpoch) -> dict[str, Any]:
        """The facts that tell which batch it is."""
        return {
            "topic": self._topic,
            "partition": self._partition,
            "producer": self._producer_id,
            "producer_epoch": epoch,
            "sequence": batch.first_sequence,
            "count": len(batch),
            "attempt": attempt,
        }
