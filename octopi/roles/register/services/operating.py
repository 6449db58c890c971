"""What operators order: drains, more partitions, moves, removals and recoveries."""

from __future__ import annotations

from functools import partial

from octopi.errors import NotReadyError
from octopi.roles.register.operator_recovery import OperatorRecovery
from octopi.roles.register.services.context import RegisterContext
from octopi.transport.services import Service
from octopi.wire import messages as m

_Order = (
    m.HandOverToRing
    | m.HandOverToRegisters
    | m.DrainBroker
    | m.AddPartitions
    | m.MoveReplica
    | m.RemoveBroker
    | m.SetRelays
)


class OperatingService(Service):
    """Carries out what operators order; each order has a task in the connection's nursery."""

    def __init__(self, context: RegisterContext) -> None:
        super().__init__(
            {
                m.RecoverPartition: lambda asked: context.start(
                    asked.request, partial(self._recover, asked)
                ),
                m.DrainBroker: self._start,
                m.AddPartitions: self._start,
                m.MoveReplica: self._start,
                m.RemoveBroker: self._start,
                m.SetRelays: self._start,
                m.HandOverToRing: self._start,
                m.HandOverToRegisters: self._start,
            }
        )
        self._context = context
        self._node = context.node
        self._connection = context.connection

    def _start(
        self,
        message: _Order,
    ) -> None:
        self._context.start(message.request, partial(self._operate, message))

    async def _operate(
        self,
        message: _Order,
    ) -> None:
        """What operators ask."""
        if isinstance(message, m.HandOverToRing):
            self._connection.post(await self._node.handing_over.order(message))
            return
        self._node.gathering.require_over()
        if isinstance(message, m.HandOverToRegisters):  # it is so already
            self._connection.post(self._progress(message))
            return
        rebalancing = self._node.rebalancing
        match message:
            case m.DrainBroker(broker=broker):
                await rebalancing.drain(broker)
            case m.AddPartitions(count=count):
                await rebalancing.add_partitions(count)
            case m.MoveReplica():
                await rebalancing.move(message.partition, message.leaving, message.joining)
            case m.RemoveBroker(broker=broker):
                await rebalancing.remove(broker)
            case m.SetRelays(partition=partition, members=members):
                await self._node.relay_sets.change(partition, members)
        self._connection.post(m.Done(message.request))

    def _progress(self, message: m.HandOverToRegisters) -> m.RegistersProgress:
        """Which brokers have come."""
        controller = self._node.controller
        if not controller.state.cluster:
            raise NotReadyError("no broker has joined this register yet")
        brokers = sorted(controller.state.brokers)
        away = [one for one in brokers if not controller.is_live(one)]
        return m.RegistersProgress(message.request, "ended", brokers, away)

    async def _recover(self, message: m.RecoverPartition) -> None:
        """What an operator asks about a partition without a leader, or orders."""
        self._node.gathering.require_over()
        node = self._node
        recovery = OperatorRecovery(
            node.controller, node.members, node.election_driver, message.partition
        )
        self._connection.post(await recovery.answer(message))
