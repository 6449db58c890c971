"""Seals the logs of topics that this broker leads, as the register orders it
(`octopi.coordination.generations`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from octopi.environment import Environment
from octopi.errors import NotLeaderError, NotReadyError, Status, refused
from octopi.identifiers import SUBSCRIPTIONS_LOG, PartitionId, TopicId
from octopi.limits import SEAL_S, SEALS_PER_PARTITION_MAX
from octopi.logger import get_logger
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.replication.internal_log import EncodedEntry, seal_entry
from octopi.roles.broker.internal_logs import NOT_LED, InternalLogs
from octopi.roles.broker.local_log import LocalLog
from octopi.tracing import generations as steps
from octopi.wire.messages import SealTopic, TopicSealed

if TYPE_CHECKING:
    from octopi.roles.broker.replica_driver import ReplicaDriver

_log = get_logger(__name__)

_INTERNAL = TopicId(SUBSCRIPTIONS_LOG)


class Sealing:
    """The seals of one broker's logs."""

    def __init__(
        self,
        environment: Environment,
        internal: InternalLogs,
        replica_of: Callable[[PartitionId], ReplicaDriver | None],
    ) -> None:
        """*internal*: the logs ``~subscriptions``.  *replica_of*: finds this broker's replica of a
        partition, if it has one."""
        self._environment = environment
        self._internal = internal
        self._replica_of = replica_of

    async def seal(self, order: SealTopic) -> TopicSealed:
        """Seal a log, or find it sealed; wait until the seal and all that the log holds are
        committed.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition in that epoch all the time.
          NotReadyError: if the log is not made yet, if that generation isn't under way any more, or
              if something isn't committed within `SEAL_S`.
          RefusedError: TOO_MANY; UNCOMMITTED, if it isn't known whether the log is sealed.
        """
        with self._environment.clock.timeout(SEAL_S):
            sealed = await self._seal(order)
            _log.info(
                "log sealed",
                topic_id=order.topic_id,
                partition=order.partition,
                generation=order.generation,
                log_end=sealed.end,
            )
            return sealed
        raise NotReadyError(f"the log is not sealed and committed within {SEAL_S:g} s")

    async def _seal(self, order: SealTopic) -> TopicSealed:
        partition, topic_id = PartitionId(order.partition), TopicId(order.topic_id)
        replica = self._replica_of(partition)
        leader = replica.machine.leader if replica is not None else None
        if replica is None or leader is None or leader.epoch != order.epoch:
            raise NotLeaderError(NOT_LED)
        log, internal = replica.logs.get(topic_id), replica.logs.get(_INTERNAL)
        if log is None or internal is None:
            raise NotReadyError("the log is not made yet")
        place = log.topic.topic, order.topic_id, partition, order.generation
        if (trace := self._environment.trace) is not None:
            trace(steps.V2Sealing(*place))
        await self._append(replica, log, order)
        end = log.state.end
        # A seal that another order appended may not be committed yet.
        await self._internal.committed(partition, internal, internal.state.end)
        await self._internal.committed(partition, log, end)
        if replica.machine.leader is not leader or not replica.leads:
            raise NotLeaderError(NOT_LED)
        if (trace := self._environment.trace) is not None:
            trace(steps.V2Sealed(*place, end))
        return TopicSealed(order.request, order.epoch, end)

    async def _append(self, replica: ReplicaDriver, log: LocalLog, order: SealTopic) -> None:
        """Append the seal, if the internal log hasn't it, and wait until it is committed if it was
        appended just now."""
        answered = trio.Event()
        answers: list[CommitReceipt | Refusal] = []

        def entry() -> EncodedEntry | None:
            led = replica.machine.log_leader(log.topic_id)
            if led.epoch != order.epoch:
                raise NotLeaderError(NOT_LED)
            seal, state = led.seal, led.log
            if seal is None:
                raise NotReadyError("this broker doesn't lead the partition's internal log yet")
            number = order.generation
            if number <= state.generation or number in state.cancelled or number < seal.number:
                raise NotReadyError(f"generation {number} is not under way any more")
            if number == seal.number:
                return None
            if not seal.has_room:
                raise refused(
                    Status.TOO_MANY,
                    f"{SEALS_PER_PARTITION_MAX} logs of the partition were sealed already",
                )
            replica.machine.log_leader(_INTERNAL).begin_fences(log.topic_id, state)
            return seal_entry(log.topic_id, number)

        def take(answer: CommitReceipt | Refusal) -> None:
            answers.append(answer)
            answered.set()

        self._internal.append_fence(replica.partition, entry, take)
        await answered.wait()
        if isinstance(answers[0], Refusal):
            raise refused(answers[0].status, answers[0].reason)
