"""Everything that a part of a client needs to reach its cluster, as one argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from octopi.clients.connections import Connections
from octopi.clients.leader_check import LeaderCheck
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.leader_route import LeaderRoute
from octopi.clients.routing import RequestRouter
from octopi.environment import Environment
from octopi.errors import InvalidOptionError
from octopi.identifiers import PartitionId, TopicName
from octopi.wire.messages import Produce, TopicInfo


@attrs.frozen(eq=False)
class ClusterHandle:
    """Environment, connection pool and routing of one client."""

    environment: Environment
    connections: Connections
    router: RequestRouter
    forwarding_servers: Sequence[str] = ()
    """The servers of a client that has brokers pass its messages on to leaders; empty: it goes to
    leaders itself."""

    @classmethod
    def of(
        cls,
        environment: Environment,
        connections: Connections,
        servers: Sequence[str],
        request_timeout_s: float,
        *,
        forwards: bool = False,
    ) -> ClusterHandle:
        """The cluster with nodes at *servers*: registers or brokers.

        *request_timeout_s*: the time-out for all attempts of one request together.  *forwards*:
        whether brokers of *servers* pass produces on to leaders.
        """
        router = RequestRouter(environment, connections, servers, request_timeout_s)
        return cls(environment, connections, router, tuple(servers) if forwards else ())

    @property
    def forwards(self) -> bool:
        """Whether brokers pass produces on to leaders."""
        return bool(self.forwarding_servers)

    def route(
        self,
        topic: TopicName,
        partition: PartitionId,
        on_described: Callable[[TopicInfo], None],
    ) -> LeaderRoute:
        """The way of produces to the leader of a log.  *on_described* is called with what the
        register says of the topic."""
        if not self.forwarding_servers:
            return LeaderRoute(
                self.lookup, topic, partition, on_described, follows_generations=True
            )
        from octopi.clients.forwarded_route import ForwardedRoute  # most clients need none

        servers = self.forwarding_servers
        return ForwardedRoute(
            self.lookup, topic, partition, on_described, servers, self.connections
        )

    def check_producer_name(self, name: str | None) -> None:
        """Check whether a producer can have *name*; None: it has none.

        Raises:
          InvalidOptionError: if it can't, because it asks each leader itself.
        """
        if name is not None and self.forwards:
            raise InvalidOptionError(
                "name: a named producer asks each leader itself, so it can't have its messages "
                "passed on: connect without on_wrong_node='forward'"
            )

    def addressed(self, message: Produce) -> Produce:
        """*message*, as it is to be sent on that way."""
        return attrs.evolve(message, forward=True) if self.forwarding_servers else message

    @property
    def lookup(self) -> LeaderLookup:
        """The cache of where partitions are."""
        return self.router.lookup

    @property
    def leader_check(self) -> LeaderCheck:
        """Asks the register whether a silent broker was replaced."""
        return self.router.leader_check

    @property
    def request_timeout_s(self) -> float:
        """The time-out for all attempts of one request together."""
        return self.router.timeout_s
