"""A session that is the union of services: each takes messages of its own types.

A role lists the services that it offers at an endpoint; a further service is one more line of that
list, and nothing else that is shared has to know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from octopi.errors import ProtocolError

Handler = Callable[[Any], None]
"""Takes one message; it answers now, or starts a task that does.  Raises the OctopiError that is
the answer."""


class Service:
    """One service on one connection: the types of messages that it takes, and their handlers."""

    def __init__(self, handlers: Mapping[type, Handler]) -> None:
        self.handlers = handlers

    @property
    def waiting_count(self) -> int:
        """How many requests wait for something that may take as long as it likes, such as records
        that are yet to be produced: they don't count as work under way."""
        return 0

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {}

    def token_refreshed(self) -> None:
        """The peer came with a fresh token: what it doesn't grant any more has to end."""

    def closed(self) -> None:
        """The connection has ended; tasks of the service end with the connection's nursery."""


class ServiceSession:
    """Gives each message of one connection to the service that takes its type."""

    def __init__(self, role: str, services: Iterable[Service]) -> None:
        """*role*: who serves, for errors.

        Raises:
          ValueError: if two services take the same type of messages.
        """
        self._role = role
        self._services = tuple(services)
        self._handlers: dict[type, Handler] = {}
        for service in self._services:
            if twice := self._handlers.keys() & service.handlers.keys():
                names = ", ".join(sorted(one.__name__ for one in twice))
                raise ValueError(f"two services take {names}")
            self._handlers.update(service.handlers)

    def handle(self, message: object) -> None:
        """Have the message's service take it.

        Raises:
          OctopiError: the answer to this message; ProtocolError if no service takes it.
        """
        handler = self._handlers.get(type(message))
        if handler is None:
            raise ProtocolError(f"{type(message).__name__} is no request for a {self._role}")
        handler(message)

    def token_refreshed(self) -> None:
        """The peer came with a fresh token."""
        for service in self._services:
            service.token_refreshed()

    def closed(self) -> None:
        """The connection has ended."""
        for service in self._services:
            service.closed()
