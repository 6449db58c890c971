"""Bounds the connections of a node, and decides which one is closed when a new one needs its slot.

A connection is a stranger until its handshake is done: a client sends its hello, and a token if the
node requires one; a member sends a proof.  Members are the nodes of the cluster and its operators.
Strangers use the slots that clients and members leave; when no slot is free, the oldest stranger is
closed for the new connection.  Clients and members together never use a small reserve, so a new
connection always finds a slot for its handshake.  If only the reserve is left for a member, the
newest client is closed.
Synchronous, and without a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from octopi.limits import RESERVED_PLACES_MAX, RESERVED_PLACES_SHARE


class ConnectionSlot:
    """The slot of one accepted connection."""

    __slots__ = ("_places", "give_up")

    def __init__(self, places: ConnectionSlots, give_up: Callable[[], None]) -> None:
        self._places: ConnectionSlots | None = places
        self.give_up: Final = give_up

    def settle(self, *, is_client: bool) -> bool:
        """The handshake has shown that the peer is a client or a member, so it is no stranger any
        more.  False: there is no slot for another client, or this connection lost its slot."""
        return self._places is not None and self._places.settle(self, is_client=is_client)

    @property
    def has_left(self) -> bool:
        """Whether this connection has no slot any more: it ended, or lost its slot."""
        return self._places is None

    def leave(self) -> None:
        """The connection has ended; safe to call twice."""
        if self._places is not None:
            self._places.left(self)
            self._places = None


class ConnectionSlots:
    """The slots of one listener."""

    def __init__(self, count_max: int) -> None:
        self.count_max: Final = count_max
        self.count = 0
        """Accepted connections."""
        self._strangers: dict[ConnectionSlot, None] = {}
        """In the order in which they were accepted."""
        self._clients: dict[ConnectionSlot, None] = {}
        """In the order in which their handshakes were done."""
        self._members: dict[ConnectionSlot, None] = {}

    @property
    def client_count(self) -> int:
        """Clients that have a slot, without those that lost theirs to a member."""
        return len(self._clients)

    @property
    def settled_max(self) -> int:
        """The slots without the reserve: how many clients and members there may be together."""
        return self.count_max - min(RESERVED_PLACES_MAX, self.count_max // RESERVED_PLACES_SHARE)

    def enter(self, give_up: Callable[[], None]) -> ConnectionSlot | None:
        """Return a slot for a new connection, which is a stranger.  None: there is none.

        *give_up* is called, at most once, if this connection loses its slot.  A stranger has lost
        its slot to another connection already when the call is made.
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
        if place in self._clients:  # it has sent requests over HTTP before
            if is_client:
                return True
            del self._clients[place]
        is_full = len(self._clients) + len(self._members) >= self.settled_max
        if is_client and is_full:
            return False
        self._strangers.pop(place, None)
        if is_client:
            self._clients[place] = None
            return True
        self._members[place] = None
        if is_full and self._clients:
            newest, _ = self._clients.popitem()
            newest.give_up()  # it calls `leave` when it has ended
        return True

    def left(self, place: ConnectionSlot) -> None:
        """See `ConnectionSlot.leave`."""
        for kind in (self._strangers, self._clients, self._members):
            kind.pop(place, None)
        self.count -= 1
