"""Finds the records that a producer sent again.

If the producer repeats a whole batch, the records lie where the batch lies.  Within a batch the
records are counted, which takes a while.  Only the producer waits for that, and the result holds
only in the epoch of the request.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.errors import NotLeaderError, OctopiError, Status
from octopi.identifiers import Offset
from octopi.replication.effects import (
    Answer,
    Effect,
    FindDuplicate,
    OnLog,
    PartitionEffect,
    Refusal,
    Reply,
)
from octopi.replication.partition_replica import PartitionReplica
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.refusals import refusal_of

_NOT_LEADER = Refusal(Status.NOT_LEADER, "this broker does not lead the partition any more")

Submit = Callable[[Callable[[], list[PartitionEffect]]], None]


def answer_repetition(
    machine: PartitionReplica,
    log: LocalLog,
    effect: FindDuplicate,
    tasks: trio.Nursery,
    submit: Submit,
) -> list[Effect]:
    """Return the effects that can be done now; a count is submitted to the replica later, as an
    event."""
    if effect.skip:
        tasks.start_soon(_count, machine, log, effect, submit)
        return []
    return _found(machine, log, effect.offset, effect.answer)


def _found(
    machine: PartitionReplica, log: LocalLog, offset: Offset, answer: Answer
) -> list[Effect]:
    try:
        return machine.log_leader(log.topic_id).found_duplicate(offset, answer)
    except NotLeaderError as error:
        return [Reply(answer, refusal_of(error))]


async def _count(
    machine: PartitionReplica, log: LocalLog, effect: FindDuplicate, submit: Submit
) -> None:
    leader, answer = machine.leader, effect.answer
    try:
        offset = await log.skip(effect.offset, effect.skip)
    except OctopiError as error:
        answer(refusal_of(error) if machine.leader is leader else _NOT_LEADER)
        return

    def found() -> list[PartitionEffect]:
        if machine.leader is not leader:
            return [OnLog(log.topic_id, Reply(answer, _NOT_LEADER))]
        return [OnLog(log.topic_id, one) for one in _found(machine, log, offset, answer)]

    submit(found)
