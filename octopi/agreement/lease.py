"""The right to act as a leader for a limited time, which a quorum of acceptors grants.

After C. Gray and D. Cheriton, "Leases" (SOSP 1989).  A leader sends pulses.  An acceptor that
answers one grants the right for `FENCE_S`, counted by the leader's clock from when it *sent* the
pulse.  An acceptor helps to replace a leader only if it has heard no pulse of it for `SUSPECT_S` by
its own clock (`octopi.agreement.heard`), or if the leader itself asks.  Two quorums share an
acceptor, and `FENCE_S` is shorter than `SUSPECT_S` by more than clocks differ in their rates.  So
no other leader is chosen while the first one has the right.
"""

from __future__ import annotations

from math import inf

from octopi.limits import FENCE_S
from octopi.wire.agreement import AcceptorId, AgreedValue


class Lease:
    """The right of one leader, in one epoch."""

    def __init__(self) -> None:
        self._sent_at: dict[AcceptorId, float] = {}
        """When the newest pulse was sent that an acceptor has answered."""
        self._known: list[tuple[AgreedValue, float]] = []
        """What `until` has found since; it is asked for each request of a client."""

    def granted(self, acceptor: AcceptorId, sent_at: float) -> None:
        """*acceptor* has answered the pulse that was sent at *sent_at*, and grants the right."""
        self._sent_at[acceptor] = max(self._sent_at.get(acceptor, -inf), sent_at)
        self._known.clear()

    def until(self, value: AgreedValue) -> float:
        """Until when the leader has the right, if the acceptors are those of *value*; -inf: it
        never had it."""
        for known, until in self._known:
            if known is value:
                return until
        until = self._find(value)
        self._known.append((value, until))
        return until

    def _find(self, value: AgreedValue) -> float:
        newest_first = sorted(self._sent_at, key=self._sent_at.__getitem__, reverse=True)
        for count in range(len(value.acceptors) // 2 + 1, len(newest_first) + 1):
            if value.is_quorum(newest_first[:count]):
                return self._sent_at[newest_first[count - 1]] + FENCE_S
        return -inf
