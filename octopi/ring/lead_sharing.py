"""Which leads a broker of a ring gives to others, so that no broker leads many more than others.

Each broker computes the moves of all from what it knows, and carries out those of what it leads
itself (`octopi.coordination.placement.balance_leaders`).  Brokers that know the same compute the
same moves.  Each move makes the numbers of leads differ less, so they come to rest, whatever a
broker knows too late.  And nobody moves anything before leaders and brokers have been the same for
a while: after a failure elections come first, and a broker that goes away again and again gets
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf

from octopi.coordination.agreed_partition import AgreedPartition
from octopi.coordination.placement import LeaderMove, balance_leaders
from octopi.identifiers import BrokerId, Epoch, PartitionId
from octopi.limits import HAND_OVERS_MAX, SHARE_LEADS_S


class LeadSharing:
    """What one broker sees of the leaders, and since when."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._seen_since = inf

    def moves(
        self, partitions: Iterable[AgreedPartition], willing: Collection[BrokerId], now: float
    ) -> list[LeaderMove]:
        """The moves of all brokers that are due now.  *willing*: the brokers that are there and may
        lead."""
        known = list(partitions)
        leaders: list[tuple[PartitionId, BrokerId, Epoch, Epoch]] = []
        for one in known:
            record = one.record
            leaders.append((record.partition, record.leader, record.epoch, one.announced))
        seen = (leaders, sorted(willing))
        if seen != self._seen:
            self._seen, self._seen_since = seen, now
        if now - self._seen_since < SHARE_LEADS_S:
            return []
        self._seen_since = now  # if they come to nothing, it waits as long again
        settled = [one.record for one in known if one.announced == one.record.epoch]
        return balance_leaders(settled, willing, shifts_max=HAND_OVERS_MAX)
