"""Opens what a client needs to reach its cluster, for a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from octopi.clients.background import background_tasks, check_trio
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.connections import Connections
from octopi.clients.credentials import Credentials
from octopi.clients.options import check_connection_name, one_of, within
from octopi.environment import Environment
from octopi.errors import InvalidOptionError
from octopi.operating_system import (
    SystemClock,
    SystemDisk,
    SystemRandomness,
    SystemStreams,
    wants_plain_websocket,
)
from octopi.security.tls import Tls
from octopi.transport.addresses import server_address
from octopi.transport.websocket import WebSocketNet


@attrs.frozen
class ConnectOptions:
    """The options of `octopi.connect`, checked.

    Raises:
      InvalidOptionError: when it is made, if one of them is out of its range.
    """

    servers: Sequence[str]
    credentials: Credentials
    tls: Tls | None
    request_timeout_s: float
    environment: Environment | None
    """None: network, clock and randomness of the system."""
    name: str
    on_wrong_node: str
    agent: str

    def __attrs_post_init__(self) -> None:
        if not self.servers:
            raise InvalidOptionError("name at least one server")
        for address in self.servers:
            server_address(address)
        within("request_timeout_s", self.request_timeout_s, 0.001, 86_400)
        check_connection_name(self.name)
        one_of("on_wrong_node", self.on_wrong_node, "redirect", "forward")


@asynccontextmanager
async def opened_cluster(options: ConnectOptions) -> AsyncIterator[ClusterHandle]:
    """The cluster that *options* name.  Connections are made when they are needed."""
    check_trio("octopi.connect", "octopi.aio.connect")
    async with background_tasks() as nursery:
        environment = options.environment
        if environment is None:
            environment = _system_environment(nursery, options.tls)
        connections = Connections(
            environment, nursery, options.agent, options.credentials, options.name
        )
        try:
            yield ClusterHandle.of(
                environment,
                connections,
                options.servers,
                options.request_timeout_s,
                forwards=options.on_wrong_node == "forward",
            )
            await connections.close()
        finally:
            connections.abandon()


def _system_environment(nursery: trio.Nursery, tls: Tls | None) -> Environment:
    clock = SystemClock()
    net = WebSocketNet(SystemStreams(), clock, nursery, plain=wants_plain_websocket(), tls=tls)
    return Environment(clock, net, SystemDisk(), SystemRandomness())
