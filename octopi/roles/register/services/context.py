"""What the services of one client connection of a register share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from octopi.errors import ConnectionLostError, OctopiError
from octopi.roles.answers import refuse
from octopi.roles.register.node import RegisterNode
from octopi.transport.connection import Connection


class RegisterContext:
    """One client connection of a register, as its services see it."""

    def __init__(self, node: RegisterNode, connection: Connection, tasks: trio.Nursery) -> None:
        """*tasks*: the connection's nursery, in which the services start theirs."""
        self.node = node
        self.connection = connection
        self.tasks = tasks

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
