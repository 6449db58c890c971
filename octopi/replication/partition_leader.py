"""The leader of a partition: who follows, who is in sync, whose acknowledgements count.

The in-sync set belongs to the register; the leader proposes one change at a time and
learns the outcome from the register's record.  Until it has, a commit needs the confirmed
set and the proposed one: whichever is in force, every member of it holds all that was
committed.

Followers open sessions.  An acknowledgement counts for the session it was given in, and a
session for one incarnation of a broker: after a power loss the same broker may hold less.
"""

from __future__ import annotations

import attrs

from octopi.errors import ProtocolError
from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, TopicId, is_internal
from octopi.replication.effects import Effect, OnLog, PartitionEffect, ToBroker
from octopi.replication.epoch_history import divergence
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.prior_state import history_of
from octopi.wire.messages import (
    Acknowledge,
    AlterInSync,
    Follow,
    Followed,
    FollowRefused,
    PartitionRecord,
)


@attrs.define
class FollowerSession:
    """A follower's stream, from its first `Follow` to its successor's."""

    incarnation: Incarnation
    attempt: int
    caught_up_at: float
    """It held then, on the monotonic clock (s), all that the leader had a while before."""
    open: bool = True
    followed: set[TopicId] = attrs.field(factory=set)
    """Logs on which it agreed with the leader."""
    early: dict[TopicId, Follow] = attrs.field(factory=dict)
    """What it asked about logs of new topics that the leader has not made yet."""
    targets: dict[TopicId, Offset] = attrs.field(factory=dict)
    """Log ends to reach for having caught up with the state at `target_at`."""
    target_at: float = 0.0

    @property
    def number(self) -> tuple[Incarnation, int]:
        """Sessions of one broker in their order."""
        return self.incarnation, self.attempt


class PartitionLeader:
    """Leads all logs of one partition in one epoch.

    Invariants: the leader is in the confirmed set; a proposal differs from that by one
    broker; a commit needs every member of both.
    """

    def __init__(
        self, record: PartitionRecord, now: float, *, durable: bool, lag_s_max: float
    ) -> None:
        """Begin to lead by *record*.  *durable*: what the leader holds counts only on the
        device; *lag_s_max*: so long may an in-sync follower be behind."""
        self.broker = record.leader
        self.incarnation = record.leader_incarnation
        self.partition = record.partition
        self.epoch = Epoch(record.epoch)
        self.replicas = frozenset(record.replicas)
        self.in_sync = frozenset(record.in_sync)
        """The confirmed in-sync set."""
        self.version = record.version
        self.pending: AlterInSync | None = None
        """The change whose outcome is not known."""
        self.logs: dict[TopicId, LogLeader] = {}
        self.sessions: dict[BrokerId, FollowerSession] = {}
        self.away: frozenset[BrokerId] = frozenset()
        """Brokers that are no members at the moment, as the register said last; they may be
        there all the same."""
        self.stopping: frozenset[BrokerId] = frozenset()
        """Brokers that are about to stop, as the register said last."""
        self.takes_records = True
        """Whether the disk took what was to be appended last."""
        self._durable = durable
        self._others: frozenset[BrokerId] = frozenset()
        """Whom commits wait for: one set for all logs, of which there may be many."""
        self._lag_s_max = lag_s_max
        self._began_at = self._looked_at = now

    # --- logs ------------------------------------------------------------------------

    def add_log(self, topic_id: TopicId, log: LogState) -> list[PartitionEffect]:
        """Lead a log, too."""
        leader = LogLeader(self.epoch, log, replicated=len(self.replicas) > 1)
        self.logs[topic_id] = leader
        effects = on_log(topic_id, self._require(leader))
        for session in self.sessions.values():
            asked = session.early.pop(topic_id, None)
            if asked is not None and session.open:
                effects += self.follow(asked)
        return effects

    def remove_log(self, topic_id: TopicId) -> None:
        """The topic is gone."""
        self.logs.pop(topic_id, None)
        for session in self.sessions.values():
            session.early.pop(topic_id, None)

    @property
    def min_insync(self) -> int:
        """The in-sync set doesn't shrink below this: the least that any topic asks for, so
        that no topic waits for another's wish.  Internal logs ask for nothing."""
        asked = (
            leader.log.min_insync
            for topic_id, leader in self.logs.items()
            if not is_internal(topic_id)
        )
        return min(asked, default=1)

    # --- sessions --------------------------------------------------------------------

    def follow(self, message: Follow) -> list[PartitionEffect]:
        """A follower wants to follow one log, or a partition that has none (yet).

        Raises:
          ProtocolError: if what it sends is no epoch history.
        """
        broker, number = message.broker, (message.incarnation, message.attempt)
        topic_id = TopicId(message.topic_id)
        leader = self.logs.get(topic_id)
        if message.epoch != self.epoch:
            return [refuse_follow(message, f"the epoch is {self.epoch}")]
        if broker not in self.replicas or broker == self.broker:
            return [refuse_follow(message, "that partition is not for you")]
        if not topic_id and self.logs:
            return []  # it has not made the logs yet, and follows them as soon as it has
        session = self.sessions.get(broker)
        if session is not None and number < session.number:
            return []  # late: a newer session began
        if session is None or number > session.number:
            for one in self.logs.values():
                one.forget(broker)
            # A stream that breaks again and again doesn't make a follower quicker.
            since = self._began_at if session is None else session.caught_up_at
            session = FollowerSession(
                *number, since, targets=self._ends(), target_at=self._looked_at
            )
            self.sessions[broker] = session
        if not topic_id:
            return [ToBroker(broker, Followed(self.partition, self.epoch, *number, topic_id, 0, 0))]
        theirs = history_of(message.epochs)
        if leader is None:
            # A new topic, which it made before us.  Sent away, it would leave the in-sync set.
            session.early[topic_id] = message
            return []
        log = leader.log
        keep = divergence(log.epochs.ends(log.end), theirs.ends(Offset(message.log_end)))
        session.followed.add(topic_id)
        begin = max(keep, log.start)
        followed = Followed(self.partition, self.epoch, *number, message.topic_id, keep, begin)
        if begin > keep:
            followed = log.past(begin).tell(followed)
        return [ToBroker(broker, followed)]

    def acknowledge(self, message: Acknowledge) -> list[PartitionEffect]:
        """A follower holds more of a log.

        Raises:
          ProtocolError: if it claims more than there is.
        """
        session = self.sessions.get(message.broker)
        topic_id = TopicId(message.topic_id)
        leader = self.logs.get(topic_id)
        if (
            message.epoch != self.epoch
            or session is None
            or session.number != (message.incarnation, message.attempt)
            or topic_id not in session.followed
            or leader is None
        ):
            return []
        if message.end > leader.log.end:
            raise ProtocolError(
                f"broker {message.broker} acknowledges {message.end}, the log ends at "
                f"{leader.log.end}"
            )
        return on_log(topic_id, leader.acknowledged(message.broker, Offset(message.end)))

    def session_ended(self, broker: BrokerId, incarnation: Incarnation, attempt: int) -> None:
        """That stream broke.  What it acknowledged stays true, but it catches up no more."""
        session = self.sessions.get(broker)
        if session is not None and session.number == (incarnation, attempt):
            session.open = False

    # --- the in-sync set -------------------------------------------------------------

    def counts(self, broker: BrokerId) -> bool:
        """Whether commits wait for *broker*: it is in sync, or may be so by now."""
        proposed = self.pending.in_sync if self.pending else ()
        return broker in self.in_sync or broker in proposed

    def may_join(self, broker: BrokerId) -> bool:
        """Whether *broker* can become in sync: it holds what may be committed of every log."""
        session = self.sessions.get(broker)
        if broker in self.in_sync or broker not in self.replicas or session is None:
            return False
        if broker in self.stopping:
            return False
        ends = ((one.acknowledged_end(broker), one.joining_end) for one in self.logs.values())
        return session.open and all(end is not None and end >= need for end, need in ends)

    def may_leave(self, broker: BrokerId) -> bool:
        """Whether the in-sync set can do without *broker*.  A leader that takes no records can't
        do without any: another one is to lead."""
        return (
            self.takes_records
            and broker != self.broker
            and broker in self.in_sync
            and len(self.in_sync) > self.min_insync
        )

    def wanted_change(self, now: float) -> AlterInSync | None:
        """What to propose at *now* (monotonic, s): a follower that has caught up joins, one
        that lags for too long or is about to stop leaves."""
        self._looked_at = now
        for broker in sorted(self.replicas - {self.broker}):
            self._look_at(broker, now)
        if self.pending is not None:
            return None
        for broker in sorted(self.replicas - {self.broker}):
            if self.may_join(broker) and not self._lags(broker, now):
                return self.joining(broker)
        for broker in sorted(self.in_sync - {self.broker}):
            is_leaving = broker in self.stopping or self._lags(broker, now)
            if is_leaving and self.may_leave(broker):
                return self.leaving(broker)
        return None

    def wanted_join(self, broker: BrokerId) -> AlterInSync | None:
        """What to propose when *broker* has just acknowledged, and so reached what the leader
        had a moment ago.  While much is produced, others have acknowledged more by the time that
        somebody looks next, and always will have."""
        if self.pending is not None or not self.may_join(broker):
            return None
        targets = self.sessions[broker].targets
        if any(self._lacks(broker, topic_id, target) for topic_id, target in targets.items()):
            return None
        return None if self._lags(broker, self._looked_at) else self.joining(broker)

    def joining(self, broker: BrokerId) -> AlterInSync:
        """The proposal that *broker* joins."""
        assert self.may_join(broker)
        return self._alter(self.in_sync | {broker}, self.sessions[broker].incarnation)

    def leaving(self, broker: BrokerId) -> AlterInSync:
        """The proposal that *broker* leaves."""
        assert self.may_leave(broker)
        return self._alter(self.in_sync - {broker}, None)

    def _alter(
        self, in_sync: frozenset[BrokerId], joiner_incarnation: Incarnation | None
    ) -> AlterInSync:
        return AlterInSync(
            self.partition,
            self.epoch,
            self.broker,
            self.incarnation,
            self.version,
            sorted(in_sync),
            joiner_incarnation,
        )

    def stands_by(self, change: AlterInSync) -> bool:
        """Whether *change*, which was wanted a moment ago, may still be sent: a leader that takes
        no records can't do without anybody."""
        return self.takes_records or self.in_sync <= {*change.in_sync}

    def proposed(self, change: AlterInSync) -> list[PartitionEffect]:
        """*change* is sent: count both sets until the outcome is known."""
        assert self.pending is None, "one change at a time"
        self.pending = change
        return self._recount()

    def learn(self, record: PartitionRecord) -> list[PartitionEffect]:
        """The register's record of this epoch is at another version: the outcome is known,
        because no change that names an older version can come into force any more."""
        assert record.epoch == self.epoch
        if record.version <= self.version:
            return []
        self.in_sync, self.version = frozenset(record.in_sync), record.version
        self.pending = None
        return self._recount()

    def refused(self, change: AlterInSync) -> list[PartitionEffect]:
        """The register refused *change* while the set's version is what it names: for good."""
        if change != self.pending:
            return []
        self.pending = None
        return self._recount()

    def require_again(self, topic_id: TopicId) -> list[PartitionEffect]:
        """What that log asks of its commits has changed: its `LogState.flush_before_ack` or
        `LogState.min_insync`."""
        leader = self.logs.get(topic_id)
        return on_log(topic_id, self._require(leader)) if leader is not None else []

    def require_durable(self, durable: bool) -> list[PartitionEffect]:
        """From here on, what the leader holds counts only on the device, or no longer so."""
        self._durable = durable
        return self._recount()

    @property
    def alone(self) -> bool:
        """Whether it leads alone what others should hold, too."""
        return self.in_sync == {self.broker} and len(self.replicas) > 1

    def _recount(self) -> list[PartitionEffect]:
        return [
            effect
            for topic_id, leader in self.logs.items()
            for effect in on_log(topic_id, self._require(leader))
        ]

    def _require(self, leader: LogLeader) -> list[Effect]:
        proposed = self.pending.in_sync if self.pending else ()
        others = self.in_sync.union(proposed) - {self.broker}
        if others != self._others:
            self._others = others
        # Alone, the page cache of this one machine would be all there is.
        durable = self._durable or self.alone
        return leader.require(self._others, len(self.in_sync), durable=durable)

    # --- who lags --------------------------------------------------------------------

    def _look_at(self, broker: BrokerId, now: float) -> None:
        """Note whether *broker* has reached the ends that it was last measured by."""
        session = self.sessions.get(broker)
        if session is None or not session.open:
            return
        for topic_id, target in list(session.targets.items()):
            if not self._lacks(broker, topic_id, target):
                del session.targets[topic_id]
        if session.targets or not session.followed.issuperset(self.logs):
            return
        session.caught_up_at = max(session.caught_up_at, session.target_at)
        session.target_at = now
        session.targets = {
            topic_id: end
            for topic_id, end in self._ends().items()
            if self._lacks(broker, topic_id, end)
        }
        if not session.targets:
            session.caught_up_at = now

    def _ends(self) -> dict[TopicId, Offset]:
        return {topic_id: leader.log.end for topic_id, leader in self.logs.items()}

    def _lacks(self, broker: BrokerId, topic_id: TopicId, end: Offset) -> bool:
        """Whether *broker* has yet to acknowledge that log up to *end*."""
        leader = self.logs.get(topic_id)
        return leader is not None and (leader.acknowledged_end(broker) or 0) < end

    def _lags(self, broker: BrokerId, now: float) -> bool:
        session = self.sessions.get(broker)
        if session is not None and not session.open:
            # Its process is gone, most often: nobody is to wait for it, and if it is not,
            # it follows and joins again in a moment.
            return True
        if session is None and broker in self.away:
            return True  # likewise: its process was gone before it could follow
        since = self._began_at if session is None else session.caught_up_at
        return now - since > self._lag_s_max

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.broker in self.in_sync <= self.replicas
        if self.pending is not None:
            assert len(self.in_sync.symmetric_difference(self.pending.in_sync)) == 1
            assert self.broker in self.pending.in_sync
            assert self.pending.version == self.version
        for leader in self.logs.values():
            leader.check_invariants()


def on_log(topic_id: TopicId, effects: list[Effect]) -> list[PartitionEffect]:
    """The same effects, as effects on that log."""
    return [OnLog(topic_id, effect) for effect in effects]


def refuse_follow(message: Follow, reason: str) -> ToBroker:
    """The answer to who can't follow here now."""
    refused = FollowRefused(
        message.partition,
        message.epoch,
        message.incarnation,
        message.attempt,
        message.topic_id,
        reason,
    )
    return ToBroker(message.broker, refused)
