"""The election of a partition's leader: announced, accepted, and decided or given up.

The register makes an epoch durable and announces it.  Replicas that accept the epoch have left
their roles, so nothing more is committed in an older epoch, and they report the ends of their
durable logs.  Every member of the in-sync set of the last record holds all committed records.  So
any member that accepted may lead, and the ranking is only a preference.  If no member has accepted,
nothing is decided.  Announcing again does no harm.

If the in-sync set is empty because its last members lost unflushed records in a power failure, no
replica is certain to hold all committed records.  Then the election waits until all replicas that
were in sync until they lost data have accepted.  The one of them that holds the most leads, if it
lacks nothing that it had on the device.  An operator may order the election to be decided without
the replicas that are away, and with a leader that lacks something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from octopi.coordination.acceptance_pages import AcceptancePages
from octopi.coordination.in_sync_changes import newest_set
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch
from octopi.wire.messages import AcceptEpoch, PartitionRecord


@attrs.frozen
class ElectionGoal:
    """The wanted result of an election, met as far as the protocol allows."""

    leader: BrokerId | None = None
    """The broker that leads if it may."""
    avoid: frozenset[BrokerId] = frozenset()
    """Brokers that lead only if no other broker can."""
    leaving: frozenset[BrokerId] = frozenset()
    """Brokers that are about to stop.  They lead only if no other broker can, and leave the in-sync
    set if the other members suffice.  Each of those has on its device what the leaving brokers
    hold."""
    replicas: list[BrokerId] | None = None
    """The replicas that the partition has from then on.  New replicas join the in-sync set by
    following.  The replicas that stay hold all committed records of those that go.  While an
    in-sync replica that stays is away, no in-sync replica goes, and the replicas remain as they
    are."""

    def is_against(self, leader: BrokerId) -> bool:
        """Whether a broker other than *leader* should lead."""
        return self.leader not in {None, leader} or leader in self.avoid | self.leaving


NO_GOAL: Final = ElectionGoal()


@attrs.frozen
class LogLoss:
    """Records of one log that the next leader doesn't have, and that may have been acknowledged."""

    topic_id: str
    kept_end: int
    """The end of the log on the leader."""
    known_end: int
    """The highest end that any replica that accepted has, or is known to have had."""


class Election:
    """The acceptances of one announced epoch, kept in memory only."""

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.accepts: dict[BrokerId, AcceptEpoch] = {}
        self._gathering = AcceptancePages()

    def accept(self, message: AcceptEpoch) -> AcceptEpoch | None:
        """A replica accepted, or sent a further page of its acceptance.  Return the whole
        acceptance once it is complete and counts."""
        if message.epoch != self.epoch:
            return None
        whole = self._gathering.add(message)
        if whole is not None:
            self.accepts[message.broker] = whole
        return whole

    def forget(self, broker: BrokerId) -> None:
        """The broker was restarted, so its earlier acceptance no longer counts."""
        self.accepts.pop(broker, None)
        self._gathering.forget(broker)

    def missing(self, record: PartitionRecord, live: Collection[BrokerId]) -> list[BrokerId]:
        """The brokers whose acceptance is missing for a decision: the in-sync replicas if none of
        them has accepted; if no replica is in sync, those that were in sync until they lost data
        and have not accepted."""
        members = newest_set(record)
        away = members - {one for one in members if one in self.accepts and one in live}
        return sorted(away) if not record.in_sync or away == members else []

    def is_complete(self, record: PartitionRecord, live: Collection[BrokerId]) -> bool:
        """Whether all live candidates have accepted, so waiting can't improve the choice."""
        candidates = newest_set(record).intersection(live)
        return bool(candidates) and candidates <= self.accepts.keys()

    def decide(
        self,
        record: PartitionRecord,
        live: Collection[BrokerId],
        leaderships: Mapping[BrokerId, int],
        *,
        topics: Collection[str] = (),
        min_insync: int = 1,
        goal: ElectionGoal = NO_GOAL,
        serves: Callable[[BrokerId], bool] = lambda broker: True,
    ) -> PartitionRecord | None:
        """The record that follows *record*.  None until a live member of the in-sync set has
        accepted that *goal* keeps as a replica; nor does one that is about to stop take over from a
        member that is away.

        A broker that is not *live* doesn't count even if it has accepted: it could not lead, and
        commits would wait for it.  *leaderships*: how many partitions each broker leads.  *topics*:
        the ids of the partition's topics.  *serves*: whether a broker's replica takes records; if
        there is such a replica, one leads, whatever *goal* asks for.
        """
        assert self.epoch > record.epoch, "an epoch is decided once"
        replicas = _replicas_to_be(record, live, goal)
        members = [one for one in record.in_sync if one in replicas]
        accepted = [self.accepts[one] for one in members if one in self.accepts and one in live]
        if not accepted:
            return None
        staying = [one for one in accepted if one.broker not in goal.leaving]
        leads_on = any(_leads_on(one, record) for one in accepted)
        if not (staying or leads_on or goal.leaving.issuperset(members)):
            return None  # alone in sync, it would leave the partition without a leader soon
        # A broker that is about to stop would not lead for long.
        able = [one for one in staying if serves(one.broker)] or staying or accepted
        preferred = [one for one in able if one.broker == goal.leader]
        willing = [one for one in able if one.broker not in goal.avoid]
        leader = choose_leader(preferred or willing or able, leaderships, topics)
        least = min(min_insync, len(members))
        if _leads_on(leader, record) and goal.is_against(leader.broker):
            # No broker took over in time.  The other members may only be slow, so they stay.
            in_sync = [one for one in members if one in live]
            if goal.leaving.issuperset(in_sync):
                # When it has stopped, the first of the others that is back has to lead.
                in_sync = members
        else:
            in_sync = [one.broker for one in staying]
        if len(in_sync) < max(1, least):
            in_sync = [one.broker for one in accepted]
        if len(in_sync) < least:
            in_sync = members  # wait for the others to follow rather than go below `min_insync`
        return attrs.evolve(_appoint(record, self.epoch, leader, in_sync), replicas=replicas)

    def recover(
        self,
        record: PartitionRecord,
        live: Collection[BrokerId],
        leaderships: Mapping[BrokerId, int],
        *,
        topics: Collection[str] = (),
        replaced: Collection[BrokerId] = (),
        ordered: bool = False,
    ) -> PartitionRecord | None:
        """The record that follows one in which no in-sync replica can lead.  Records that no
        replica that accepted holds are lost.

        None unless all brokers that were in sync until they lost data are *live* and have accepted,
        and one of them lacks nothing that it had on the device.  *replaced*: brokers that joined
        with another data directory.  If an operator *ordered* the recovery, the best replica leads
        whose broker is live and has accepted.
        """
        assert ordered or not record.in_sync, "a replica in sync is never passed over unasked"
        members = newest_set(record)
        accepted = [
            self.accepts[one] for one in record.replicas if one in self.accepts and one in live
        ]
        if not ordered:
            if self.missing(record, live):
                return None
            accepted = [one for one in accepted if one.broker in members]
        sound = [one for one in accepted if is_sound(one) and one.broker not in replaced]
        best = sound or (accepted if ordered else [])
        if not best:
            return None
        # A replica that was in sync has all records that were flushed before being acknowledged.
        for known in (members, {*record.in_sync, *record.lost}):
            best = [one for one in best if one.broker in known] or best
        # The epoch of the last record would be the wrong measure: a replica may hold the
        # newest record and lack older ones that a later leader's agreement proved committed.
        newest = max(one.log_epoch for one in best)
        agreed = [attrs.evolve(one, last_epoch=NO_EPOCH) for one in best if one.log_epoch == newest]
        leader = choose_leader(agreed, leaderships, topics)
        recovered = _appoint(record, self.epoch, leader, [leader.broker])
        return attrs.evolve(recovered, recovered_epoch=self.epoch)

    def losses(self, leader: BrokerId, topics: Collection[str]) -> list[LogLoss]:
        """The known losses in the logs of *topics* if the broker *leader* leads alone.  A leader
        that has not accepted begins with empty logs."""
        kept = _ends(self.accepts[leader]) if leader in self.accepts else {}
        known: dict[str, int] = {}
        for one in self.accepts.values():
            for log in one.ends:
                known[log.topic_id] = max(known.get(log.topic_id, 0), log.end, log.held_end)
        return [
            LogLoss(topic_id, kept.get(topic_id, 0), known[topic_id])
            for topic_id in sorted(topics)
            if known.get(topic_id, 0) > kept.get(topic_id, 0)
        ]


def is_sound(accepted: AcceptEpoch) -> bool:
    """Whether the replica still has everything that it ever had on the device."""
    return all(log.sound for log in accepted.ends)


def choose_leader(
    accepted: Iterable[AcceptEpoch],
    leaderships: Mapping[BrokerId, int],
    topics: Collection[str] = (),
) -> AcceptEpoch:
    """The best of *accepted*: with sound logs, by newest epoch, then with the fewest logs of
    *topics* that another one holds more of, with the fewest bytes missing in these, by fewest
    leaderships, smallest id.

    Ends are compared log by log, because a replica that has the most of one topic may have the
    least of another.  Only logs of *topics* are compared, because a replica may still hold a
    deleted topic.
    """
    candidates = list(accepted)
    ends = {one.broker: _ends(one) for one in candidates}
    furthest = {
        topic_id: max(held.get(topic_id, 0) for held in ends.values()) for topic_id in topics
    }

    def rank(one: AcceptEpoch) -> tuple[bool, int, int, int, int, int]:
        held = ends[one.broker]
        missing = [furthest[topic_id] - held.get(topic_id, 0) for topic_id in topics]
        return (
            not is_sound(one),
            -one.last_epoch,
            sum(size > 0 for size in missing),
            sum(missing),
            leaderships.get(one.broker, 0),
            one.broker,
        )

    return min(candidates, key=rank)


def _ends(accepted: AcceptEpoch) -> dict[str, int]:
    return {log.topic_id: log.end for log in accepted.ends}


def _leads_on(leader: AcceptEpoch, record: PartitionRecord) -> bool:
    """Whether *leader* is the last leader, in the same incarnation: then it has all committed
    records."""
    return (leader.broker, leader.incarnation) == (record.leader, record.leader_incarnation)


def _replicas_to_be(
    record: PartitionRecord, live: Collection[BrokerId], goal: ElectionGoal
) -> list[BrokerId]:
    """The replicas that the goal asks for, if they can take over now; otherwise those of the
    record."""
    if goal.replicas is None:
        return record.replicas
    staying = set(record.in_sync).intersection(goal.replicas)
    leaving = set(record.in_sync) - staying
    if leaving and not (staying and staying.issubset(live)):
        return record.replicas
    return goal.replicas


def _appoint(
    record: PartitionRecord, epoch: Epoch, leader: AcceptEpoch, in_sync: list[BrokerId]
) -> PartitionRecord:
    return attrs.evolve(
        record,
        epoch=epoch,
        version=0,
        leader=leader.broker,
        leader_incarnation=leader.incarnation,
        in_sync=sorted(in_sync),
        lost=[],
    )
