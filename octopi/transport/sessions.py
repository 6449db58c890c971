"""The interface of a session, as the transport uses it."""

from __future__ import annotations

from typing import Protocol


class Session(Protocol):
    """What a role does on one connection."""

    def handle(self, message: object) -> None:
        """Handle a message of the peer; see `Connection.run`."""

    def token_refreshed(self) -> None:
        """The peer has sent a fresh token: stop what the fresh token doesn't grant any more."""

    def closed(self) -> None:
        """The connection has ended.  The tasks of its nursery are cancelled after this call."""
