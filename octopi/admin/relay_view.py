"""The parts of a relay that its pages show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from octopi.admin.node_views import NodeFacts
from octopi.admin.refused_streams import RefusedStreams
from octopi.identifiers import BrokerId
from octopi.roles.broker.relay.node import RelayBroker
from octopi.roles.streams.exchange import StreamService
from octopi.transport.server_statistics import ServerStatistics

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class RelayBrokerView:
    """A relay of a static list, as its pages see it."""

    def __init__(self, node: RelayBroker) -> None:
        self.node = node
        self.streams: StreamService = RefusedStreams("relays serve no streams over HTTP yet")

    @property
    def traffic(self) -> ServerStatistics:
        return self.node.traffic

    def facts(self) -> NodeFacts:
        node = self.node
        identity, agent = node.identity, node.options.agent
        return NodeFacts(
            "broker", agent, node.mesh.cluster, identity.broker, identity.incarnation, []
        )

    def why_not_ready(self) -> str:
        return self.node.why_not_ready

    def members(self) -> Iterable[str]:
        return self.node.mesh.relays.values()

    def collectors(self, logs_max: int) -> Sequence[Collector]:
        from octopi.admin.relay_metrics import RelayMetrics

        def clocks() -> Mapping[BrokerId, float]:
            return {} if self.node.links is None else self.node.links.clocks

        node = self.node
        return [RelayMetrics(node.environment.clock, node.partitions, clocks, node.memory)]
