"""Checks every message of a connection against its token before the session sees it.

Used at all roles and endpoints of a node that requires tokens.  The session ends when the token
expires, unless the client has sent a fresh one.
"""

from __future__ import annotations

import trio

from octopi.environment import Clock
from octopi.errors import ConnectionLostError, Status
from octopi.limits import WALL_CLOCK_CHECK_S
from octopi.logger import get_logger
from octopi.security.authenticator import AuthenticatedPeer
from octopi.transport.close_codes import close_code
from octopi.transport.connection import Connection
from octopi.transport.failures import failure
from octopi.transport.peer_names import peer_shown
from octopi.transport.sessions import Session
from octopi.wire.messages import Authenticate, Authenticated

_log = get_logger(__name__)

_EXPIRED = "the token has expired"


class AuthorizationFilter:
    """Checks the messages of one connection, and ends it when its token expires."""

    def __init__(self, connection: Connection, session: Session, clock: Clock) -> None:
        self._connection = connection
        self._session = session
        self._clock = clock
        self._entry: AuthenticatedPeer | None = connection.entry
        self._refreshed: trio.Event | None = None

    def handle(self, message: object) -> None:
        """Give *message* to the session if the token grants it.

        Raises:
          RefusedError: FORBIDDEN, if it doesn't; UNAUTHENTICATED or EXPIRED, if the message is an
              `Authenticate` whose token is not valid.
          OctopiError: what the session raises.
        """
        if type(message) is Authenticate:
            self._authenticate(message)
            return
        if self._entry is not None:
            self._entry.check(message)
        self._session.handle(message)

    def _authenticate(self, message: Authenticate) -> None:
        expires_ms = None
        if self._entry is not None:
            expires_ms = self._entry.refresh(message.token).expires_ms
            self._session.token_refreshed()
            if self._refreshed is not None:
                self._refreshed.set()
        self._connection.post(Authenticated(message.request, expires_ms))

    async def end_in_time(self) -> None:
        """End the connection when its token expires.  Without authentication, return at once."""
        while self._entry is not None:
            expires_ms = self._entry.identity.expires_ms
            left_s = WALL_CLOCK_CHECK_S
            if expires_ms is not None:
                left_s = min(left_s, (expires_ms - self._clock.wall_ms()) / 1000)
            if left_s <= 0:
                await self._end()
                return
            self._refreshed = trio.Event()
            with self._clock.timeout(left_s):
                await self._refreshed.wait()

    async def _end(self) -> None:
        _log.sparing(self._clock).info("token_expired", peer=peer_shown(self._connection))
        try:
            self._connection.post(failure(None, Status.EXPIRED, _EXPIRED))
        except ConnectionLostError:
            return
        await self._connection.close(close_code(Status.EXPIRED), _EXPIRED)
