"""Recovery of a partition without a leader by an operator: shows what its replicas hold, and
continues with the best of them if ordered.

Replicas report what they hold when they accept an epoch, so the question announces the next epoch.
That does no harm while no broker leads; while one does, no epoch is announced.
"""

from __future__ import annotations

import contextlib
from typing import Final

import attrs

from octopi.coordination.controller import Controller
from octopi.coordination.in_sync_changes import newest_set
from octopi.coordination.recovery_answers import holding, led_answer
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import ACCEPTANCES_WAIT_S
from octopi.logger import get_logger
from octopi.roles.register.election_driver import ElectionDriver
from octopi.roles.register.members import Members
from octopi.wire import messages as m

_log = get_logger(__name__)

_LOST_COUNT_MAX: Final = 1_000


class OperatorRecovery:
    """One question or order of an operator about one partition."""

    def __init__(
        self,
        controller: Controller,
        members: Members,
        election_driver: ElectionDriver,
        partition: PartitionId,
    ) -> None:
        self._controller = controller
        self._machine = controller.elections
        self._members = members
        self._election_driver = election_driver
        self._partition = partition

    @property
    def _record(self) -> m.PartitionRecord:
        return self._controller.state.partitions[self._partition]

    async def answer(self, message: m.RecoverPartition) -> m.PartitionRecovery:
        """Carry out *message*.

        Raises:
          RefusedError: UNKNOWN_PARTITION; INVALID_OPTION, while a replica in sync runs, or any
              replica of a partition that is to begin again; NO_BROKER, if no replica does.
          NotReadyError: if the partition may get a leader without an order; try again later.
        """
        if self._partition not in self._controller.state.partitions:
            raise RefusedError(
                f"partition {self._partition} has no replicas yet", Status.UNKNOWN_PARTITION
            )
        if message.empty_on is not None:
            return await self._begin_empty(message, message.empty_on)
        self._require_leaderless(accept_loss=message.accept_loss)
        if not message.accept_loss:
            return await self._ask(message.request)
        with self._election_driver.held(self._partition):
            stands = await self._ask(message.request)
            if stands.leader is not None:
                return stands
            _log.warning("an operator accepts a loss", partition=self._partition)
            await self._recover()
        return _recovered(stands, self._record)

    async def _begin_empty(
        self, message: m.RecoverPartition, broker: BrokerId
    ) -> m.PartitionRecovery:
        """Have the partition begin again on *broker* if that is ordered; otherwise report what
        would be lost."""
        controller = self._controller
        if broker not in controller.state.brokers:
            raise RefusedError(f"there is no broker {broker}", Status.INVALID_OPTION)
        if not controller.is_live(broker):
            raise RefusedError(f"broker {broker} is away", Status.NO_BROKER)
        self._require_no_replica()
        with self._election_driver.held(self._partition):
            if not await self._gather_acceptances():
                return led_answer(message.request, self._record)
            self._require_no_replica()
            stands = attrs.evolve(self._describe(message.request), candidate=broker)
            if not message.accept_loss:
                return stands
            _log.warning("an operator has a partition begin empty", partition=self._partition)
            await self._conclude_empty(broker)
        return _recovered(stands, self._record)

    def _require_no_replica(self) -> None:
        """Raise RefusedError if a broker with a replica runs."""
        running = [one for one in self._record.replicas if self._controller.is_live(one)]
        if running:
            raise RefusedError(
                f"partition {self._partition} has a replica on broker {running[0]}, which runs: "
                f"`octopi-node partitions recover {self._partition}` shows what it holds; stop "
                "that broker if nothing of it is to be kept",
                Status.INVALID_OPTION,
            )

    async def _ask(self, request: int) -> m.PartitionRecovery:
        """Have the replicas report what they hold."""
        if not await self._gather_acceptances():
            return led_answer(request, self._record)
        self._require_patience()
        return self._describe(request)

    async def _gather_acceptances(self) -> bool:
        """Begin an election, if none is under way, and wait a while for all replicas that run to
        accept; False: the election was decided meanwhile.

        Raises:
          NotReadyError, StorageError: if no election can be begun now.
        """
        partition, changes = self._partition, self._machine.changes
        if partition not in changes:
            await self._election_driver.begin([partition])
        change, live = changes.get(partition), self._members.keys()
        self._election_driver.look()

        def is_over() -> bool:
            if change is None or changes.get(partition) is not change:
                return True
            return live & set(self._record.replicas) <= change.accepts.keys()

        with contextlib.suppress(NotReadyError):
            await self._election_driver.until(is_over, ACCEPTANCES_WAIT_S, "all acceptances")
        return change is not None and changes.get(partition) is change

    async def _recover(self) -> None:
        """Conclude the election with the best of the replicas that have accepted.

        Raises:
          NotReadyError, StorageError: if that can't be done now.
          RefusedError: NO_BROKER, if no replica answers.
        """
        partition = self._partition
        decision = self._machine.conclude(partition, ordered=True)
        if decision is None:
            raise RefusedError(
                f"no replica of partition {partition} answers: start one of the brokers "
                f"{self._record.replicas}; if all their disks are lost for good, "
                f"`octopi-node partitions recover {partition} --empty-on ID`",
                Status.NO_BROKER,
            )
        await self._election_driver.appoint(decision)

    async def _conclude_empty(self, broker: BrokerId) -> None:
        """Conclude the election of a partition without replicas: the partition begins again on
        *broker*.

        Raises:
          NotReadyError, StorageError: if that can't be done now.
        """
        decision = self._machine.begin_empty(self._partition, broker)
        if decision is None:
            raise NotReadyError(
                f"partition {self._partition} can't begin again now: look once more"
            )
        await self._election_driver.appoint(decision)

    def _require_leaderless(self, *, accept_loss: bool) -> None:
        record = self._record
        running = [one for one in record.in_sync if self._controller.is_live(one)]
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
        """Raise an error if waiting may help."""
        accepts = self._machine.changes[self._partition].accepts
        slow = [
            one
            for one in sorted(newest_set(self._record))
            if self._controller.is_live(one) and one not in accepts
        ]
        if slow:
            raise NotReadyError(
                f"partition {self._partition}: brokers {slow} run and have not said yet what they "
                "hold"
            )

    def _describe(self, request: int) -> m.PartitionRecovery:
        record, machine = self._record, self._machine
        decision = machine.conclude(self._partition, ordered=True)
        candidate = decision.record.leader if decision is not None else None
        losses = machine.losses(decision.record) if decision is not None else []
        topics = self._controller.state.topics_on({self._partition})
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
                m.LostRange(names.get(one.topic_id, one.topic_id), one.kept_end, one.known_end)
                for one in losses[:_LOST_COUNT_MAX]
            ],
            lost_log_count=len(losses),
            emptied=[] if candidate is not None else sorted(names.values())[:_LOST_COUNT_MAX],
            emptied_count=0 if candidate is not None else len(names),
        )

    def _holding(self, broker: BrokerId) -> m.ReplicaHolding:
        machine, controller, record = self._machine, self._controller, self._record
        known = controller.state.brokers.get(broker)  # none, if it has not joined this register
        return holding(
            broker,
            machine.changes[self._partition],
            machine.log_ids(self._partition),
            is_live=controller.is_live(broker),
            was_in_sync=broker in newest_set(record) | set(record.lost),
            has_its_disk=known is None or not known.replaced,
        )


def _recovered(stood: m.PartitionRecovery, record: m.PartitionRecord) -> m.PartitionRecovery:
    """The answer *stood*, with the *record* that was decided."""
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
