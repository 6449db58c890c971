"""The names that programs give their connections, for people who look at a node.

A name is for people alone: it proves nothing, two programs may have the same one, and nothing is
decided by it.
"""

from __future__ import annotations

from typing import Protocol

from octopi.wire.messages import Hello, Welcome


class GreetedConnection(Protocol):
    """The part of `octopi.transport.connection.Connection` that is shown."""

    @property
    def peer(self) -> str:
        """The other side's address."""

    @property
    def greeting(self) -> Hello | Welcome:
        """The first message of the other side."""


def connection_name(greeting: Hello | Welcome) -> str:
    """The name that came with *greeting*; empty: none."""
    return greeting.name if isinstance(greeting, Hello) else ""


def peer_shown(connection: GreetedConnection) -> str:
    """The address of the peer of *connection*, and the name that it gave it, for a log line."""
    name = connection_name(connection.greeting)
    return f"{connection.peer} ({name})" if name else connection.peer
