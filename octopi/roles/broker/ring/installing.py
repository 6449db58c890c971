"""Tells a broker's replicas what is in force, one order after another."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from octopi.coordination.agreed_partition import RegisteredIncarnation
from octopi.environment import Clock
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import ORDER_RETRY_S
from octopi.logger import get_logger
from octopi.ring.partition import RingPartition
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.routes import RingRoutes

_log = get_logger(__name__)


class DecisionInstalling:
    """What the replicas have not been told yet.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        clock: Clock,
        me: RegisteredIncarnation,
        machines: Mapping[PartitionId, RingPartition],
        replicas: ReplicaManager,
        routes: RingRoutes,
    ) -> None:
        """*machines*: those of all partitions; the caller adds more later."""
        self._clock = clock
        self._me = me
        self._machines = machines
        self._replicas = replicas
        self._routes = routes
        self._uninstalled: set[PartitionId] = set()
        self._live: frozenset[BrokerId] = frozenset()
        self._has_news = trio.Event()

    def install(self, partition: PartitionId) -> None:
        """Tell what is in force in a partition, as soon as this process is registered for it."""
        self._uninstalled.add(partition)
        self._has_news.set()

    def note_live(self, others: frozenset[BrokerId]) -> None:
        """Tell who is there, if that has changed."""
        if others != self._live:
            self._live = others
            self._has_news.set()

    async def run(self) -> None:
        """Tell the replicas until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news = trio.Event()
            numbers, self._uninstalled = self._uninstalled, set()
            machines = [self._machines[one] for one in sorted(numbers)]
            records = [
                one.agreed.record
                for one in machines
                if one.is_registered or self._me.broker not in one.agreed.record.replicas
            ]
            brokers = list(self._routes.brokers(self._live | {self._me.broker}))
            undone = await self._replicas.install_partitions(records, brokers)
            for one in undone:
                _log.error("a decision is not carried out", partition=one.partition, why=one.reason)
                if one.partition is not None:
                    self.install(one.partition)
            if undone:
                await self._clock.sleep_until(self._clock.now() + ORDER_RETRY_S)
