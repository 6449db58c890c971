"""Passes on what only whoever decides answers, so that clients may connect to any broker.

Which messages these are, is declared with them (`octopi.wire.endpoints.PASSED_ON`).  The connection
has checked that the client's token grants the message.  The broker answers none of them from what
it knows itself: its table of partitions may be old, and clients conclude from an answer, such as
that a topic is gone.  Where an old table is good enough, to find a leader, brokers redirect.
"""

from __future__ import annotations

from typing import Final

import trio

from octopi.errors import ConnectionLostError, OctopiError
from octopi.limits import ASKS_PER_CLIENT_MAX, LIST_MEMORY_BYTES
from octopi.roles.answers import refuse
from octopi.roles.broker.asks import DeciderAsks
from octopi.roles.broker.peer_connection import AskingClient
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.earlier_clients import passed_to
from octopi.storage.brief_lock import BriefLock
from octopi.transport.memory_budget import ASKS
from octopi.transport.pending_requests import Numbered
from octopi.transport.services import Service
from octopi.wire import messages as m
from octopi.wire.codec import EncodedAnswer
from octopi.wire.endpoints import PASSED_ON

_LISTS: Final = frozenset({m.ListTopics, m.DescribeCluster, m.DescribeEvents, m.DescribeLoads})
"""Requests with long answers: those of a connection are passed on one after another, each when the
client has taken what it was sent before."""


class ForwardingService(Service):
    """Passes on the requests of one connection; each has a task in the connection's nursery."""

    def __init__(self, peer: DeciderAsks, context: ClientContext) -> None:
        super().__init__(dict.fromkeys(PASSED_ON, self._pass_on))
        self._peer = peer
        self._context = context
        self._connection = context.connection
        self._places: trio.Semaphore | None = None
        """None: nothing was passed on yet, as on most connections."""
        self._listing = BriefLock()
        """Held while a list is asked for."""

    def _pass_on(self, message: Numbered) -> None:
        """Have *message* answered by whoever decides.

        Raises:
          RefusedError: with TOO_MANY.
        """
        self._context.charge_task(ASKS)
        self._context.tasks.start_soon(self._ask, message)

    async def _ask(self, message: Numbered) -> None:
        try:
            if type(message) in _LISTS:
                async with self._listing:
                    # The room is not kept meanwhile: the connection's readings need it.
                    async with self._connection.outbox.room(LIST_MEMORY_BYTES, LIST_MEMORY_BYTES):
                        pass
                    await self._answer(message)
            else:
                await self._answer(message)
        except ConnectionLostError:
            pass  # the client's connection has ended
        except OctopiError as error:
            refuse(self._connection, message.request, error)
        finally:
            self._context.release_task(ASKS)

    async def _answer(self, message: Numbered) -> None:
        if self._places is None:
            self._places = trio.Semaphore(ASKS_PER_CLIENT_MAX)
        client = AskingClient(self._connection.entry, self._places, self._connection)
        answer = await self._peer.ask(message, client)
        told = passed_to(self._connection.version, message, answer)
        self._connection.post(EncodedAnswer(message.request, told))
