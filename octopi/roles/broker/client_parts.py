"""What a broker has for its clients, whoever decides in its cluster: readings, durable
subscriptions, retention, and the services of a connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
import trio

from octopi.environment import Environment
from octopi.limits import PREPARE_S
from octopi.roles.broker.asks import DeciderAsks
from octopi.roles.broker.forwarded_produces import ForwardedProduces
from octopi.roles.broker.internal_logs import InternalLogs
from octopi.roles.broker.readers import Readers
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.retaining import Retaining
from octopi.roles.broker.sealing import Sealing
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.broker.services.describe import DescribeService
from octopi.roles.broker.services.forwarding import ForwardingService
from octopi.roles.broker.services.memory import MemoryService
from octopi.roles.broker.services.node import NodeService
from octopi.roles.broker.services.produce import ProduceService
from octopi.roles.broker.services.producers import ProducersService
from octopi.roles.broker.services.read import ReadService
from octopi.roles.broker.services.subscribe import SubscribeService
from octopi.roles.broker.services.subscriptions import SubscriptionService
from octopi.roles.broker.subscriptions.broker_subscriptions import (
    BrokerSubscriptions,
    leaderships,
)
from octopi.transport.services import Service

ServiceMaker = Callable[[ClientContext], Service]


@attrs.frozen
class ClientParts:
    """These parts of one broker."""

    environment: Environment
    replicas: ReplicaManager
    readers: Readers
    internal_logs: InternalLogs
    """The logs ``~subscriptions``."""
    subscriptions: BrokerSubscriptions

    def services(
        self, agent: str, started_at: float, asks: DeciderAsks, forwarded: ForwardedProduces
    ) -> Sequence[ServiceMaker]:
        """The factories of the services of a client connection; called once per broker.  Services
        that need more of the broker than the `ClientContext` has get it here.  *asks*: has answered
        what the broker doesn't answer itself.  *forwarded*: passes produces on to leaders."""
        return (
            partial(ProduceService, forwarded),
            ReadService,
            SubscribeService,
            DescribeService,
            MemoryService,
            partial(NodeService, agent, started_at),
            partial(ProducersService, self.internal_logs),
            partial(SubscriptionService, self.subscriptions),
            partial(ForwardingService, asks),
        )

    async def prepare_hand_over(self) -> None:
        """Do what must be done before other brokers lead, for a limited time."""
        with self.environment.clock.timeout(PREPARE_S):
            await self.subscriptions.prepare_all()


def begin_client_parts(
    environment: Environment,
    replicas: ReplicaManager,
    retention_check_interval_s: float,
    nursery: trio.Nursery,
    *more_logs: InternalLogs,
) -> ClientParts:
    """The parts of a broker, whose tasks begin in *nursery*.  *more_logs*: internal logs beside
    ``~subscriptions``."""
    readers = Readers(environment.clock)
    nursery.start_soon(readers.tail_broadcast.run)
    internal_logs = InternalLogs(environment, replicas.replica)
    for logs in (internal_logs, *more_logs):
        nursery.start_soon(logs.run)
    retaining = Retaining(environment.clock, replicas, internal_logs, *more_logs)
    nursery.start_soon(retaining.run, retention_check_interval_s)
    subscriptions = BrokerSubscriptions(
        environment, internal_logs, partial(leaderships, replicas), nursery
    )
    nursery.start_soon(subscriptions.run)
    replicas.preparation.parts.append(subscriptions.prepare)
    replicas.sealing = Sealing(environment, internal_logs, replicas.replica)
    return ClientParts(environment, replicas, readers, internal_logs, subscriptions)
