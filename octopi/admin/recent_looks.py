"""Shares what was seen of a cluster among all who ask for the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

import trio

from octopi.environment import Clock
from octopi.limits import LOOK_INTERVAL_S, LOOK_SHARE_MAX

_LOOKS_KEPT_MAX: Final = 20

_T = TypeVar("_T")
LookKey: TypeAlias = tuple[object, ...]


class RecentLooks:
    """The last looks of one kind.  One is told again for `octopi.limits.LOOK_INTERVAL_S`, or longer
    if it took long; one look is under way at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looking = trio.Lock()
        self._looks: OrderedDict[LookKey, tuple[float, object]] = OrderedDict()
        """What was seen, and until when (monotonic, s) it is told again."""

    async def fresh(self, key: LookKey, look: Callable[[], Awaitable[_T]]) -> _T:
        """What *look* has returned, now or a short while ago.  *key* says what is looked at."""
        async with self._looking:
            until, seen = self._looks.get(key, (0.0, None))
            if seen is not None and self._clock.now() < until:
                return seen  # type: ignore[return-value]  # its key says what it is
            began = self._clock.now()
            found = await look()
            took_s = self._clock.now() - began
            until = self._clock.now() + max(LOOK_INTERVAL_S, took_s / LOOK_SHARE_MAX)
            self._looks[key] = until, found
            self._looks.move_to_end(key)
            while len(self._looks) > _LOOKS_KEPT_MAX:
                self._looks.popitem(last=False)
            return found
