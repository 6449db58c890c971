"""The parts of a register that its pages show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from octopi.admin.node_views import NodeFacts
from octopi.roles.register.group.standby import StandbyRegister
from octopi.roles.register.node import RegisterNode
from octopi.roles.register.streams import RegisterStreams
from octopi.roles.streams.exchange import StreamService
from octopi.transport.server_statistics import ServerStatistics

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class RegisterNodeView:
    """A register, as its pages see it."""

    def __init__(self, node: RegisterNode) -> None:
        self.node = node
        self.streams: StreamService = RegisterStreams(node.environment, node)

    @property
    def traffic(self) -> ServerStatistics:
        return self.node.traffic

    def facts(self) -> NodeFacts:
        options, cluster = self.node.options, self.node.controller.state.cluster
        active = options.address if options.peers else ""
        return NodeFacts("register", options.agent, cluster, None, None, [*options.peers], active)

    def why_not_ready(self) -> str:
        if self.node.failure is not None:
            return f"the register has stopped deciding: {self.node.failure}"
        return (
            "the register is starting: it waits for brokers to report"
            if self.node.is_gathering
            else ""
        )

    def members(self) -> Iterable[str]:
        return [one.address for one in self.node.controller.state.brokers.values()]

    def collectors(self, logs_max: int) -> Sequence[Collector]:
        from octopi.admin.register_metrics import RegisterMetrics

        return [RegisterMetrics(self.node)]


class StandbyNodeView:
    """A register that isn't active, as its pages see it."""

    def __init__(self, standby: StandbyRegister) -> None:
        self._standby = standby
        self.streams: StreamService = standby

    @property
    def traffic(self) -> ServerStatistics:
        return self._standby.traffic

    def facts(self) -> NodeFacts:
        standby, options = self._standby, self._standby.options
        return NodeFacts(
            "register",
            options.agent,
            standby.cluster,
            None,
            None,
            [*options.peers],
            standby.active_address,
        )

    def why_not_ready(self) -> str:
        return "" if self._standby.active_address else "no register is active"

    def members(self) -> Iterable[str]:
        return self._standby.options.peers

    def collectors(self, logs_max: int) -> Sequence[Collector]:
        return []
