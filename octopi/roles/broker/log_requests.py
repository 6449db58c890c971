"""Requests to append to a log, as events of its replica: each is answered once, now or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from octopi.conditions import Condition
from octopi.errors import NotLeaderError, OctopiError, Status
from octopi.identifiers import Offset
from octopi.record import Scan, scan
from octopi.replication.effects import Answer, CommitReceipt, OnLog, PartitionEffect, Refusal, Reply
from octopi.replication.log_leader import LogLeader
from octopi.replication.partition_replica import PartitionReplica
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.refusals import refusal_of
from octopi.roles.broker.replica_ports import ReplicaPorts

if TYPE_CHECKING:
    from octopi.roles.broker.replica_tracer import ReplicaTracer


class LogRequests:
    """The requests to one replica."""

    def __init__(
        self, machine: PartitionReplica, ports: ReplicaPorts, tracer: ReplicaTracer | None
    ) -> None:
        self._machine = machine
        self._ports = ports
        self._tracer = tracer

    def produced(
        self,
        log: LocalLog,
        records: bytes,
        found: Scan,
        answer: Answer,
        condition: Condition | None = None,
        generation: int = 1,
    ) -> Callable[[], list[PartitionEffect]]:
        """The event that a client sent valid *records*, which *found* describes, to be appended if
        *condition* holds, and the log takes those of *generation*."""
        tracer = self._tracer
        if tracer is not None:
            answer = tracer.observed(log, found, answer)

        def receive() -> list[PartitionEffect]:
            if tracer is not None:
                tracer.received(log, found)
            machine = self._machine
            try:
                leader = machine.log_leader(log.topic_id)
            except NotLeaderError as error:
                status, reason = Status.NOT_LEADER, str(error.args[0])
                return [OnLog(log.topic_id, Reply(answer, Refusal(status, reason)))]
            if (fence := self._ports.fence(machine.partition)) is not None:
                return [OnLog(log.topic_id, Reply(answer, fence))]
            effects = leader.receive(records, found, answer, condition, generation)
            return [OnLog(log.topic_id, effect) for effect in effects]

        return receive

    def made(
        self, log: LocalLog, make: Callable[[LogLeader], bytes | Offset], answer: Answer
    ) -> Callable[[], list[PartitionEffect]]:
        """The event that this broker appends what *make* returns."""

        def receive() -> list[PartitionEffect]:
            try:
                leader = self._machine.log_leader(log.topic_id)
                records = make(leader)
            except OctopiError as error:
                return [OnLog(log.topic_id, Reply(answer, refusal_of(error)))]
            if isinstance(records, int):
                again = leader.found_duplicate(records, answer)
                return [OnLog(log.topic_id, effect) for effect in again]
            if not records:
                receipt = CommitReceipt(log.end, leader.epoch, False)
                return [OnLog(log.topic_id, Reply(answer, receipt))]
            found, observed = scan(records), answer
            if self._tracer is not None:
                observed = self._tracer.observed(log, found, answer)
                self._tracer.received(log, found)
            effects = leader.receive(records, found, observed)
            return [OnLog(log.topic_id, effect) for effect in effects]

        return receive
