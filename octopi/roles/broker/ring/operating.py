"""What operators order in a cluster without a register: any broker carries it out."""

from __future__ import annotations

from typing import Final

from octopi.environment import Clock
from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import HAND_OVER_TIMEOUT_S
from octopi.roles.broker.ring.cluster_keeper import ClusterKeeper
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.transport.pending_requests import Numbered
from octopi.wire import messages as m

_UNBUILT: Final = {
    m.AddPartitions: "partitions can't be added to a cluster without a register yet: name more of "
    "them with --partitions when it is formed",
    m.MoveReplica: "in a cluster without a register replicas lie where the ring says: drain the "
    "broker that is to have fewer, or start another one",
    m.RecoverPartition: "a cluster without a register does not recover partitions yet: start the "
    "brokers that the partition waits for",
    m.RemoveBroker: "a cluster without a register does not remove brokers yet: what a broker had "
    "is made elsewhere ten minutes after it was heard last",
}
"""What to do instead of an order that is not carried out."""


class RingOperations:
    """Carries out orders."""

    def __init__(
        self,
        clock: Clock,
        keeper: ClusterKeeper,
        partitions: RingPartitions,
        routes: RingRoutes,
    ) -> None:
        self._clock = clock
        self._keeper = keeper
        self._partitions = partitions
        self._routes = routes

    async def carry_out(self, order: Numbered) -> m.Done:
        """Carry out an order; return the answer.

        Raises:
          RefusedError: why it is not carried out.
          NotReadyError: if it is not known whether it is, because no majority answers.
        """
        match order:
            case m.DrainBroker(broker=broker):
                await self._drain(broker)
            case _:
                why = _UNBUILT.get(type(order)) or (
                    "a cluster without a register does not carry out "
                    f"{m.TYPE_NAMES[type(order)]} yet"
                )
                raise RefusedError(why, Status.INVALID_OPTION)
        return m.Done(order.request)

    async def _drain(self, broker: BrokerId) -> None:
        """Have other brokers lead the partitions of *broker*; it gets no leadership until it is
        started again.

        Raises:
          RefusedError: INVALID_OPTION for an unknown broker; NOT_READY where no other broker could
              lead, or if it was started again meanwhile.
          NotReadyError: see `ClusterKeeper.change`.
        """
        if broker not in self._routes.addresses():
            raise RefusedError(f"there is no broker {broker}", Status.INVALID_OPTION)
        await self._keeper.change(lambda record: record.with_drained(broker))
        with self._clock.timeout(HAND_OVER_TIMEOUT_S):
            while self._led_by(broker):
                await self._partitions.decided.wait()
        if led := self._led_by(broker):
            raise RefusedError(
                f"partition {led[0]} has no other live replica in sync", Status.NOT_READY
            )
        record = self._keeper.record
        if record is None or broker not in record.drained:
            raise RefusedError(f"broker {broker} was started again", Status.NOT_READY)

    def _led_by(self, broker: BrokerId) -> list[PartitionId]:
        return [one.partition for one in self._partitions if one.agreed.record.leader == broker]
