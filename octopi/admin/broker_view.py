"""The parts of a broker that its pages show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from octopi.admin.node_views import NodeFacts
from octopi.identifiers import PartitionId
from octopi.replication.partition_replica import Role
from octopi.roles.broker.node import BrokerNode
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.streams.exchange import StreamService
from octopi.transport.server_statistics import ServerStatistics

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class BrokerNodeView:
    """A broker, as its pages see it."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node
        self.streams: StreamService = node.streams

    @property
    def traffic(self) -> ServerStatistics:
        return self.node.traffic

    def facts(self) -> NodeFacts:
        options, link = self.node.options, self.node.link
        identity = None if link is None else link.identity
        return NodeFacts(
            "broker",
            options.agent,
            identity.cluster if identity else "",
            identity.broker if identity else None,
            identity.incarnation if identity else None,
            options.registers,
        )

    def why_not_ready(self) -> str:
        link, manager = self.node.link, self.node.replicas
        if link is None or not link.is_joined:
            if self.node.question is not None and self.node.question.waits_for:
                return self.node.question.waits_for
            return "the broker is not connected to the register yet"
        return why_not_taking(manager) or self.node.relays.why_not_ready

    def members(self) -> Iterable[str]:
        return [*self.node.options.registers, *self.node.replicas.metadata.addresses.values()]

    def collectors(self, logs_max: int) -> Sequence[Collector]:
        from octopi.admin.broker_metrics import BrokerMetrics
        from octopi.admin.relay_metrics import RelayMetrics
        from octopi.admin.subscription_metrics import SubscriptionMetrics

        node, parts, relays = self.node, self.node.parts, self.node.relays
        return [
            BrokerMetrics(node.replicas, parts.readers, node.streams.readers, logs_max),
            SubscriptionMetrics(parts),
            RelayMetrics(
                node.environment.clock, relays.partitions, lambda: relays.clocks, relays.memory
            ),
        ]


def why_not_taking(manager: ReplicaManager) -> str:
    """Why a broker takes no records for something that it leads; empty: it takes them."""
    led = [one.partition for one in manager.replicas if one.machine.role == Role.LEADER]
    if led and manager.status.disk.trouble:
        return f"{manager.status.disk.trouble}; it leads {_some(led)}"
    troubled = manager.status.troubles(manager.replicas)
    hurt = [one for one in led if one in troubled]
    return f"it leads {_some(hurt)}: {troubled[hurt[0]]}" if hurt else ""


def _some(partitions: list[PartitionId]) -> str:
    """The first ten numbers of *partitions*, as a text."""
    numbers = " ".join(str(one) for one in sorted(partitions)[:10])
    more = " ..." if len(partitions) > 10 else ""
    return f"partition{'s' * (len(partitions) > 1)} {numbers}{more}"
