"""Bounds the queues and buffers of nodes: queues, requests, and data that waits to be sent.

The nodes of a run register each object with sizes (`octopi.environment.Sized`) once.  From time to
time all objects that still exist are checked together, which is cheaper than a check at each
change.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Final

from octopi.environment import Sized
from octopi.limits import (
    ASKED_ORDERS_MAX,
    ASKS_IN_FLIGHT_MAX,
    FETCH_BYTES_DEFAULT,
    FOLLOW_WINDOW_BYTES,
    FORWARDS_IN_FLIGHT_BYTES_MAX,
    FORWARDS_IN_FLIGHT_MAX,
    MIB,
    OUTBOX_BYTES_MAX,
    READINGS_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    SUBSCRIPTION_SESSIONS_MAX,
    WAITING_FETCHES_MAX,
)

BOUNDS: Final[Mapping[str, int]] = {
    "waiting fetches": WAITING_FETCHES_MAX,
    "readings": READINGS_MAX,
    "subscription sessions": SUBSCRIPTION_SESSIONS_MAX,
    "requests": REQUESTS_IN_FLIGHT_MAX,
    "passed on": ASKS_IN_FLIGHT_MAX + ASKED_ORDERS_MAX,
    "orders": ASKED_ORDERS_MAX,
    "forwarded": FORWARDS_IN_FLIGHT_MAX,
    "forwarded bytes": FORWARDS_IN_FLIGHT_BYTES_MAX,
    "outbox bytes": OUTBOX_BYTES_MAX + MIB,  # and one message, of which a run has no larger ones
    "bytes of a log on their way": FOLLOW_WINDOW_BYTES + FETCH_BYTES_DEFAULT,
}
"""The bounds by the names that `octopi.environment.Sized` uses."""

_LOOK_EVERY: Final = 32
"""Sizes are checked at every n-th moment of virtual time."""


class Sizes:
    """The objects with sizes of one process; *tell* is called with the name, size and bound of each
    that is too large."""

    def __init__(self, tell: Callable[[str, int, int], None]) -> None:
        self._tell = tell
        self._watched: list[weakref.ref[Sized]] = []

    def watch(self, one: Sized) -> None:
        """`octopi.environment.Watch`."""
        self._watched.append(weakref.ref(one))

    def look(self) -> None:
        """Check all objects that exist against their bounds."""
        living = [(reference, one) for reference in self._watched if (one := reference())]
        self._watched = [reference for reference, _ in living]
        for _, one in living:
            for name, size in one.sizes().items():
                if size > BOUNDS[name]:
                    self._tell(name, size, BOUNDS[name])


class Looks:
    """Counts the moments of virtual time, and runs checks at some of them."""

    def __init__(self) -> None:
        self.at_look: dict[object, Callable[[], None]] = {}
        """The checks, by their owners."""
        self._left = _LOOK_EVERY

    def moment(self) -> None:
        """Virtual time has advanced."""
        self._left -= 1
        if self._left <= 0:
            self._left = _LOOK_EVERY
            for look in list(self.at_look.values()):
                look()
