"""How many connections a node has, and who goes when it has no place for another.

A connection is a stranger until it speaks WebSocket.  When all places are taken, the one that has
been a stranger for longest goes, so who keeps connections open and says nothing keeps nobody out.
Clients get all places but some: those are for who comes next, for other nodes, and for an operator
who asks over HTTP.  Synchronous, and without a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RESERVED_SHARE: Final = 8
"""One of so many places is not for clients."""

RESERVED_MAX: Final = 64


class Place:
    """That of one accepted connection."""

    __slots__ = ("_is_client", "_places", "give_up")

    def __init__(self, places: Places, give_up: Callable[[], None]) -> None:
        self._places: Places | None = places
        self._is_client = False
        self.give_up: Final = give_up

    def settle(self, *, is_client: bool) -> bool:
        """It is no stranger any more; false: there is no place for another client."""
        return self._places is not None and self._places.settle(self, is_client=is_client)

    def settled(self, *, is_client: bool) -> None:
        """It has got what it asked for."""
        self._is_client = is_client

    def leave(self) -> None:
        """The connection has ended; safe to call twice."""
        if self._places is not None:
            self._places.left(self, is_client=self._is_client)
            self._places = None


class Places:
    """Those of one listener."""

    def __init__(self, count_max: int) -> None:
        self.count_max: Final = count_max
        self.count = 0
        """Accepted connections."""
        self.client_count = 0
        self._strangers: dict[Place, None] = {}
        """Who came first at the beginning."""

    @property
    def client_max(self) -> int:
        """How many clients there may be."""
        return self.count_max - min(RESERVED_MAX, self.count_max // RESERVED_SHARE)

    def enter(self, give_up: Callable[[], None]) -> Place | None:
        """A place for another connection; *give_up* is called if it has to go for one that comes
        later.  None: there is none."""
        if self.count >= self.count_max:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                return None
            oldest.leave()
            oldest.give_up()
        place = Place(self, give_up)
        self._strangers[place] = None
        self.count += 1
        return place

    def settle(self, place: Place, *, is_client: bool) -> bool:
        """See `Place.settle`."""
        if is_client and self.client_count >= self.client_max:
            return False
        self._strangers.pop(place, None)
        self.client_count += is_client
        place.settled(is_client=is_client)
        return True

    def left(self, place: Place, *, is_client: bool) -> None:
        """See `Place.leave`."""
        self._strangers.pop(place, None)
        self.client_count -= is_client
        self.count -= 1
