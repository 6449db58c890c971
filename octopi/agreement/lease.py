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

    def granted(self, acceptor: AcceptorId, sent_at: float) -> None:
        """*acceptor* has answered the pulse that was sent at *sent_at*, and grants the right."""
        self._sent_at[acceptor] = max(self._sent_at.get(acceptor, -inf), sent_at)

    def until(self, value: AgreedValue) -> float:
        """Until when the leader has the right, if the acceptors are those of *value*; -inf: it
        never had it."""
        for least in sorted(set(self._sent_at.values()), reverse=True):
            if value.is_quorum([one for one, at in self._sent_at.items() if at >= least]):
                return least + FENCE_S
        return -inf
