"""The connections of a broker to the others of the ring.

There is one to each address, which is opened when something is to be sent there, and closed when
nothing was for a while.  What is asked is answered on it; the other side asks on a connection of
its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import ConnectionLostError, OctopiError
from octopi.limits import RING_IDLE_S, RING_WAITING_MAX
from octopi.logger import get_logger
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, open_node_connection
from octopi.transport.pending_requests import Numbered
from octopi.wire.endpoints import RING, Endpoint

_log = get_logger(__name__)

Take = Callable[[str, object], None]
"""Takes the address of a broker, and what it said."""


class RingPeers:
    """Sends messages to addresses.  Their tasks are in the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        nursery: trio.Nursery,
        agent: str,
        credentials: NodeCredentials,
        take: Take,
        endpoint: Endpoint = RING,
    ) -> None:
        """*take* gets what comes without being the answer to a request.  *endpoint*: to which the
        connections are made."""
        self._environment = environment
        self._nursery = nursery
        self._agent = agent
        self._credentials = credentials
        self._take = take
        self._endpoint = endpoint
        self._peers: dict[str, _RingPeer] = {}

    def ask(self, address: str, message: Numbered, on_answer: Callable[[object], None]) -> None:
        """Send a request.  *on_answer* gets the answer with the request's own number, a `Failure`,
        or a `ConnectionLostError`; the connection numbers its requests itself."""
        self._peer(address).send(message, on_answer)

    def post(self, address: str, message: object) -> None:
        """Send a notice; without a connection it is lost."""
        self._peer(address).send(message, None)

    def _peer(self, address: str) -> _RingPeer:
        peer = self._peers.get(address)
        if peer is None or peer.is_over:
            peer = self._peers[address] = _RingPeer(self._environment, address, self._take)
            self._nursery.start_soon(self._run, address, peer)
        return peer

    async def _run(self, address: str, peer: _RingPeer) -> None:
        try:
            await peer.run(self._agent, self._credentials, self._endpoint)
        finally:
            if self._peers.get(address) is peer:
                del self._peers[address]


@attrs.frozen
class _UnsentMessage:
    """Something to send as soon as there is a connection."""

    message: object
    on_answer: Callable[[object], None] | None

    def lost(self, error: ConnectionLostError) -> None:
        if self.on_answer is not None:
            self.on_answer(error)


class _RingPeer:
    """The connection to one address, until it ends."""

    def __init__(self, environment: Environment, address: str, take: Take) -> None:
        self._environment = environment
        self._address = address
        self._take = take
        self._waiting: deque[_UnsentMessage] = deque()
        self._connection: Connection | None = None
        self._used_at = environment.clock.now()
        self._failed = False

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more."""
        connection = self._connection
        return self._failed or (connection is not None and connection.end_reason is not None)

    def send(self, message: object, on_answer: Callable[[object], None] | None) -> None:
        """Send *message*, now or when the connection is there."""
        self._used_at = self._environment.clock.now()
        one = _UnsentMessage(message, on_answer)
        if self._connection is not None:
            self._hand_over(self._connection, one)
            return
        self._waiting.append(one)
        if len(self._waiting) > RING_WAITING_MAX:
            self._waiting.popleft().lost(ConnectionLostError(f"{self._address} does not answer"))

    def _hand_over(self, connection: Connection, one: _UnsentMessage) -> None:
        try:
            if one.on_answer is None:
                connection.post(one.message)
            else:
                self._ask(connection, one.message, one.on_answer)
        except ConnectionLostError as error:
            one.lost(error)
        except ValueError as error:  # a fault of ours, or what a broken peer made us say
            _log.sparing(self._environment.clock).error("message not sent", why=str(error))
            one.lost(ConnectionLostError(str(error)))

    def _ask(
        self,
        connection: Connection,
        message: Any,  # noqa: ANN401
        on_answer: Callable[[object], None],
    ) -> None:
        asked, number = message.request, connection.next_request()

        def take(answer: Any) -> None:  # noqa: ANN401
            connection.forget(number)
            if not isinstance(answer, Exception):
                answer = attrs.evolve(answer, request=asked)
            on_answer(answer)

        connection.ask(attrs.evolve(message, request=number), take)

    async def run(self, agent: str, credentials: NodeCredentials, endpoint: Endpoint) -> None:
        """Connect, and stay connected while there is something to say."""
        clock = self._environment.clock
        why = ConnectionLostError("the broker ends")
        try:
            connection = await open_node_connection(
                self._environment, self._address, endpoint, agent, credentials
            )
            self._connection = connection
            while self._waiting:
                self._hand_over(connection, self._waiting.popleft())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._close_idle, connection)
                await connection.run(self._said)
                nursery.cancel_scope.cancel()
        except OctopiError as error:
            _log.sparing(clock).info("broker not reached", broker=self._address, why=str(error))
            why = ConnectionLostError(str(error))
        finally:
            self._failed = True
            while self._waiting:
                self._waiting.popleft().lost(why)

    def _said(self, message: object) -> None:
        self._take(self._address, message)

    async def _close_idle(self, connection: Connection) -> None:
        clock = self._environment.clock
        while (until := self._used_at + RING_IDLE_S) > clock.now():
            await clock.sleep_until(until)
        await connection.close(1000, "nothing to say")
