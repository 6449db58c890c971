"""Describes this broker's process to clients."""

from __future__ import annotations

from octopi.roles.broker.services.context import ServiceContext
from octopi.transport.services import Service
from octopi.wire import messages as m


class NodeService(Service):
    """Tells the broker's program, and how long it has served."""

    def __init__(self, agent: str, started_at: float, context: ServiceContext) -> None:
        """*started_at*: when the broker began to serve, by its clock."""
        super().__init__({m.DescribeNode: self._tell})
        self._agent = agent
        self._started_at = started_at
        self._clock = context.environment.clock
        self._connection = context.connection

    def _tell(self, message: m.DescribeNode) -> None:
        uptime_s = self._clock.now() - self._started_at
        self._connection.post(
            m.NodeDescription(message.request, self._agent, round(uptime_s * 1000))
        )
