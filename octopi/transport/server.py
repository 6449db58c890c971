"""Serving: many connections, each with its session, its tasks and its own faults.

In charge of who owns what: a nursery for all connections, one inside it for each, where a
session keeps its tasks.  Knows no message; sessions do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, Protocol

import structlog
import trio

from octopi.environment import Environment, Link
from octopi.errors import ConnectionLostError, ProtocolError
from octopi.limits import SHUTDOWN_GRACE_S
from octopi.transport.connection import GOING_AWAY, Connection
from octopi.transport.handshake import accept_connection
from octopi.wire.endpoints import Endpoint

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

Role = Literal["register", "broker"]


class Session(Protocol):
    """What a role does on one connection."""

    def handle(self, message: object) -> None:
        """Take a message of the peer; see `Connection.run`."""

    def closed(self) -> None:
        """The connection has ended; the tasks of its nursery are cancelled next."""


Sessions = Mapping[Endpoint, Callable[[Connection, trio.Nursery], Session]]
"""For each endpoint served, what makes the session of a connection; the nursery is that
connection's own."""


async def serve(
    environment: Environment,
    address: str,
    role: Role,
    agent: str,
    sessions: Sessions,
    *,
    stop: trio.Event,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *sessions* at *address* until *stop* is set; ``started`` gives the url.

    Stopping is graceful: nobody new is accepted, new requests are refused, unanswered ones
    may finish within `SHUTDOWN_GRACE_S`, then each connection is closed with code 1001.
    Cancelling closes them at once.

    Raises:
      UnreachableError: if the address can't be had.
      InvalidOptionError: if *address* is none.
    """
    endpoints = {endpoint.path: endpoint for endpoint in sessions}
    connections: dict[Connection, None] = {}

    async def handle(link: Link) -> None:
        endpoint = endpoints[link.path]
        try:
            connection = await accept_connection(
                environment, link, endpoint, role=role, agent=agent
            )
        except (ConnectionLostError, ProtocolError) as error:
            _log.info("connection_refused", peer=link.peer, error=str(error))
            return
        connections[connection] = None
        try:
            await _run_session(connection, sessions[endpoint])
        finally:
            del connections[connection]

    async with trio.open_nursery() as links:
        async with trio.open_nursery() as listening:
            url: str = await listening.start(
                partial(
                    environment.net.listen,
                    address,
                    handle,
                    paths=frozenset(endpoints),
                    handler_nursery=links,
                )
            )
            task_status.started(url)
            await stop.wait()
            listening.cancel_scope.cancel()
        for connection in list(connections):
            links.start_soon(
                partial(
                    connection.close,
                    GOING_AWAY,
                    "the node is shutting down",
                    grace_s=SHUTDOWN_GRACE_S,
                )
            )


async def _run_session(
    connection: Connection, make_session: Callable[[Connection, trio.Nursery], Session]
) -> None:
    try:
        async with trio.open_nursery() as nursery:
            session = make_session(connection, nursery)
            try:
                await connection.run(session.handle)
            finally:
                session.closed()
            nursery.cancel_scope.cancel()
    except* Exception:
        # A fault in a session's tasks is ours; it ends this connection and no other.
        _log.exception("session_failed", peer=connection.peer)
