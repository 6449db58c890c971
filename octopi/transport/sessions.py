"""What a role does on one connection, as the transport sees it."""

from __future__ import annotations

from typing import Protocol


class Session(Protocol):
    """What a role does on one connection."""

    def handle(self, message: object) -> None:
        """Take a message of the peer; see `Connection.run`."""

    def token_refreshed(self) -> None:
        """The peer came with a fresh token: what it doesn't grant any more has to end."""

    def closed(self) -> None:
        """The connection has ended; the tasks of its nursery are cancelled next."""
