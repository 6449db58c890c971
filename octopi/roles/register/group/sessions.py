"""Connections to a register of several: from other registers, and from brokers and clients."""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.errors import ProtocolError, RefusedError, Status
from octopi.roles.register.group.group import RegisterGroup
from octopi.transport.connection import Connection
from octopi.transport.sessions import Session
from octopi.wire import messages as m
from octopi.wire.endpoints import NOTICES

MakeSession = Callable[[Connection, trio.Nursery], Session]


class RegisterSession:
    """A connection of another register."""

    def __init__(self, group: RegisterGroup) -> None:
        self._group = group
        self._address = ""

    def handle(self, message: object) -> None:
        """Hand *message* to the replica."""
        assert isinstance(message, m.ToRegister)
        replica, address = self._group.replica, message.sender.address
        if address not in replica.addresses or address == replica.identity.address:
            raise ProtocolError(
                f"{address} is in no list of this register: all registers of a cluster need the "
                "same --peers"
            )
        self._address = address
        self._group.receive(message)

    def token_refreshed(self) -> None:
        """Does nothing: the endpoint takes no fresh tokens."""

    def closed(self) -> None:
        """The connection has ended."""
        if self._address:
            self._group.lost(self._address)


class StandbySession:
    """A connection of a broker or client to a register that isn't active."""

    def __init__(self, group: RegisterGroup) -> None:
        self._group = group

    def handle(self, message: object) -> None:
        """Refuse a request, and say where the active register is."""
        if type(message) in NOTICES:
            return  # a broker's inventory, before it asks to join
        address = self._group.active_address
        raise RefusedError(
            f"this register is a standby; {address or 'none'} is active", Status.NOT_LEADER, address
        )

    def token_refreshed(self) -> None:
        """Does nothing."""

    def closed(self) -> None:
        """Does nothing."""


class ActiveConnections:
    """The sessions of brokers and clients while this register is active, so that all of them end
    when it isn't any more."""

    def __init__(self) -> None:
        self._sessions: dict[Connection, Session] = {}
        self._ended = trio.Event()

    def of(self, make: MakeSession, connection: Connection, tasks: trio.Nursery) -> Session:
        """The session that *make* makes."""
        session = make(connection, tasks)
        self._sessions[connection] = session
        return _Watched(session, lambda: self._closed(connection))

    def _closed(self, connection: Connection) -> None:
        del self._sessions[connection]
        self._ended.set()
        self._ended = trio.Event()

    async def end(self, reason: str) -> None:
        """Close all connections, and return when each session has heard of that."""
        async with trio.open_nursery() as nursery:
            for connection in list(self._sessions):
                nursery.start_soon(connection.close, 1001, reason)
        while self._sessions:
            await self._ended.wait()


class _Watched:
    """A session whose end somebody waits for."""

    def __init__(self, session: Session, on_closed: Callable[[], None]) -> None:
        self._session = session
        self._on_closed = on_closed

    def handle(self, message: object) -> None:
        self._session.handle(message)

    def token_refreshed(self) -> None:
        self._session.token_refreshed()

    def closed(self) -> None:
        self._session.closed()
        self._on_closed()
