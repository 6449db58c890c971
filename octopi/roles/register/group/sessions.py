"""Connections to a register of several: from other registers, and from brokers and clients."""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.errors import NotLeaderError, NotReadyError, ProtocolError
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
        if address not in replica.others:
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
    """A connection of a broker or client that began while this register wasn't active."""

    def __init__(self, group: RegisterGroup, active: Callable[[], Session | None]) -> None:
        """*active* makes the session of this connection, if this register is active by now."""
        self._group = group
        self._active = active
        self._session: Session | None = None
        self._has_missed = False
        """Whether notices were dropped: then nobody may rely on what comes after them."""

    def handle(self, message: object) -> None:
        """Refuse a request, and say where the active register is.

        Raises:
          NotLeaderError: if it isn't this one.
        """
        if self._session is None and not self._has_missed:
            self._session = self._active()
        if self._session is not None:
            self._session.handle(message)
            return
        if type(message) in NOTICES:
            self._has_missed = True  # a broker's inventory, before it asks to join
            return
        address = self._group.active_address
        if address == self._group.replica.identity.address:
            raise NotReadyError("this register is about to be the active one")
        raise NotLeaderError(
            f"this register is a standby; {address or 'none'} is active", address=address
        )

    def token_refreshed(self) -> None:
        """The peer has sent a fresh token."""
        if self._session is not None:
            self._session.token_refreshed()

    def closed(self) -> None:
        """The connection has ended."""
        if self._session is not None:
            self._session.closed()


class ActiveConnections:
    """The sessions of brokers and clients while this register is active, so that all of them end
    when it isn't any more."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether the parts of the register that the sessions speak to are gone."""
        self._sessions: dict[Connection, Session] = {}
        self._ended = trio.Event()

    def of(self, make: MakeSession, connection: Connection, tasks: trio.Nursery) -> Session:
        """The session that *make* makes."""
        session = make(connection, tasks)
        self._sessions[connection] = session
        return _Watched(session, lambda: self._closed(connection))

    def _closed(self, connection: Connection) -> None:
        session = self._sessions.pop(connection)
        if not self.is_over:
            session.closed()
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
        self._on_closed()
