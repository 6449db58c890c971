"""What the services of one client share that ask about topics, partitions and brokers.  The client
is connected to the node itself that decides about them, or to a broker that passes its requests on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from octopi.errors import ConnectionLostError, OctopiError
from octopi.roles.answers import AnswerTarget, refuse
from octopi.security.authenticator import AuthenticatedPeer
from octopi.security.grants import Grants
from octopi.security.quotas import NOBODY, Creator
from octopi.transport.turns import ConnectionTurn


class DeciderClient(AnswerTarget, Protocol):
    """A client of a node that decides, as the services see it."""

    @property
    def grants(self) -> Grants:
        """What the client may do."""

    @property
    def version(self) -> int:
        """The version of the protocol in which the answers are sent: the client's, or that of the
        node which passes them on."""

    @property
    def turn(self) -> ConnectionTurn | None:
        """The turn of the connection over which the client's requests come."""


class DeciderContext:
    """One client of a node that decides, as its services see it."""

    def __init__(
        self, connection: DeciderClient, tasks: trio.Nursery, creator: Callable[[], Creator]
    ) -> None:
        """*tasks*: the connection's nursery, in which the services start theirs.  *creator*: who
        creates topics here, as the client's token says."""
        self.connection = connection
        self.tasks = tasks
        self.creator = creator

    def start(self, request: int, work: Callable[[], Awaitable[None]]) -> None:
        """Await *work*, which answers *request*, in a task; an OctopiError is the answer, too."""
        self.tasks.start_soon(self._answer, request, work)

    async def _answer(self, request: int, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ConnectionLostError:
            pass
        except OctopiError as error:
            refuse(self.connection, request, error)


def creator_of(entry: AuthenticatedPeer | None) -> Creator:
    """Who creates topics over a connection with this *entry*."""
    if entry is None:
        return NOBODY
    return Creator(entry.identity.subject, entry.identity.quota.topics)
