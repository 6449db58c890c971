"""The parts of a relay that its pages show."""

from __future__ import annotations

from collections.abc import Iterable

from octopi.admin.node_views import NodeFacts
from octopi.errors import RefusedError, Status
from octopi.roles.broker.relay.node import RelayBroker
from octopi.roles.streams.exchange import StreamCaller, StreamService, problem_answer
from octopi.transport.http_requests import HttpAnswer, HttpRequest
from octopi.transport.server_statistics import ServerStatistics


class RelayBrokerView:
    """A relay of a static list, as its pages see it."""

    def __init__(self, node: RelayBroker) -> None:
        self.node = node
        self.streams: StreamService = _NoRelayStreams()

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


class _NoRelayStreams:
    """Refuses requests for streams."""

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        return problem_answer(
            RefusedError("relays serve no streams over HTTP yet", Status.INVALID_OPTION)
        )
