"""How many connections a node has, and which one goes when there is no place for another.

A connection is a stranger until its peer has said who it is: a client with its hello, and the token
that the node may ask for; a member with a proof.  Members are the nodes of the cluster and its
operators.  Strangers have what the others leave, and the one that came first goes for the next one.
Clients and members together leave a reserve, so there is always a place in which the next one can
say who it is.  A member that finds no place but in the reserve takes that of the newest client.
Synchronous, and without a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.limits import RESERVED_PLACES_MAX, RESERVED_PLACES_SHARE


class ConnectionSlot:
    """That of one accepted connection."""

    __slots__ = ("_places", "give_up")

    def __init__(self, places: ConnectionSlots, give_up: Callable[[], None]) -> None:
        self._places: ConnectionSlots | None = places
        self.give_up: Final = give_up

    def settle(self, *, is_client: bool) -> bool:
        """Its peer has said who it is, and is a stranger no more: a client, or else a member.
        False: there is no place for another client, or this connection had to go meanwhile."""
        return self._places is not None and self._places.settle(self, is_client=is_client)

    @property
    def has_left(self) -> bool:
        """Whether the place is another one's now, or free."""
        return self._places is None

    def leave(self) -> None:
        """The connection has ended; safe to call twice."""
        if self._places is not None:
            self._places.left(self)
            self._places = None


class ConnectionSlots:
    """Those of one listener."""

    def __init__(self, count_max: int) -> None:
        self.count_max: Final = count_max
        self.count = 0
        """Accepted connections."""
        self._strangers: dict[ConnectionSlot, None] = {}
        """In the order in which they came; so are the others."""
        self._clients: dict[ConnectionSlot, None] = {}
        self._members: dict[ConnectionSlot, None] = {}

    @property
    def client_count(self) -> int:
        """Clients that have a place; those that had to leave it for a member not counted."""
        return len(self._clients)

    @property
    def settled_max(self) -> int:
        """How many clients and members there may be before one of them has to go."""
        return self.count_max - min(RESERVED_PLACES_MAX, self.count_max // RESERVED_PLACES_SHARE)

    def enter(self, give_up: Callable[[], None]) -> ConnectionSlot | None:
        """A place for another connection, a stranger.  None: there is none.

        *give_up* is called, once at most, if this connection has to go: at once while it is a
        stranger, as another one is in its place when the call returns.
        """
        if self.count >= self.count_max:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                return None
            oldest.leave()
            oldest.give_up()
        place = ConnectionSlot(self, give_up)
        self._strangers[place] = None
        self.count += 1
        return place

    def settle(self, place: ConnectionSlot, *, is_client: bool) -> bool:
        """See `ConnectionSlot.settle`."""
        is_full = len(self._clients) + len(self._members) >= self.settled_max
        if is_client and is_full:
            return False
        del self._strangers[place]
        if is_client:
            self._clients[place] = None
            return True
        self._members[place] = None
        if is_full and self._clients:
            newest, _ = self._clients.popitem()
            newest.give_up()  # and leaves when it has gone
        return True

    def left(self, place: ConnectionSlot) -> None:
        """See `ConnectionSlot.leave`."""
        for kind in (self._strangers, self._clients, self._members):
            kind.pop(place, None)
        self.count -= 1
