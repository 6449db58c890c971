"""One client connection of a broker: its services, and where else a client is sent.

A produce is handled in the receiving task, without a task of its own; each reading has a task in
the connection's nursery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from octopi.errors import NotLeaderError
from octopi.identifiers import PartitionId
from octopi.roles.broker.services.context import ServiceContext
from octopi.transport.services import Service, ServiceSession

Context = TypeVar("Context", bound=ServiceContext)


class BrokerSession(ServiceSession, Generic[Context]):
    """One client connection of a broker."""

    def __init__(self, context: Context, services: Iterable[Callable[[Context], Service]]) -> None:
        super().__init__("broker", (make(context) for make in services))
        self._context = context
        self._connection = context.connection
        if (watch := context.environment.watch) is not None:
            watch(self)

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        now = self._connection.statistics()
        sizes: dict[str, int] = {}
        for service in self.services:
            sizes |= service.sizes()
        waiting_count = sum(service.waiting_count for service in self.services)
        return sizes | {
            "requests": now.unanswered_count - waiting_count,
            "outbox bytes": now.outbox_bytes,
        }

    def handle(self, message: object) -> None:
        """Answer at once where nothing has to be waited for.

        Raises:
          OctopiError: the answer to this message; if another broker leads, the error names it.
        """
        self._context.check_kind(message)
        try:
            super().handle(message)
        except NotLeaderError as error:
            partition = PartitionId(getattr(message, "partition", -1))  # -1: about none
            raise self._context.redirected(error, partition) from error
