"""A register of several as long as it isn't active, as people and requests over HTTP see it."""

from __future__ import annotations

from octopi.coordination.journal_entries import ClusterFormed
from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError
from octopi.limits import HTTP_BODY_BYTES_MAX
from octopi.roles.register.group.group import RegisterGroup
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.register_journal import decode
from octopi.roles.streams import exchange
from octopi.roles.streams.exchange import StreamCaller
from octopi.roles.streams.forwarding import forward
from octopi.streams import paths
from octopi.transport.http_requests import HttpAnswer, HttpRequest
from octopi.transport.server_statistics import ServerStatistics


class StandbyRegister:
    """A register that isn't active now."""

    def __init__(
        self,
        environment: Environment,
        options: RegisterOptions,
        group: RegisterGroup,
        traffic: ServerStatistics,
    ) -> None:
        self.options = options
        self.traffic = traffic
        self._cluster = ""
        self._environment = environment
        self._group = group

    @property
    def cluster(self) -> str:
        """The id of the cluster, which is decided for good; empty: none is."""
        if not self._cluster:
            replica = self._group.replica
            entries = map(decode, replica.history.contents(replica.committed))
            formed = (one.cluster for one in entries if isinstance(one, ClusterFormed))
            self._cluster = next(formed, "")
        return self._cluster

    @property
    def active_address(self) -> str:
        """The address of the active register; empty: this one knows of none."""
        return self._group.active_address

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        """See `octopi.roles.streams.exchange.StreamService`: the active register answers."""
        try:
            topic = paths.topic_of(request.path)
            caller.require_method(request.method, topic)
            memory = caller.accounts(self.traffic.memory)
            body = await exchange.received(request, memory, HTTP_BODY_BYTES_MAX)
            return await forward(self._environment, request, body, caller, self._locate)
        except OctopiError as error:
            return exchange.problem_answer(error)

    async def _locate(self) -> str:
        if address := self.active_address:
            return address
        raise NotReadyError("no register is active now")
