"""The right of a partition's leader to answer as the only one, which its followers grant.

After C. Gray and D. Cheriton, "Leases" (SOSP 1989).  With a register any follower that is in sync
may be elected, so *all* of them grant the right, also those whose place in the in-sync set is not
decided yet.  (Without a register an election takes a majority of acceptors, and a majority grants:
`octopi.agreement.lease`.)

A follower that grants a renewal promises no newer epoch for `SUSPECT_S` of its own clock.  The
leader counts `FENCE_S` of its own clock from when it *sent* the renewal.  Clocks whose rates differ
by less than 14 percent keep the first interval longer than the second.  So no other leader begins
while this one has the right.

A follower is free at once if the leader has said that it gives the right up, or if the leader's
process is gone.  The end of a connection alone does not show that.

Producing needs no such right: acknowledgements of all in-sync followers guard it.

Brokers don't ask for this right yet: no message carries a renewal
(`docs/decisions/0159-all-in-sync-followers-grant-a-leaders-lease.md`).
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from octopi.identifiers import BrokerId, Epoch
from octopi.limits import FENCE_S, SUSPECT_S


class LeaderLease:
    """The right of one leader in one epoch, as the leader counts it.

    Invariant: while it has the right, each grantor has granted a renewal that was sent less than
    `FENCE_S` ago.
    """

    def __init__(self) -> None:
        self._sent_at: dict[BrokerId, float] = {}
        """When the newest renewal was sent that a follower has granted."""
        self._is_over = False

    def granted(self, follower: BrokerId, sent_at: float) -> None:
        """*follower* grants the renewal that was sent at *sent_at*, by the leader's clock."""
        self._sent_at[follower] = max(self._sent_at.get(follower, -inf), sent_at)

    def give_up(self) -> None:
        """The leader resigns, and will tell its followers so.  It never has the right again."""
        self._is_over = True

    def until(self, grantors: Collection[BrokerId]) -> float:
        """Until when the leader has the right, by its clock, if *grantors* are all followers that
        may be elected; -inf: it has none.  Alone it has the right for ever: nobody else may be
        elected."""
        if self._is_over:
            return -inf
        oldest = min((self._sent_at.get(one, -inf) for one in grantors), default=inf)
        return oldest + FENCE_S


class FollowerGrant:
    """What one process of a follower has granted, and what it may promise meanwhile.

    Invariant: it promises no newer epoch before `held_until`, and grants nothing to a leader of an
    older epoch than the newest that it has promised.
    """

    def __init__(self, promised: Epoch, now: float) -> None:
        """*promised*: the newest epoch that the follower has promised, on its disk.  *now*: by its
        clock.  What the process before this one has granted is not known, so it counts as granted
        at this moment."""
        self.promised = promised
        self.held_until = now + SUSPECT_S

    def grant(self, epoch: Epoch, now: float) -> bool:
        """The leader of *epoch* renews its right.  Return whether it is granted."""
        if epoch < self.promised:
            return False
        self.held_until = max(self.held_until, now + SUSPECT_S)
        return True

    def free(self, epoch: Epoch) -> None:
        """The leader of *epoch* has given its right up, or its process is gone."""
        if epoch >= self.promised:
            self.held_until = -inf

    def may_promise(self, epoch: Epoch, now: float) -> bool:
        """Whether the follower may promise *epoch* now."""
        return epoch <= self.promised or now >= self.held_until

    def promise(self, epoch: Epoch, now: float) -> None:
        """The follower promises *epoch*, after which it grants nothing to earlier leaders."""
        assert self.may_promise(epoch, now), "a leader may still have the right"
        self.promised = max(self.promised, epoch)
