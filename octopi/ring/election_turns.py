"""When a broker holds the election of a partition: whether one is wanted, and whose turn it is.

And when it finds out the newest value instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf

import attrs

from octopi.coordination.agreed_partition import AgreedPartition
from octopi.coordination.in_sync_changes import newest_set
from octopi.identifiers import BrokerId, Incarnation, PartitionId
from octopi.limits import AGREEMENT_TIMEOUT_S, ELECTION_TURN_S, ELECTION_WAIT_S


@attrs.frozen
class SeenBrokers:
    """What a broker sees of the others at a moment."""

    live: frozenset[BrokerId]
    """Those that it hears, itself among them."""
    is_suspected: Callable[[BrokerId, Incarnation], bool]
    """Whether an incarnation of a broker is taken for dead."""
    leaderships: Mapping[BrokerId, int]
    """How many partitions each leads, as far as it is known here."""
    unwilling: frozenset[BrokerId] = frozenset()
    """Those that are to lead only what no other broker can lead: they are drained."""
    serves: Callable[[BrokerId, PartitionId], bool] = lambda broker, partition: True
    """Whether a broker's replica takes records, as far as it is known here: not on a full disk."""


class ElectionTurns:
    """The turns of one broker in one partition."""

    def __init__(self, me: BrokerId, draw: Callable[[], float]) -> None:
        """*draw* gives random numbers from 0 to 1."""
        self._me = me
        self._draw = draw
        self._wanted_since: float | None = None
        """Since when an election has been wanted."""
        self._waits_until = -inf
        """Until when this broker holds none."""
        self._doubts_at = -inf
        """Not before then is it found out whether there is a newer value."""
        self._kept_out_since: float | None = None
        """Since when a broker has been there without being registered."""

    def wait(self, now: float) -> None:
        """Another broker has a chance to hold one first."""
        self._waits_until = now + ELECTION_WAIT_S * (1 + self._draw())

    def is_mine(
        self, agreed: AgreedPartition, group: Collection[BrokerId], now: float, seen: SeenBrokers
    ) -> bool:
        """Whether this broker, which may take part, is to hold an election now.  *group*: all
        brokers of the replica group."""
        if not self._is_wanted(agreed, seen):
            self._wanted_since = None
            return False
        if self._wanted_since is None:
            self._wanted_since = now
        in_sync = agreed.record.in_sync
        others = set(group).difference(in_sync)
        order = [one for one in (*sorted(in_sync), *sorted(others)) if one in seen.live]
        if self._me not in order:
            return False
        turn_at = self._wanted_since + order.index(self._me) * ELECTION_TURN_S
        return now >= max(turn_at, self._waits_until)

    def _is_wanted(self, agreed: AgreedPartition, seen: SeenBrokers) -> bool:
        """Whether an election is wanted, and might end with a leader."""
        record = agreed.record
        members = newest_set(record)
        if not members & seen.live or (not record.in_sync and not members <= seen.live):
            return False
        if not record.in_sync or agreed.announced > record.epoch:
            return True
        leader = agreed.incarnation(record.leader)
        if leader is not None and leader.incarnation != record.leader_incarnation:
            return True  # it was restarted
        return seen.is_suspected(record.leader, record.leader_incarnation)

    def is_in_doubt(self, agreed: AgreedPartition, now: float, seen: SeenBrokers) -> bool:
        """Whether to find out if there is a newer value: the leader is taken for dead, and no
        replica could take over.  A set that it asked for may be in force without having been told
        of, and one that could may be in it."""
        record = agreed.record
        if now < self._doubts_at or newest_set(record) & seen.live:
            return False
        if not seen.is_suspected(record.leader, record.leader_incarnation):
            return False
        self._doubts_at = now + ELECTION_WAIT_S
        return True

    def is_kept_out(self, agreed: AgreedPartition, now: float, seen: SeenBrokers) -> bool:
        """Whether the leader is to have the newest value repeated: a broker has been there for as
        long as a change may take, and is not registered.

        Its acceptor may have accepted an election that the others refused, because they hear the
        leader.  Then all that it proposes follows from that election, and is refused, too.  What
        the leader proposes is not.
        """
        if not _is_unregistered_there(agreed, seen):
            self._kept_out_since = None
        elif self._kept_out_since is None:
            self._kept_out_since = now
        elif now >= self._kept_out_since + AGREEMENT_TIMEOUT_S:
            self._kept_out_since = now
            return True
        return False


def _is_unregistered_there(agreed: AgreedPartition, seen: SeenBrokers) -> bool:
    """Whether a broker is there that has to be registered, and is not."""
    registered = {one.broker: one.incarnation for one in agreed.incarnations}
    waiting = seen.live & {*agreed.record.replicas, *registered}
    return any(one not in registered or seen.is_suspected(one, registered[one]) for one in waiting)
