"""How much a node may hold of what comes and goes: queues, requests, what waits to be sent.

The nodes of a run tell of all that has sizes (`octopi.environment.Sized`), once.  What lives is
looked at now and then as time goes on: at each look all of it, for that is cheaper than a look
at each change.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Final

from octopi.environment import Sized
from octopi.limits import (
    FETCH_BYTES_DEFAULT,
    FOLLOW_WINDOW_BYTES,
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
    "outbox bytes": OUTBOX_BYTES_MAX + MIB,  # and one message, of which a run has no larger ones
    "bytes of a log on their way": FOLLOW_WINDOW_BYTES + FETCH_BYTES_DEFAULT,
}
"""By the names that `octopi.environment.Sized` uses."""

_LOOK_EVERY: Final = 32
"""At so many moments of virtual time it is looked once."""


class Sizes:
    """Of one life of a host; *tell* is called with each name, size and bound that is passed."""

    def __init__(self, tell: Callable[[str, int, int], None]) -> None:
        self._tell = tell
        self._watched: list[weakref.ref[Sized]] = []

    def watch(self, one: Sized) -> None:
        """`octopi.environment.Watch`."""
        self._watched.append(weakref.ref(one))

    def look(self) -> None:
        """Hold all that lives against the bounds."""
        living = [(reference, one) for reference in self._watched if (one := reference())]
        self._watched = [reference for reference, _ in living]
        for _, one in living:
            for name, size in one.sizes().items():
                if size > BOUNDS[name]:
                    self._tell(name, size, BOUNDS[name])


class Looks:
    """Counts the moments, and looks at some of them."""

    def __init__(self) -> None:
        self.at_look: dict[object, Callable[[], None]] = {}
        """What to do, by whose business it is."""
        self._left = _LOOK_EVERY

    def moment(self) -> None:
        """Time has moved on."""
        self._left -= 1
        if self._left <= 0:
            self._left = _LOOK_EVERY
            for look in list(self.at_look.values()):
                look()
