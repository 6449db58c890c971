"""How long to wait before trying again: full jitter below a bound that doubles.

After M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): clients
that lost the same node at the same time come back spread out, not all at once.
"""

from __future__ import annotations

from octopi.environment import Chance
from octopi.limits import BACKOFF_S_FIRST, BACKOFF_S_MAX


class Backoff:
    """The waits of one thing that is tried again and again."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self.attempts = 0
        """Waits handed out since the last success."""

    def next_s(self) -> float:
        """The next wait (seconds)."""
        bound_s = min(BACKOFF_S_MAX, BACKOFF_S_FIRST * 2.0 ** min(self.attempts, 16))
        self.attempts += 1
        return bound_s * self._chance.random()

    def reset(self) -> None:
        """It worked: begin with short waits the next time."""
        self.attempts = 0
