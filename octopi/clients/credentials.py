"""What a client authenticates with: a token, and for an operator's client also the join secret.

A token is given as a text or as a function that returns one.  The function is called for each
connection, and again before a token expires.  The fresh token is sent on the open connection, so
that its sessions continue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Final, TypeAlias

from octopi.environment import Clock
from octopi.errors import OctopiError
from octopi.limits import REQUEST_TIMEOUT_S, TOKEN_REFRESH_SHARE, WALL_CLOCK_CHECK_S
from octopi.logger import get_logger
from octopi.security.join_secret import SecretSource
from octopi.transport.connection import Connection
from octopi.wire.messages import Authenticate, Authenticated, Welcome

_log = get_logger(__name__)

Token: TypeAlias = str | Callable[[], str | Awaitable[str | None] | None] | None
"""A token, a function that returns one (called in the client's own tasks), or None."""


class Credentials:
    """The credentials of one client."""

    def __init__(self, token: Token = None, secrets: SecretSource | None = None) -> None:
        """*secrets*: the join secrets of an operator's client, which proves to each node that it
        has one of them."""
        self._token: Final = token
        self.secrets: Final = secrets

    @property
    def is_renewable(self) -> bool:
        """Whether each call of `current` may return another token."""
        return callable(self._token)

    async def current(self) -> str | None:
        """The token to connect with now."""
        token = self._token
        if token is None or isinstance(token, str):
            return token
        given = token()
        return await given if isawaitable(given) else given

    async def keep_fresh(self, connection: Connection, clock: Clock) -> None:
        """Send fresh tokens on *connection* before the present one expires.  Return when the
        connection has ended, when the present token doesn't expire, or when there is no fresher
        one.

        If a node refuses a fresh token, that is logged and nothing changes: the session ends when
        the token before it expires, and the next connection raises what is wrong.
        """
        welcome = connection.greeting
        expires_ms = welcome.expires_ms if isinstance(welcome, Welcome) else None
        while expires_ms is not None and callable(self._token):
            lasts_s = (expires_ms - clock.wall_ms()) / 1000
            due_at = clock.now() + lasts_s * TOKEN_REFRESH_SHARE
            while clock.now() < due_at and connection.end_reason is None:
                await clock.sleep_until(min(due_at, clock.now() + WALL_CLOCK_CHECK_S))
            token = await self.current()
            if connection.end_reason is not None or token is None:
                return
            try:
                answer = await connection.request(
                    Authenticate(connection.next_request(), token), Authenticated, REQUEST_TIMEOUT_S
                )
            except OctopiError as error:
                _log.warning("token_not_refreshed", peer=connection.peer, why=str(error))
                return
            if answer.expires_ms is not None and answer.expires_ms <= expires_ms:
                return  # the same token again: the function has no fresher one
            expires_ms = answer.expires_ms
