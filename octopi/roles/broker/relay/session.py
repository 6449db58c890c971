"""A connection of another relay to this one."""

from __future__ import annotations

from collections.abc import Callable

from octopi.errors import ProtocolError
from octopi.identifiers import BrokerId
from octopi.roles.broker.relay.links import RelayLinks
from octopi.transport.connection import Connection
from octopi.wire import messages as m


class RelaySession:
    """A connection of another relay, which greets first."""

    def __init__(self, begun: Callable[[], RelayLinks], connection: Connection) -> None:
        """*begun*: the connections of this broker; raises NotReadyError if it is no relay (yet),
        which answers the greeting."""
        self._begun = begun
        self._connection = connection
        self._links: RelayLinks | None = None
        """None: the other one has not greeted."""
        self._sender: BrokerId | None = None

    def handle(self, message: object) -> None:
        """Handle *message*.

        Raises:
          OctopiError: the answer to a greeting; ProtocolError, if anything else comes first.
        """
        if isinstance(message, m.RelayGreet):
            links = self._begun()
            self._sender = links.accept(self._connection, message)
            self._links = links
        elif self._sender is None or self._links is None:
            raise ProtocolError("a relay greets before it says anything else")
        else:
            self._links.take(self._sender, self._connection, message)

    def token_refreshed(self) -> None:
        """Does nothing: the endpoint takes no fresh tokens."""

    def closed(self) -> None:
        """The connection has ended."""
        if self._links is not None:
            self._links.ended(self._connection)
