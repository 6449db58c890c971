"""Serves many connections: each has a session and tasks of its own, and fails alone.

All connections run in one nursery; each has a nursery of its own inside it, for the tasks of its
session.  The sessions know the messages; this module knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

import trio

from octopi.environment import Clock, Environment, Link
from octopi.errors import ConnectionLostError, OctopiError, ProtocolError, RefusedError
from octopi.limits import SHUTDOWN_GRACE_S, STRANGERS_ROUND_S
from octopi.logger import get_logger
from octopi.security.authenticator import Authenticator
from octopi.security.join_secret import SecretSource
from octopi.transport.authorization_filter import AuthorizationFilter
from octopi.transport.close_codes import GOING_AWAY
from octopi.transport.connection import Connection
from octopi.transport.handshake import accept_connection
from octopi.transport.peer_names import peer_shown
from octopi.transport.server_statistics import ServerStatistics
from octopi.transport.sessions import Session
from octopi.transport.turns import ConnectionTurns
from octopi.wire.endpoints import CLIENT, Endpoint

_log = get_logger(__name__)

Role = Literal["register", "broker"]

_STOPPING: Final = "the node is shutting down"


Sessions = Mapping[Endpoint, Callable[[Connection, trio.Nursery], Session]]
"""For each endpoint served, the function that makes the session of a connection.  The nursery is
that of the connection."""


async def serve(
    environment: Environment,
    address: str,
    role: Role,
    agent: str,
    sessions: Sessions,
    *,
    stop: trio.Event,
    traffic: ServerStatistics | None = None,
    authenticator: Authenticator | None = None,
    secrets: SecretSource | None = None,
    cluster: Callable[[], str] = lambda: "",
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *sessions* at *address* until *stop* is set; ``started`` gives the url.  Statistics are
    kept in *traffic*.  With an *authenticator* every client needs a token.  At endpoints that are
    for nodes alone, the peer has to prove that it has one of *secrets*.

    Stopping is graceful: new connections and requests are refused, unanswered requests
    may finish within `SHUTDOWN_GRACE_S`, then each connection is closed with code 1001.
    Cancelling closes them at once.

    Raises:
      UnreachableError: if the node can't listen at *address*.
      InvalidOptionError: if *address* is not an address to listen at.
    """
    endpoints = {endpoint.path: endpoint for endpoint in sessions}
    traffic = traffic or ServerStatistics()
    connections = traffic.connections

    async def handle(link: Link) -> None:
        endpoint = endpoints[link.path]
        try:
            connection = await accept_connection(
                environment,
                link,
                endpoint,
                role=role,
                agent=agent,
                latencies=traffic.latencies,
                authenticator=authenticator,
                opening=strangers.turn(),
                turn=(clients if endpoint is CLIENT else nodes).turn(),
                budget=traffic.memory,
                secrets=secrets,
                cluster=cluster(),
            )
        except (ConnectionLostError, ProtocolError, RefusedError) as error:
            if not isinstance(error, ConnectionLostError):
                traffic.refused[error.status.name.lower()] += 1
            _log.sparing(environment.clock).info(
                "handshake_failed", peer=link.peer, error=str(error)
            )
            return
        try:
            if stop.is_set():
                await connection.close(GOING_AWAY, _STOPPING)
                return
            connections[connection] = endpoint
            traffic.accepted[endpoint.path] += 1
            try:
                await _run_session(environment.clock, connection, sessions[endpoint])
            finally:
                del connections[connection]
        finally:
            connection.memory.close()
            if connection.entry is not None:
                connection.entry.leave()

    problem: OctopiError | None = None
    async with trio.open_nursery() as links:
        # Nodes don't wait for clients, and neither waits for strangers, which may claim anything.
        clients, nodes = (
            ConnectionTurns(environment.clock, environment.stopwatch, links) for _ in range(2)
        )
        strangers = ConnectionTurns(
            environment.clock, environment.stopwatch, links, round_s=STRANGERS_ROUND_S
        )
        async with trio.open_nursery() as listening:
            listen = partial(
                environment.net.listen,
                address,
                handle,
                paths=frozenset(endpoints),
                handler_nursery=links,
            )
            try:
                url: str = await listening.start(listen)
            except OctopiError as error:
                problem = error  # raised below, outside of the nurseries, which would wrap it
            else:
                task_status.started(url)
                await stop.wait()
            listening.cancel_scope.cancel()
        async with trio.open_nursery() as closing:
            for connection in list(connections):
                closing.start_soon(
                    partial(connection.close, GOING_AWAY, _STOPPING, grace_s=SHUTDOWN_GRACE_S)
                )
        # Connections whose handshake is not done yet are cancelled without a grace period.
        links.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def _run_session(
    clock: Clock,
    connection: Connection,
    make_session: Callable[[Connection, trio.Nursery], Session],
) -> None:
    try:
        async with trio.open_nursery() as nursery:
            session = make_session(connection, nursery)
            guard = AuthorizationFilter(connection, session, clock)
            nursery.start_soon(guard.end_in_time)
            await connection.run(guard.handle, on_end=session.closed)
            nursery.cancel_scope.cancel()
    except* Exception:
        # A bug in a session's tasks ends this connection, and no other.
        _log.sparing(clock).exception("session_failed", peer=peer_shown(connection))
