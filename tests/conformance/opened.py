"""The drivers that a module of tests has opened."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.conformance.clients import CLIENTS
from tests.conformance.driving import Driver


class Drivers:
    """One of each client, opened when it is needed first."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._open: dict[str, Driver] = {}
        self.stack = ExitStack()

    def of(self, client: str) -> Driver:
        """The driver of *client*."""
        if client not in self._open:
            opening = CLIENTS[client].open(self._url, self._directory)
            self._open[client] = self.stack.enter_context(opening)
        return self._open[client]

    def other_than(self, client: str) -> Driver:
        """The driver of another client."""
        return self.of("asyncio" if client == "trio" else "trio")
