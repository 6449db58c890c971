"""The parts of a broker without a register that its pages show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from octopi.admin.broker_view import why_not_taking
from octopi.admin.node_views import NodeFacts
from octopi.roles.broker.ring.node import RingBroker
from octopi.roles.streams.exchange import StreamService
from octopi.transport.server_statistics import ServerStatistics

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class RingBrokerView:
    """A broker of a cluster without a register, as its pages see it."""

    def __init__(self, node: RingBroker) -> None:
        self.node = node
        self.streams: StreamService = node.streams

    @property
    def traffic(self) -> ServerStatistics:
        return self.node.traffic

    def facts(self) -> NodeFacts:
        member, agent = self.node.member, self.node.options.agent
        if member is None:
            return NodeFacts("broker", agent, "", None, None, [], in_ring=True)
        identity = member.identity
        return NodeFacts(
            "broker",
            agent,
            member.cluster,
            identity.broker,
            identity.incarnation,
            [],
            in_ring=True,
        )

    def why_not_ready(self) -> str:
        member = self.node.member
        if member is None:
            return "the broker does not listen yet"
        return member.waits_for or why_not_taking(self.node.replicas)

    def members(self) -> Iterable[str]:
        member = self.node.member
        if member is None or member.chord is None:
            return []
        return [entry.node.address for entry in member.chord.book]

    def collectors(self, logs_max: int) -> Sequence[Collector]:
        from octopi.admin.broker_metrics import BrokerMetrics
        from octopi.admin.ring_metrics import RingMetrics
        from octopi.admin.subscription_metrics import SubscriptionMetrics

        node = self.node
        return [
            BrokerMetrics(node.replicas, node.parts.readers, node.streams.led.readers, logs_max),
            SubscriptionMetrics(node.parts),
            RingMetrics(node),
        ]
