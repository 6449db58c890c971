"""A session that is the union of services: each handles messages of its own types.

A role lists the services that it offers at an endpoint.  To add a service, add one line to that
list; no other shared code has to know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from octopi.errors import ProtocolError

Handler = Callable[[Any], None]
"""Handles one message: it answers at once, or starts a task that does.  An OctopiError that it
raises becomes the answer."""


class Service:
    """One service on one connection: the types of messages that it handles, with the handlers."""

    def __init__(self, handlers: Mapping[type, Handler]) -> None:
        self.handlers = handlers

    @property
    def waiting_count(self) -> int:
        """How many requests wait for an event that may take any time, such as records that are yet
        to be produced.  They don't count as work under way."""
        return 0

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {}

    def token_refreshed(self) -> None:
        """The peer has sent a fresh token: stop what the fresh token doesn't grant any more."""

    def closed(self) -> None:
        """The connection has ended.  Tasks of the service end with the connection's nursery."""


class ServiceSession:
    """Hands each message of one connection to the service that handles its type."""

    def __init__(self, role: str, services: Sequence[Service] | Iterator[Service]) -> None:
        """*role*: the node's role, for the texts of errors.  An iterator makes the *services* when
        the first message comes, because many connections never send one.

        Raises:
          ValueError: if two services handle the same type of messages; with an iterator, the first
              message raises it.
        """
        self._role = role
        self._to_make: Iterator[Service] | None = None
        self.services: tuple[Service, ...] = ()
        """The services, as far as they are made."""
        self._handlers: dict[type, Handler] = {}
        if isinstance(services, Iterator):
            self._to_make = services
        else:
            self._begin(services)

    def handle(self, message: object) -> None:
        """Hand *message* to its service.

        Raises:
          OctopiError: the answer to this message; ProtocolError, if no service handles its type.
        """
        if self._to_make is not None:
            services, self._to_make = self._to_make, None
            self._begin(services)
        handler = self._handlers.get(type(message))
        if handler is None:
            raise ProtocolError(f"{type(message).__name__} is no request for a {self._role}")
        handler(message)

    def _begin(self, services: Iterable[Service]) -> None:
        self.services = tuple(services)
        for service in self.services:
            if twice := self._handlers.keys() & service.handlers.keys():
                names = ", ".join(sorted(one.__name__ for one in twice))
                raise ValueError(f"two services take {names}")
            self._handlers.update(service.handlers)

    def token_refreshed(self) -> None:
        """The peer has sent a fresh token; all services are told."""
        for service in self.services:
            service.token_refreshed()

    def closed(self) -> None:
        """The connection has ended; all services are told."""
        for service in self.services:
            service.closed()
