"""When the machines of subscriptions have something to do, and what time it is then."""

from __future__ import annotations

import heapq

from octopi.identifiers import TimestampMs


class WallTimes:
    """Tells times of the wall clock from times of the monotonic one, without looking at it again:
    a clock that is set meanwhile lets nothing expire too soon."""

    def __init__(self, now: float, wall_ms: int) -> None:
        self._offset_s = wall_ms / 1000 - now

    def of(self, now: float) -> TimestampMs:
        """The time of the wall clock at *now*, monotonic (s)."""
        return TimestampMs(max(0, round((now + self._offset_s) * 1000)))

    def monotonic(self, wall_ms: int) -> float:
        """The monotonic time (s) at which the wall clock shows *wall_ms*."""
        return wall_ms / 1000 - self._offset_s


class Timetable:
    """Which keys are to be looked at, and when.  A key may be looked at too soon."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, str]] = []
        """A heap; of a key that was set again only the entry in `_at` counts."""
        self._at: dict[str, float] = {}

    def set(self, key: str, at: float | None) -> None:
        """Look at *key* at time *at*, or sooner if that was said before; None: it need not be."""
        if at is not None and at < self._at.get(key, float("inf")):
            self._at[key] = at
            heapq.heappush(self._queue, (at, key))

    @property
    def next_at(self) -> float | None:
        """When a key is to be looked at; None: there is none."""
        self._drop_outdated()
        return self._queue[0][0] if self._queue else None

    def due(self, now: float, count_max: int) -> list[str]:
        """At most *count_max* keys whose time has come; each has to be `set` again."""
        found: list[str] = []
        while len(found) < count_max and (at := self.next_at) is not None and at <= now:
            _, key = heapq.heappop(self._queue)
            del self._at[key]
            found.append(key)
        return found

    def _drop_outdated(self) -> None:
        while self._queue and self._at.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
