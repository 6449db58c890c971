"""The connection over which a broker asks its register what clients of the broker ask it.

It is opened when a client first asks something that only the register answers, and stays open.  It
is not the membership connection, so no client can delay what keeps the broker a member.

A request is passed on once.  If the connection ends before the answer, nobody here knows whether
the request was carried out: the client is told so (`octopi.errors.Status.ANSWER_LOST`) and decides.
If it could not be sent, the client is told soon that the broker can't answer now
(`octopi.errors.NotReadyError`), and may ask another node.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
)
from octopi.limits import (
    ASK_CONNECT_S,
    ASK_TIMEOUT_S,
    ASKED_ORDERS_MAX,
    ASKS_IN_FLIGHT_MAX,
    BACKOFF_S_FIRST,
)
from octopi.logger import get_logger
from octopi.roles.broker.register_addresses import RegisterAddresses
from octopi.security.authenticator import AuthenticatedPeer
from octopi.transport.connection import Connection
from octopi.transport.failures import refusal
from octopi.transport.handshake import NodeCredentials, open_node_connection
from octopi.transport.pending_requests import Numbered
from octopi.wire import messages as m
from octopi.wire.codec import encode
from octopi.wire.endpoints import PEER

_log = get_logger(__name__)


@attrs.frozen
class AskingClient:
    """Who asks."""

    entry: AuthenticatedPeer | None
    """What the client's token proved; None: the node requires no tokens."""
    places: trio.Semaphore
    """Bounds the requests of its connection that are passed on at a time."""
    connection: Connection | None = None
    """That of the client; None: nothing is answered over it here."""

    def ask(self, request: int, message: object) -> m.Ask:
        """The `Ask` with the client's request *message*."""
        data = encode(message)
        if self.entry is None:
            return m.Ask(request, data)
        identity = self.entry.identity
        granted = [
            m.GrantedPatterns(verb.value, list(patterns))
            for verb, patterns in identity.grants.patterns.items()
        ]
        return m.Ask(request, data, identity.subject, granted, identity.quota.topics)


class PeerConnection:
    """Passes requests on to the register.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        registers: RegisterAddresses,
        agent: str,
        credentials: NodeCredentials,
    ) -> None:
        """*registers*: their addresses, which are tried in turn."""
        self._environment = environment
        self._registers = registers
        self._agent = agent
        self._credentials = credentials
        self._places = trio.Semaphore(ASKS_IN_FLIGHT_MAX)
        self._order_count = 0
        self._connection: Connection | None = None
        self._wanted = trio.Event()
        """Set when a request needs the connection and it isn't open."""
        self._tried = trio.Event()
        """Set when an attempt to open it has ended."""
        self._failed_at = -math.inf
        self._why = "it has not answered yet"
        """Why the last attempt failed."""
        if environment.watch is not None:
            environment.watch(self)

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        connection = self._connection
        asked_count = 0 if connection is None else connection.statistics().awaited_count
        return {"passed on": asked_count}

    async def run(self) -> None:
        """Open the connection whenever a request needs it, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wanted.wait()
                connection = await self._open()
                if connection is not None:
                    await nursery.start(connection.run, _take_no_request)
                    self._connection = connection
                else:
                    self._failed_at = self._environment.clock.now()
                self._wanted = trio.Event()
                tried, self._tried = self._tried, trio.Event()
                tried.set()

    async def _open(self) -> Connection | None:
        """A new connection; None if there is none at any address."""
        for register in self._registers:
            try:
                return await open_node_connection(
                    self._environment, register, PEER, self._agent, self._credentials
                )
            except OctopiError as error:
                self._why = f"{register}: {error.args[0]}"
        _log.sparing(self._environment.clock).info("the register can't be asked", why=self._why)
        return None

    async def ask(self, message: Numbered, client: AskingClient) -> bytes:
        """Pass *message* of *client* on, once; return the register's answer to it, encoded, which
        may be a `Failure`.

        Raises:
          NotReadyError: if it was not sent to the register.
          RefusedError: ANSWER_LOST, if it was sent and no answer came; TOO_MANY, if too many orders
              are under way; or what the register refused an `Ask` with.
        """
        name, asked_s = m.TYPE_NAMES[type(message)], m.DECLARATIONS[type(message)].asked_s
        assert asked_s is not None, f"{name} is not passed on"
        answers: list[object] = []
        sent = trio.Event()
        with self._environment.clock.timeout(asked_s):
            async with self._turn(client, is_order=asked_s > ASK_TIMEOUT_S):
                connection = await self._opened()
                await self._carry(connection, message, client, answers, sent)
        if not sent.is_set():
            raise NotReadyError(f"{name} had no turn at this broker within {asked_s:g} s")
        if not answers:
            answers.append(ConnectionLostError(f"no answer within {asked_s:g} s"))
        if isinstance(answers[0], m.Failure) and answers[0].status == Status.NOT_LEADER:
            raise await self._standby(refusal(answers[0]))
        return _content(name, answers[0])

    async def _standby(self, refused: RefusedError) -> NotReadyError:
        """The register that was asked is a standby, and has not looked at the request: another one
        is asked next.  The error for who asked."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if not self._registers.redirected(refused):
                self._registers.failed(self._registers.first)
            await connection.close(1000, "another register is active")
        return NotReadyError(f"the register that this broker asked has changed ({refused})")

    @asynccontextmanager
    async def _turn(self, client: AskingClient, *, is_order: bool) -> AsyncIterator[None]:
        """Wait for a turn; within the block one request may be passed on.  An order of an operator,
        which may last, waits for none, and keeps no other request waiting.

        Raises:
          RefusedError: TOO_MANY, if too many orders are under way.
        """
        if not is_order:
            async with client.places, self._places:
                yield
            return
        if self._order_count >= ASKED_ORDERS_MAX:
            raise RefusedError(
                f"this broker has passed on {ASKED_ORDERS_MAX} orders that are not carried out yet",
                Status.TOO_MANY,
            )
        self._order_count += 1
        try:
            yield
        finally:
            self._order_count -= 1

    async def _opened(self) -> Connection:
        """The connection; it is opened if there is none.

        Raises:
          NotReadyError: if that fails, or takes long.
        """
        clock = self._environment.clock
        if (connection := self._open_connection) is not None:
            return connection
        if clock.now() >= self._failed_at + BACKOFF_S_FIRST:
            self._wanted.set()
            with clock.timeout(ASK_CONNECT_S):
                await self._tried.wait()
        if (connection := self._open_connection) is not None:
            return connection
        raise NotReadyError(f"this broker can't reach its register now ({self._why})")

    @property
    def _open_connection(self) -> Connection | None:
        connection = self._connection
        return None if connection is None or connection.end_reason is not None else connection

    async def _carry(
        self,
        connection: Connection,
        message: Numbered,
        client: AskingClient,
        answers: list[object],
        sent: trio.Event,
    ) -> None:
        """Send *message*, and put the answer, or the `ConnectionLostError`, into *answers*.

        Raises:
          NotReadyError: if it was not sent.
        """
        answered = trio.Event()

        def take(answer: object) -> None:
            answers.append(answer)
            answered.set()

        number = connection.next_request()
        try:
            await connection.drained()
            connection.ask(client.ask(number, message), take)
        except ConnectionLostError as error:
            raise NotReadyError(f"this broker has just lost its register ({error})") from error
        sent.set()
        try:
            await answered.wait()
        finally:
            connection.forget(number)


def _content(name: str, answer: object) -> bytes:
    """What the client is to get, which asked with a message of the type *name*.

    Raises:
      RefusedError: see `PeerConnection.ask`.
    """
    match answer:
        case m.Answer(message=data):
            return data
        case m.Failure():
            raise refusal(answer)
    raise RefusedError(
        f"this broker passed {name} on to the register, and has no answer: {answer}",
        Status.ANSWER_LOST,
    )


def _take_no_request(message: object) -> None:
    raise ProtocolError(f"a register sent a request to a broker: {type(message).__name__}")
