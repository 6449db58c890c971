"""One change of a partition's leader: announced, accepted, committed; or given up.

The register announces an epoch (durable first).  Replicas that accept it have left their
roles, so nothing is committed in an older epoch behind the back of the choice, and they
report durable logs.  Every member of the in-sync set of the last record holds all that was
committed; so one of those that accepted leads, whichever it is, and the ranking is only a
preference.  Without one of them nothing is decided: announcing again does no harm.

When the in-sync set is empty (its last members lost power, and with it what they held),
nobody is sure to hold everything that was committed.  Then the best of *all* replicas may
lead, or, if an operator orders it, the best of those that answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from octopi.wire.messages import AcceptEpoch, PartitionRecord


@attrs.frozen
class Wish:
    """What a change of leadership should bring about, where the protocol lets it."""

    leader: int | None = None
    """Leads if it may."""
    avoid: frozenset[int] = frozenset()
    """Lead only if nobody else can."""
    replicas: list[int] | None = None
    """Hold the partition from then on.  New ones join the in-sync set by following; of those
    that go, the others hold all that is committed.  Nobody in sync goes while one that stays
    in sync is away: then the partition stays where it is."""


NO_WISH: Final = Wish()


class LeadershipChange:
    """The acceptances of one announced epoch; remembered no longer than the process."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.accepts: dict[int, AcceptEpoch] = {}

    def accept(self, message: AcceptEpoch) -> bool:
        """A replica accepted; say whether it counts here."""
        if message.epoch != self.epoch:
            return False
        self.accepts[message.broker] = message
        return True

    def forget(self, broker: int) -> None:
        """The broker was restarted: what it reported may be true no more."""
        self.accepts.pop(broker, None)

    def is_complete(self, record: PartitionRecord, live: Collection[int]) -> bool:
        """Whether waiting can't make the choice better: all live candidates accepted."""
        candidates = set(record.in_sync or record.replicas).intersection(live)
        return bool(candidates) and candidates <= self.accepts.keys()

    def decide(
        self,
        record: PartitionRecord,
        live: Collection[int],
        leaderships: Mapping[int, int],
        *,
        min_insync: int = 1,
        wish: Wish = NO_WISH,
    ) -> PartitionRecord | None:
        """The record that follows *record*; None while no live in-sync member has accepted
        that the wish leaves.

        Who is not *live* doesn't count, though it accepted: it would be appointed, or waited
        for, in vain.  *leaderships* counts the partitions that each broker leads.
        """
        assert self.epoch > record.epoch, "an epoch is decided once"
        replicas = _replicas_to_be(record, live, wish)
        members = [one for one in record.in_sync if one in replicas]
        accepted = [self.accepts[one] for one in members if one in self.accepts and one in live]
        if not accepted:
            return None
        preferred = [one for one in accepted if one.broker == wish.leader]
        willing = [one for one in accepted if one.broker not in wish.avoid]
        leader = choose_leader(preferred or willing or accepted, leaderships)
        in_sync = [one.broker for one in accepted]
        if len(in_sync) < min(min_insync, len(members)):
            in_sync = members  # wait for the others to follow, rather than go below
        return attrs.evolve(_appoint(record, self.epoch, leader, in_sync), replicas=replicas)

    def recover(
        self, record: PartitionRecord, leaderships: Mapping[int, int], *, ordered: bool
    ) -> PartitionRecord | None:
        """The record that follows one without any in-sync replica: what only the lost ones
        held is lost.  None unless all replicas have accepted, or, if an operator *ordered*
        it, one."""
        assert not record.in_sync, "while somebody is in sync nothing has to be given up"
        accepted = [self.accepts[one] for one in record.replicas if one in self.accepts]
        if not accepted or not (ordered or len(accepted) == len(record.replicas)):
            return None
        # The epoch of the last record would be the wrong measure: a replica may hold the
        # newest record and lack older ones that a later leader's agreement proved committed.
        newest = max(one.log_epoch for one in accepted)
        longest = max(one.log_end for one in accepted if one.log_epoch == newest)
        best = [one for one in accepted if (one.log_epoch, one.log_end) == (newest, longest)]
        leader = choose_leader(best, leaderships)
        return _appoint(record, self.epoch, leader, [leader.broker])


def choose_leader(accepted: Iterable[AcceptEpoch], leaderships: Mapping[int, int]) -> AcceptEpoch:
    """The best of *accepted*: by newest epoch, longest log, fewest leaderships, smallest id
    (the ranking of Kafka Lite)."""
    return min(
        accepted,
        key=lambda one: (
            -one.last_epoch,
            -one.log_end,
            leaderships.get(one.broker, 0),
            one.broker,
        ),
    )


def _replicas_to_be(record: PartitionRecord, live: Collection[int], wish: Wish) -> list[int]:
    """The replicas that are wished for, if they can take over now what leaves them."""
    if wish.replicas is None:
        return record.replicas
    staying = set(record.in_sync).intersection(wish.replicas)
    leaving = set(record.in_sync) - staying
    if leaving and not (staying and staying.issubset(live)):
        return record.replicas
    return wish.replicas


def _appoint(
    record: PartitionRecord, epoch: int, leader: AcceptEpoch, in_sync: list[int]
) -> PartitionRecord:
    return attrs.evolve(
        record,
        epoch=epoch,
        version=0,
        leader=leader.broker,
        leader_incarnation=leader.incarnation,
        in_sync=sorted(in_sync),
    )
