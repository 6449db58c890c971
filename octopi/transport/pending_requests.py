"""The requests of a connection's peer that have had no answer yet."""

from __future__ import annotations

from typing import Protocol

from octopi.limits import REQUESTS_IN_FLIGHT_MAX


class Numbered(Protocol):
    """A message with a request number."""

    @property
    def request(self) -> int:
        """The number."""


class PendingRequests:
    """The peer's unanswered requests, by request number."""

    __slots__ = ("_asked", "_set_aside_count")

    def __init__(self) -> None:
        self._asked: dict[int, tuple[type, float, bool]] = {}
        """Its class, when it was received, and whether it is set aside."""
        self._set_aside_count = 0

    def __len__(self) -> int:
        return len(self._asked)

    def __contains__(self, request: int) -> bool:
        return request in self._asked

    @property
    def is_full(self) -> bool:
        """Whether there are `REQUESTS_IN_FLIGHT_MAX` requests that are not set aside."""
        return len(self._asked) - self._set_aside_count >= REQUESTS_IN_FLIGHT_MAX

    def add(self, request: int, cls: type, came_at: float) -> None:
        """Note a request that was received at *came_at*."""
        self._asked[request] = (cls, came_at, False)

    def set_aside(self, request: int) -> bool:
        """Don't count *request* any more.  False: it was not counted before, either."""
        asked = self._asked.get(request)
        if asked is None or asked[2]:
            return False
        self._asked[request] = (*asked[:2], True)
        self._set_aside_count += 1
        return True

    def answered(self, request: int | None) -> tuple[type, float] | None:
        """Remove *request*, and return its class and when it was received; None if there is no
        such request without an answer."""
        asked = None if request is None else self._asked.pop(request, None)
        if asked is None:
            return None
        self._set_aside_count -= asked[2]
        return asked[:2]

    def clear(self) -> None:
        """The connection has ended."""
        self._asked.clear()
        self._set_aside_count = 0
