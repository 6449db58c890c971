"""A token bucket, which limits a rate and may be overdrawn.

A task that overdraws the bucket waits until it is filled again.  So a message of any length passes,
and the rate holds over time.  The caller passes the time.
"""

from __future__ import annotations


class TokenBucket:
    """Lets *bytes_per_s* pass, and a second's worth at once."""

    def __init__(self, bytes_per_s: float, now: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._level_bytes = bytes_per_s
        self._at = now

    def spend(self, size_bytes: int, now: float) -> None:
        """Count *size_bytes* that passed."""
        self._fill(now)
        self._level_bytes -= size_bytes

    def wait_s(self, now: float) -> float:
        """How long to wait before more may pass; 0: not at all."""
        self._fill(now)
        return max(0.0, -self._level_bytes / self._bytes_per_s)

    def is_full(self, now: float) -> bool:
        """Whether the bucket is full, as at the beginning."""
        self._fill(now)
        return self._level_bytes >= self._bytes_per_s

    def _fill(self, now: float) -> None:
        gained = max(0.0, now - self._at) * self._bytes_per_s
        self._level_bytes = min(self._bytes_per_s, self._level_bytes + gained)
        self._at = now
