"""What operators order: drains, more partitions, moves, removals and recoveries."""

from __future__ import annotations

from functools import partial

from octopi.coordination.recovery_answers import led_answer
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import ACCEPTANCES_WAIT_S, RECONNECT_GRACE_S
from octopi.logger import get_logger
from octopi.roles.earlier_clients import described_to
from octopi.roles.register.operator_recovery import OperatorRecovery
from octopi.roles.register.services.context import RegisterContext
from octopi.transport.services import Service
from octopi.wire import messages as m

_log = get_logger(__name__)

_Order = (
    m.HandOverToRing
    | m.HandOverToRegisters
    | m.DrainBroker
    | m.AddPartitions
    | m.MoveReplica
    | m.RemoveBroker
    | m.SetRelays
    | m.GrowTopic
    | m.MoveTopic
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
                m.GrowTopic: self._start,
                m.MoveTopic: self._start,
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
        if isinstance(message, m.GrowTopic | m.MoveTopic):
            self._connection.post(await self._with_other_partitions(message))
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

    async def _with_other_partitions(
        self, message: m.GrowTopic | m.MoveTopic
    ) -> m.TopicDescription:
        """Bring another generation of a topic into force."""
        generations = self._node.generations
        match message:
            case m.GrowTopic(topic=name, partition_count=count):
                topic = await generations.grow(name, count)
            case m.MoveTopic(topic=name, partition=partition):
                topic = await generations.move(name, PartitionId(partition))
        info = described_to(self._connection.version, self._node.topics.info(topic))
        return m.TopicDescription(message.request, info)

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
        if missing := node.controller.missing_reports(message.partition):
            self._connection.post(await self._go_on_without(message, missing))
            return
        recovery = OperatorRecovery(
            node.controller, node.members, node.election_driver, message.partition
        )
        self._connection.post(await recovery.answer(message))

    async def _go_on_without(
        self, message: m.RecoverPartition, missing: list[BrokerId]
    ) -> m.PartitionRecovery:
        """Go on with a partition that this register learns again, although brokers that could know
        a newer decision have not come.

        Raises:
          RefusedError: if that is not ordered.
          NotReadyError: if no replica leads soon.
        """
        node, partition = self._node, message.partition
        if not message.accept_loss:
            names = ", ".join(map(str, missing))
            raise RefusedError(
                f"this register learns again what was decided about partition {partition}, and "
                f"waits for broker {names}: start it; if its disk is lost for good, `octopi-node "
                f"partitions recover {partition} --accept-loss` goes on with what the others know",
                Status.INVALID_OPTION,
            )
        _log.warning("an operator accepts a loss", partition=partition, without=missing)
        adoption = node.controller.adopt_unreported(partition)
        node.decisions.persist(adoption)
        node.controller.adopted(adoption)
        await node.decisions.durable(adoption)
        await node.members.tell_learned(adoption.topics, None)
        state, members = node.controller.state, list(node.members.values())
        await node.members.tell_partitions([state.partitions[partition]], members)
        node.election_driver.look()
        known = state.partitions[partition]

        def is_led() -> bool:
            record = state.partitions[partition]
            return record.epoch > known.epoch or node.controller.is_live(record.leader)

        await node.election_driver.until(is_led, RECONNECT_GRACE_S + ACCEPTANCES_WAIT_S, "a leader")
        return led_answer(message.request, state.partitions[partition])
