"""Appends what a client produces to a log that this broker leads, for any connection on which the
request came."""

from __future__ import annotations

from collections.abc import Callable

from octopi.errors import NotLeaderError, Status
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.redirects import redirect
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.transport.failures import failure, failure_of
from octopi.wire import messages as m


def append_produced(
    manager: ReplicaManager,
    log: LocalLog,
    message: m.Produce,
    on_outcome: Callable[[CommitReceipt | Refusal], None],
) -> None:
    """Append the records of *message* to *log*; *on_outcome* is called once, now or later.

    Raises:
      NotLeaderError: if this broker has no replica of the partition.
      RefusedError: if the records are not valid.
    """
    replica = manager.replica(message.partition)
    if replica is None:
        raise NotLeaderError("this broker is no replica of the partition: ask the register")
    generation = max(1, message.generation)
    replica.produce(log, message.records, on_outcome, message.condition, generation)


def answer_to_produce(
    manager: ReplicaManager, message: m.Produce, outcome: CommitReceipt | Refusal
) -> m.Produced | m.Failure:
    """The answer to *message*; it names the leader, if that is another broker."""
    request = message.request
    if isinstance(outcome, CommitReceipt):
        return m.Produced(request, outcome.offset, outcome.epoch, outcome.duplicate)
    if outcome.status == Status.NOT_LEADER:
        answer = failure_of(request, redirect(manager, outcome.reason, message.partition))
        assert answer is not None, "a refusal has a status"
        return answer
    return failure(request, outcome.status, outcome.reason, offset=outcome.offset)
