"""Who has been silent for too long.

Suspicion is only a reason to choose another leader, never a proof: the protocol is safe
whoever is suspected.  So the detector is as simple as it can be.  It knows no clock; times
are seconds on one monotonic clock of the caller.
"""

from __future__ import annotations


class FailureDetector:
    """Silence longer than *timeout_s* is failure.

    Time in which the caller itself did not look (it was suspended, or overloaded) is nobody's
    silence: look at least every quarter of the time-out.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._heard_at: dict[int, float] = {}
        self._looked_at: float | None = None

    def heard(self, broker: int, now: float) -> None:
        """*broker* said something; from now on it is watched."""
        self._heard_at[broker] = max(now, self._heard_at.get(broker, now))

    def forget(self, broker: int) -> None:
        """Don't watch *broker* any more."""
        self._heard_at.pop(broker, None)

    def failed(self, now: float) -> list[int]:
        """The brokers that are silent for too long, by id; they are reported until they are
        heard or forgotten."""
        if self._looked_at is not None:
            absent_s = now - self._looked_at - self._timeout_s / 2
            if absent_s > 0:
                for broker, at in self._heard_at.items():
                    self._heard_at[broker] = min(now, at + absent_s)
        self._looked_at = now
        return sorted(broker for broker, at in self._heard_at.items() if now - at > self._timeout_s)

    def next_failure_at(self) -> float | None:
        """When the next broker will have been silent for too long; None: nobody is watched."""
        return min(self._heard_at.values()) + self._timeout_s if self._heard_at else None

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self._timeout_s > 0
