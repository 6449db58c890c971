"""How far the clock of another relay is ahead of this one's."""

from __future__ import annotations

from collections import deque

from octopi.limits import RELAY_CLOCK_BEATS


class PeerClock:
    """What beats of another relay show of its clock.

    A beat says what the clock showed when it was sent, and was on its way for a time that nobody
    knows.  So each shows the clock as less than it is, and the greatest of the newest few is the
    nearest: it is wrong by the least time on the way.
    """

    def __init__(self) -> None:
        self._newest: deque[int] = deque(maxlen=RELAY_CLOCK_BEATS)

    def heard(self, theirs_ms: int, mine_ms: int) -> None:
        """A beat has come, and this relay's clock shows *mine_ms* (ms since 1970)."""
        self._newest.append(theirs_ms - mine_ms)

    @property
    def ahead_s(self) -> float | None:
        """By how much the other clock is ahead (s), negative if it is behind; None: no beat has
        said."""
        return max(self._newest) / 1_000 if self._newest else None
