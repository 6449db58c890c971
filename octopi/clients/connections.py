"""The connections of one client: one for each node, opened when first needed.

Each connection has one task of the client's nursery, from its opening to its end.  If a caller is
cancelled while a connection opens, the connection opens all the same, for the other callers.
"""

from __future__ import annotations

import math

import attrs
import trio

from octopi.clients.credentials import Credentials
from octopi.environment import Environment
from octopi.errors import ClosedError, OctopiError, ProtocolError, UnreachableError
from octopi.limits import TOKEN_REFRESH_SHARE
from octopi.retry import reworded
from octopi.transport.addresses import is_secure
from octopi.transport.connection import Connection
from octopi.transport.handshake import (
    NodeCredentials,
    open_connection,
    open_node_connection,
)
from octopi.wire.endpoints import CLIENT
from octopi.wire.messages import Welcome


@attrs.define(eq=False)
class _Opening:
    finished: trio.Event = attrs.field(factory=trio.Event)
    connection: Connection | None = None
    error: OctopiError | None = None

    @property
    def is_usable(self) -> bool:
        if not self.finished.is_set():
            return True
        return self.connection is not None and self.connection.end_reason is None


class Connections:
    """Opens, shares and closes connections; *nursery* owns their tasks."""

    def __init__(
        self,
        environment: Environment,
        nursery: trio.Nursery,
        agent: str,
        credentials: Credentials,
        name: str = "",
    ) -> None:
        """*name*: what nodes show people for these connections; see
        `octopi.clients.options.check_connection_name`."""
        self._environment = environment
        self._nursery = nursery
        self._agent = agent
        self._credentials = credentials
        self._name = name
        self._by_address: dict[str, _Opening] = {}
        self._is_secure = False
        """Whether the client has used TLS with any node.  From then on it sends no token over a
        connection without TLS."""
        self._cluster = self._cluster_at = ""
        """The id of the cluster, and the address of the node that named it; empty: not known."""
        self._is_closed = False

    async def get(self, address: str) -> Connection:
        """The connection to the node at *address*; it is opened if there is none.

        Raises:
          UnreachableError: if the connection can't be opened, TLS was used before and *address* is
              without, or the node belongs to another cluster than those before.
          RefusedError: if the node refuses the client.
          ProtocolError: if the server at *address* is no node.
          InvalidOptionError: if *address* is no address of a node.
          ClosedError: if the client is closed.
        """
        if self._is_closed:
            raise ClosedError("the client is closed")
        opening = self._by_address.get(address)
        if opening is None or not opening.is_usable:
            opening = self._by_address[address] = _Opening()
            self._nursery.start_soon(self._keep, address, opening)
        await opening.finished.wait()
        if opening.connection is not None:
            return opening.connection
        if opening.error is None:
            raise ClosedError("the client was closed")
        raise reworded(opening.error, str(opening.error.args[0]))

    async def open_own(self, address: str) -> Connection:
        """A connection to the node at *address* that is not shared.  The caller runs or detaches
        it, or else closes it.

        Raises:
          What `get` raises.
        """
        if self._is_closed:
            raise ClosedError("the client is closed")
        return await self._open(address)

    def renewal_due_s(self, connection: Connection) -> float:
        """How long the token of *connection* is good, in seconds, before it should be replaced;
        infinity: as long as the connection."""
        welcome = connection.greeting
        expires_ms = welcome.expires_ms if isinstance(welcome, Welcome) else None
        if expires_ms is None or not self._credentials.is_renewable:
            return math.inf
        lasts_s = (expires_ms - self._environment.clock.wall_ms()) / 1000
        return lasts_s * TOKEN_REFRESH_SHARE

    def discard(self, connection: Connection, reason: str) -> None:
        """Close a connection that doesn't work; its users learn that it ended."""
        if not self._is_closed and connection.end_reason is None:
            self._nursery.start_soon(connection.close, 1000, reason)

    async def close(self) -> None:
        """Close all connections in good order."""
        self._is_closed = True
        async with trio.open_nursery() as nursery:
            for opening in self._by_address.values():
                if opening.connection is not None:
                    nursery.start_soon(opening.connection.close, 1000, "the client is done")

    def abandon(self) -> None:
        """Open no more connections; open ones end with the nursery."""
        self._is_closed = True

    async def _keep(self, address: str, opening: _Opening) -> None:
        try:
            try:
                opening.connection = await self._open(address)
            except OctopiError as error:
                opening.error = error
            finally:
                opening.finished.set()
            if opening.connection is not None:
                await self._run(opening.connection)
        finally:
            if self._by_address.get(address) is opening:
                del self._by_address[address]

    async def _open(self, address: str) -> Connection:
        token, secrets = await self._token_for(address), self._credentials.secrets
        here, agent, name = self._environment, self._agent, self._name
        if secrets is None:
            opened = await open_connection(here, address, CLIENT, agent, token=token, name=name)
        else:
            shown = NodeCredentials(secrets, lambda: token)
            opened = await open_node_connection(here, address, CLIENT, agent, shown, name=name)
        if why := self._foreign(address, opened):
            await opened.close(1000, "another cluster")
            raise UnreachableError(why)
        return opened

    def _foreign(self, address: str, opened: Connection) -> str:
        """Why the node at *address* is none of this client's cluster; empty: it is one."""
        greeting = opened.greeting
        cluster = greeting.cluster if isinstance(greeting, Welcome) else ""
        if self._cluster and cluster and cluster != self._cluster:
            return (
                f"{address} belongs to cluster {cluster}, and {self._cluster_at} to cluster "
                f"{self._cluster}: name nodes of one cluster"
            )
        if cluster and not self._cluster:
            self._cluster, self._cluster_at = cluster, address
        return ""

    async def _token_for(self, address: str) -> str | None:
        self._is_secure = self._is_secure or is_secure(address)
        token = await self._credentials.current()
        if token is not None and self._is_secure and not is_secure(address):
            raise UnreachableError(
                f"{address} is without TLS, unlike other nodes of its cluster, so it gets no token"
            )
        return token

    async def _run(self, connection: Connection) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._credentials.keep_fresh, connection, self._environment.clock)
            await connection.run(_refuse)
            nursery.cancel_scope.cancel()


def _refuse(message: object) -> None:
    raise ProtocolError(f"a node sent a request to a client: {type(message).__name__}")
