"""Everything that a part of a client needs to reach its cluster, as one argument."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from octopi.clients.connections import Connections
from octopi.clients.leader_check import LeaderCheck
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.routing import RequestRouter
from octopi.environment import Environment


@attrs.frozen(eq=False)
class ClusterHandle:
    """Environment, connection pool and routing of one client."""

    environment: Environment
    connections: Connections
    router: RequestRouter

    @classmethod
    def of(
        cls,
        environment: Environment,
        connections: Connections,
        servers: Sequence[str],
        request_timeout_s: float,
    ) -> ClusterHandle:
        """The cluster with nodes at *servers*: registers or brokers.

        *request_timeout_s*: the time-out for all attempts of one request together.
        """
        router = RequestRouter(environment, connections, servers, request_timeout_s)
        return cls(environment, connections, router)

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
