"""A small server for tests of the transport: it answers every produce at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from octopi.environment import Environment, Net, Stopwatch, StreamNet, standing_still
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.limits import CONNECTIONS_MAX
from octopi.operating_system import SystemClock, SystemDisk, SystemRandomness, SystemStreams
from octopi.security.authenticator import Authenticator
from octopi.security.tls import Tls
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_connection, open_node_connection
from octopi.transport.http_front import HttpSite
from octopi.transport.server import serve
from octopi.transport.websocket import WebSocketNet
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, MEMBERSHIP, Endpoint
from tests.kit.join_secrets import MEMBER, SECRETS


def environment_of(net: Net) -> Environment:
    return Environment(SystemClock(), net, SystemDisk(), SystemRandomness())


@attrs.define
class EchoSession:
    """Answers produces and fetches; the topics ``later``, ``fault`` and ``crash`` do that."""

    connection: Connection
    nursery: trio.Nursery
    heard: list[Any] = attrs.Factory(list)
    regranted_count: int = 0
    ended: trio.Event = attrs.Factory(trio.Event)

    def handle(self, message: object) -> None:
        self.heard.append(message)
        if isinstance(message, m.Fetch):
            self.connection.post(
                m.Fetched(message.request, "", bytes(message.bytes_max), Offset(0), Offset(0))
            )
        if not isinstance(message, m.Produce) or message.topic == "later":
            return
        if message.topic == "fault":
            raise ZeroDivisionError("a fault in a handler")
        if message.topic == "crash":
            self.nursery.start_soon(self._crash)
        else:
            self.connection.post(m.Produced(message.request, Offset(0), Epoch(1), False))

    def token_refreshed(self) -> None:
        self.regranted_count += 1

    def closed(self) -> None:
        self.ended.set()

    async def _crash(self) -> None:
        raise ZeroDivisionError("a fault in a task")


@attrs.define
class Server:
    """A running server and a way to reach it."""

    environment: Environment
    streams: StreamNet
    websockets: WebSocketNet
    url: str
    stop: trio.Event
    ended: trio.Event
    sessions: list[EchoSession]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def connect(self, endpoint: Endpoint = CLIENT) -> Connection:
        here, agent = self.environment, "test client"
        if endpoint.is_for_nodes:
            return await open_node_connection(here, self.url, endpoint, agent, MEMBER)
        return await open_connection(here, self.url, endpoint, agent)

    @asynccontextmanager
    async def client(
        self, *, token: str | None = None, shown: NodeCredentials | None = None
    ) -> AsyncIterator[Connection]:
        """A running connection of a client; of an operator, with what is *shown*."""
        here, agent = self.environment, "test client"
        if shown is None:
            connection = await open_connection(here, self.url, CLIENT, agent, token=token)
        else:
            connection = await open_node_connection(here, self.url, CLIENT, agent, shown)
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run, lambda message: None)
            yield connection
            await connection.close()

    async def still_serves(self) -> None:
        """Fail if a new client isn't served as ever."""
        async with self.client() as client:
            question = m.Produce(client.next_request(), "t", PartitionId(0), b"")
            await client.request(question, m.Produced, 5)


@asynccontextmanager
async def serving(
    *,
    streams: StreamNet | None = None,
    links: Net | None = None,
    connections_max: int = CONNECTIONS_MAX,
    site: HttpSite | None = None,
    tls: Tls | None = None,
    stopwatch: Stopwatch = standing_still,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[Server]:
    """A server within the block: on *links*, or on WebSockets over *streams* (sockets), with
    *site* in front of them, and *tls*.  *stopwatch*: times the turns.  *authenticator*: checks
    tokens."""
    async with trio.open_nursery() as background:
        streams = streams or SystemStreams()
        websockets = WebSocketNet(
            streams,
            SystemClock(),
            background,
            connections_max=connections_max,
            site=site,
            tls=tls,
            stopwatch=stopwatch,
        )
        environment = attrs.evolve(environment_of(links or websockets), stopwatch=stopwatch)
        sessions: list[EchoSession] = []

        def make_session(connection: Connection, nursery: trio.Nursery) -> EchoSession:
            sessions.append(EchoSession(connection, nursery))
            return sessions[-1]

        stop, ended = trio.Event(), trio.Event()

        async def run(*, task_status: trio.TaskStatus[str]) -> None:
            await serve(
                environment,
                "127.0.0.1:0",
                "broker",
                "test server",
                {CLIENT: make_session, MEMBERSHIP: make_session},
                stop=stop,
                authenticator=authenticator,
                secrets=SECRETS,
                task_status=task_status,
            )
            ended.set()

        async with trio.open_nursery() as nursery:
            url = await nursery.start(run)
            yield Server(environment, streams, websockets, url, stop, ended, sessions)
            nursery.cancel_scope.cancel()
        background.cancel_scope.cancel()
