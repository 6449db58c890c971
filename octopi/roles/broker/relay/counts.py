"""What is counted of one relay partition at one broker, for the metrics."""

from __future__ import annotations

import attrs

from octopi.metrics.latencies import Histogram
from octopi.relay.messages import RelayStatus


@attrs.define
class RelayCounts:
    """What happened in one relay partition at this broker since it was started."""

    timelines: int = 0
    """How often it became part of another timeline."""
    gaps: int = 0
    """How often readers missed something here."""
    conflicts: int = 0
    """How often no digest had a quorum."""
    quorum: Histogram = attrs.field(factory=Histogram)
    """How long it took, as the receiver, from taking a transaction to knowing that a quorum has
    written it."""
    _fenced_s: float = 0.0
    _fenced_since: float | None = None

    def entered(self, status: RelayStatus, now: float) -> None:
        """It has that status from *now* on."""
        self._fenced_s = self.fenced_s(now)
        self._fenced_since = now if status is RelayStatus.FENCED else None

    def fenced_s(self, now: float) -> float:
        """How long it was fenced, up to *now*."""
        since = self._fenced_since
        return self._fenced_s + (0.0 if since is None else now - since)
