"""An operator and a partition without a leader: what its replicas hold, and the order to go on
with the best of them.

Replicas say what they hold when they accept an epoch, so asking announces the next one.  That
costs nothing while no broker leads; while one does, nothing is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from octopi.coordination.election import LogLoss, is_sound
from octopi.coordination.in_sync_changes import newest_set
from octopi.coordination.journal_entries import PartitionDecided
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.logger import get_logger
from octopi.wire import messages as m

if TYPE_CHECKING:
    from octopi.roles.register.node import RegisterNode

_log = get_logger(__name__)

_LOST_COUNT_MAX: Final = 1_000


class OperatorRecovery:
    """One question, or order, about one partition."""

    def __init__(self, node: RegisterNode, partition: int) -> None:
        self._node = node
        self._partition = partition
        self._machine = node.controller.elections

    @property
    def _record(self) -> m.PartitionRecord:
        return self._node.controller.state.partitions[self._partition]

    async def answer(self, message: m.RecoverPartition) -> m.PartitionRecovery:
        """Carry it out.

        Raises:
          RefusedError: UNKNOWN_PARTITION; INVALID_OPTION, while a replica in sync runs, or any
              replica of a partition that is to begin again; NO_BROKER, if no replica does.
          NotReadyError: if waiting will do.
        """
        if self._partition not in self._node.controller.state.partitions:
            raise RefusedError(
                f"partition {self._partition} lies nowhere yet", Status.UNKNOWN_PARTITION
            )
        if message.empty_on is not None:
            return await self._begin_empty(message, message.empty_on)
        self._require_leaderless(accept_loss=message.accept_loss)
        election_driver = self._node.election_driver
        if not message.accept_loss:
            return await self._ask(message.request)
        with election_driver.held(self._partition):
            stands = await self._ask(message.request)
            if stands.leader is not None:
                return stands
            _log.warning("an operator accepts a loss", partition=self._partition)
            await election_driver.recover(self._partition)
        return _recovered(stands, self._record)

    async def _begin_empty(self, message: m.RecoverPartition, broker: int) -> m.PartitionRecovery:
        """Have the partition begin again on *broker*, if that is ordered; else say what is lost by
        it."""
        controller, election_driver = self._node.controller, self._node.election_driver
        if broker not in controller.state.brokers:
            raise RefusedError(f"there is no broker {broker}", Status.INVALID_OPTION)
        if not controller.is_live(broker):
            raise RefusedError(f"broker {broker} is away", Status.NO_BROKER)
        self._require_no_replica()
        with election_driver.held(self._partition):
            if not await election_driver.gather_acceptances(self._partition):
                return self._decided(message.request)
            self._require_no_replica()
            stands = attrs.evolve(self._describe(message.request), candidate=broker)
            if not message.accept_loss:
                return stands
            _log.warning("an operator has a partition begin empty", partition=self._partition)
            await election_driver.begin_empty(self._partition, broker)
        return _recovered(stands, self._record)

    def _require_no_replica(self) -> None:
        """See that no broker with a replica runs."""
        running = [one for one in self._record.replicas if self._node.controller.is_live(one)]
        if running:
            raise RefusedError(
                f"partition {self._partition} has a replica on broker {running[0]}, which runs: "
                f"`octopi-node partitions recover {self._partition}` shows what it holds; stop "
                "that broker if nothing of it is to be kept",
                Status.INVALID_OPTION,
            )

    async def _ask(self, request: int) -> m.PartitionRecovery:
        """Have the replicas say what they hold."""
        if not await self._node.election_driver.gather_acceptances(self._partition):
            return self._decided(request)
        self._require_patience()
        return self._describe(request)

    def _require_leaderless(self, *, accept_loss: bool) -> None:
        record = self._record
        running = [one for one in record.in_sync if self._node.controller.is_live(one)]
        if not running:
            return
        if len(record.replicas) > 1:
            raise RefusedError(
                f"partition {self._partition}: broker {running[0]} is in sync and runs, nothing "
                "has to be given up",
                Status.INVALID_OPTION,
            )
        if not accept_loss:
            raise RefusedError(
                f"partition {self._partition} has one replica, on broker {running[0]}, which runs; "
                "if `octopi-node status` shows damage in its logs, --accept-loss has it go on with "
                "what is sound",
                Status.INVALID_OPTION,
            )

    def _require_patience(self) -> None:
        """See that nothing comes of waiting."""
        accepts = self._machine.changes[self._partition].accepts
        slow = [
            one
            for one in sorted(newest_set(self._record))
            if self._node.controller.is_live(one) and one not in accepts
        ]
        if slow:
            raise NotReadyError(
                f"partition {self._partition}: brokers {slow} run and have not said yet what they "
                "hold"
            )

    def _decided(self, request: int) -> m.PartitionRecovery:
        """It has a leader, and nothing was ordered."""
        record = self._record
        return m.PartitionRecovery(
            request,
            self._partition,
            leader=record.leader,
            epoch=record.epoch,
            recovered=False,
            candidate=record.leader,
            waits_for=[],
            replicas=[],
            lost=[],
            lost_log_count=0,
        )

    def _describe(self, request: int) -> m.PartitionRecovery:
        record, machine = self._record, self._machine
        candidate: int | None = None
        losses: list[LogLoss] = []
        for entry in machine.conclude(self._partition, ordered=True):
            assert isinstance(entry, PartitionDecided)
            candidate = entry.record.leader
            losses = machine.losses(entry.record)
        topics = self._node.controller.state.topics_on({self._partition})
        names = {one.topic_id: one.topic for one in topics}
        return m.PartitionRecovery(
            request,
            self._partition,
            leader=None,
            epoch=record.epoch,
            recovered=False,
            candidate=candidate,
            waits_for=machine.waits_for(self._partition),
            replicas=[self._holding(one) for one in record.replicas],
            lost=[
                m.LostRange(names[one.topic_id], one.kept_end, one.known_end)
                for one in losses[:_LOST_COUNT_MAX]
            ],
            lost_log_count=len(losses),
            emptied=[] if candidate is not None else sorted(names.values())[:_LOST_COUNT_MAX],
            emptied_count=0 if candidate is not None else len(names),
        )

    def _holding(self, broker: int) -> m.ReplicaHolding:
        machine, controller = self._machine, self._node.controller
        change = machine.changes[self._partition]
        live, record = controller.is_live(broker), self._record
        member = broker in newest_set(record) | set(record.lost)
        accepted = change.accepts.get(broker)
        if accepted is None:
            return m.ReplicaHolding(broker, live, member, False, False, 0, 0, 0, 0)
        missing = change.losses(broker, machine.topic_ids(self._partition))
        return m.ReplicaHolding(
            broker,
            live,
            member,
            answered=True,
            sound=is_sound(accepted) and not controller.state.brokers[broker].replaced,
            log_epoch=accepted.log_epoch,
            log_count=len(accepted.ends),
            held_bytes=sum(log.end for log in accepted.ends),
            missing_bytes=sum(one.known_end - one.kept_end for one in missing),
        )


def _recovered(stood: m.PartitionRecovery, record: m.PartitionRecord) -> m.PartitionRecovery:
    """*stood*, and what was made of it."""
    return m.PartitionRecovery(
        stood.request,
        stood.partition,
        leader=record.leader,
        epoch=record.epoch,
        recovered=record.recovered_epoch == record.epoch,
        candidate=record.leader,
        waits_for=stood.waits_for,
        replicas=stood.replicas,
        lost=stood.lost,
        lost_log_count=stood.lost_log_count,
        emptied=stood.emptied,
        emptied_count=stood.emptied_count,
    )
