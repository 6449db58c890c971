"""The pages of a node: which path is answered by what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.transport.http_requests import HttpAnswer, HttpRequest, plain

CONSOLE: Final = "/console/"


class Site:
    """`octopi.transport.http_front.HttpSite` of one node."""

    def __init__(self, console: Callable[[HttpRequest], HttpAnswer]) -> None:
        """*console* answers what lies below ``/console/``."""
        self._console = console

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        return None

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/healthz":
                return plain(200, "ok")
            case "/" | "/console":
                return plain(302, "the console is at /console/", ("location", CONSOLE))
        if request.path.startswith(CONSOLE):
            return self._console(request)
        return plain(404, "there is nothing here; see /console/")
