"""The leader of a partition: its followers, the in-sync set, and the acknowledgements that a commit
requires.

Only the register changes the in-sync set; the leader proposes one change at a time and learns the
outcome from the register's partition record.  Until then, a commit requires the confirmed set and
the proposed one, so the members of either hold all that was committed.

Followers open sessions.  An acknowledgement counts only for the session in which it was sent, and a
session is one of one incarnation of a broker: after a power failure the broker may hold less.
"""

from __future__ import annotations

import attrs

from octopi.errors import ProtocolError
from octopi.identifiers import (
    SUBSCRIPTIONS_LOG,
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    TopicId,
    is_internal,
)
from octopi.replication.effects import Effect, OnLog, PartitionEffect, ToBroker
from octopi.replication.epoch_history import divergence
from octopi.replication.generation_seals import GenerationSeal
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.prior_state import history_of
from octopi.replication.producer_fences import ProducerFences
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
    """A follower's session, from its first `Follow` to the first one of the next session."""

    incarnation: Incarnation
    attempt: int
    caught_up_at: float
    """When it last held everything that the leader had when it was measured (monotonic, s)."""
    open: bool = True
    followed: set[TopicId] = attrs.field(factory=set)
    """The logs on which it agrees with the leader."""
    early: dict[TopicId, Follow] = attrs.field(factory=dict)
    """Requests to follow logs of new topics that the leader has not made yet."""
    targets: dict[TopicId, Offset] = attrs.field(factory=dict)
    """The leader's log ends at `target_at` that it has not acknowledged yet."""
    target_at: float = 0.0

    @property
    def number(self) -> tuple[Incarnation, int]:
        """Orders the sessions of one broker."""
        return self.incarnation, self.attempt


class PartitionLeader:
    """Leads all logs of one partition in one epoch.

    Invariants: the leader is in the confirmed in-sync set; a proposal differs from that set by one
    broker; a commit requires every member of both.
    """

    def __init__(
        self, record: PartitionRecord, now: float, *, durable: bool, lag_s_max: float
    ) -> None:
        """Begin to lead in the epoch of *record*.  *durable*: whether the leader's records count
        only on the device.  *lag_s_max*: how many seconds an in-sync follower may lag."""
        self.broker = record.leader
        self.incarnation = record.leader_incarnation
        self.partition = record.partition
        self.epoch = Epoch(record.epoch)
        self.replicas = frozenset(record.replicas)
        self.in_sync = frozenset(record.in_sync)
        """The confirmed in-sync set."""
        self.version = record.version
        self.pending: AlterInSync | None = None
        """The proposed change whose outcome is not known yet."""
        self.logs: dict[TopicId, LogLeader] = {}
        self.sessions: dict[BrokerId, FollowerSession] = {}
        self.away: frozenset[BrokerId] = frozenset()
        """Brokers that are no members at the moment, according to the register; they may still be
        running."""
        self.stopping: frozenset[BrokerId] = frozenset()
        """Brokers that are about to stop, according to the register."""
        self.takes_records = True
        """Whether the disk took the last append."""
        self._durable = durable
        self._others: frozenset[BrokerId] = frozenset()
        """The brokers that commits wait for; all logs share this one object, to save memory."""
        self._lag_s_max = lag_s_max
        self._began_at = self._looked_at = now

    # --- logs ------------------------------------------------------------------------

    def add_log(self, topic_id: TopicId, log: LogState) -> list[PartitionEffect]:
        """Begin to lead a log."""
        leader = LogLeader(self.epoch, log, replicated=len(self.replicas) > 1)
        self.logs[topic_id] = leader
        self._note_fences()
        effects = on_log(topic_id, self._require(leader))
        for session in self.sessions.values():
            asked = session.early.pop(topic_id, None)
            if asked is not None and session.open:
                effects += self.follow(asked)
        return effects

    def _note_fences(self) -> None:
        """Have each log of a topic refuse the producers that are fenced in the internal log, and
        go by its seal there."""
        internal = self.logs.get(TopicId(SUBSCRIPTIONS_LOG))
        if internal is not None:
            for topic_id, leader in self.logs.items():
                if leader.fences is None and not is_internal(topic_id):
                    leader.fences = ProducerFences(topic_id, internal.log)
                    leader.seal = GenerationSeal.of(topic_id, internal.log)

    def remove_log(self, topic_id: TopicId) -> list[PartitionEffect]:
        """The topic is gone."""
        self.logs.pop(topic_id, None)
        for session in self.sessions.values():
            session.early.pop(topic_id, None)
        internal_id = TopicId(SUBSCRIPTIONS_LOG)
        internal = self.logs.get(internal_id)
        return [] if internal is None else on_log(internal_id, internal.end_fences(topic_id))

    @property
    def min_insync(self) -> int:
        """The in-sync set doesn't shrink below this: the smallest `min_insync` of all topics, so
        that the option of one topic doesn't stop others.  Internal logs are not counted."""
        asked = (
            leader.log.min_insync
            for topic_id, leader in self.logs.items()
            if not is_internal(topic_id)
        )
        return min(asked, default=1)

    # --- sessions --------------------------------------------------------------------

    def follow(self, message: Follow) -> list[PartitionEffect]:
        """A follower asks to follow one log, or a partition that has none yet.

        Raises:
          ProtocolError: if it doesn't send a valid epoch history.
        """
        broker, number = message.broker, (message.incarnation, message.attempt)
        topic_id = TopicId(message.topic_id)
        leader = self.logs.get(topic_id)
        if message.epoch != self.epoch:
            return [refuse_follow(message, f"the epoch is {self.epoch}")]
        if broker not in self.replicas or broker == self.broker:
            return [refuse_follow(message, "that partition is not for you")]
        if not topic_id and self.logs:
            return []  # it follows the logs as soon as it has made them
        session = self.sessions.get(broker)
        if session is not None and number < session.number:
            return []  # late: a newer session has begun
        if session is None or number > session.number:
            for one in self.logs.values():
                one.forget(broker)
            # A new session doesn't reset the lag, else a stream that breaks often would hide it.
            since = self._began_at if session is None else session.caught_up_at
            session = FollowerSession(
                *number, since, targets=self._ends(), target_at=self._looked_at
            )
            self.sessions[broker] = session
        if not topic_id:
            return [ToBroker(broker, Followed(self.partition, self.epoch, *number, topic_id, 0, 0))]
        theirs = history_of(message.epochs)
        if leader is None:
            # The follower has made the log of a new topic before this leader has.  If it were
            # refused, it would leave the in-sync set.
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
        """A follower acknowledges a log up to an offset.

        Raises:
          ProtocolError: if it acknowledges more than the log has.
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
        """The stream of a session broke.  Its acknowledgements stay valid, but the follower doesn't
        catch up any more."""
        session = self.sessions.get(broker)
        if session is not None and session.number == (incarnation, attempt):
            session.open = False

    # --- the in-sync set -------------------------------------------------------------

    def counts(self, broker: BrokerId) -> bool:
        """Whether commits wait for *broker*: it is in the confirmed in-sync set or the proposed
        one."""
        proposed = self.pending.in_sync if self.pending else ()
        return broker in self.in_sync or broker in proposed

    def may_join(self, broker: BrokerId) -> bool:
        """Whether *broker* can become in sync: it holds all records that may be committed."""
        session = self.sessions.get(broker)
        if broker in self.in_sync or broker not in self.replicas or session is None:
            return False
        if broker in self.stopping:
            return False
        ends = ((one.acknowledged_end(broker), one.joining_end) for one in self.logs.values())
        return session.open and all(end is not None and end >= need for end, need in ends)

    def may_leave(self, broker: BrokerId) -> bool:
        """Whether *broker* may be removed from the in-sync set.  A leader whose disk takes no
        records removes none, because one of them has to lead instead."""
        return (
            self.takes_records
            and broker != self.broker
            and broker in self.in_sync
            and len(self.in_sync) > self.min_insync
        )

    def wanted_change(self, now: float) -> AlterInSync | None:
        """The change to propose at *now* (monotonic, s), if any: a follower that has caught up
        joins, a follower that lags for too long or is about to stop leaves."""
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
        """The change to propose, if any, when *broker* has just acknowledged the leader's ends of a
        moment ago.  This check is needed because, while much is produced, the other replicas have
        always committed more by the time of the next periodic check."""
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
        """Whether *change*, which was wanted a moment ago, may still be sent: a leader whose disk
        takes no records removes no broker."""
        return self.takes_records or self.in_sync <= {*change.in_sync}

    def proposed(self, change: AlterInSync) -> list[PartitionEffect]:
        """*change* is sent: commits require both sets until the outcome is known."""
        assert self.pending is None, "one change at a time"
        self.pending = change
        return self._recount()

    def learn(self, record: PartitionRecord) -> list[PartitionEffect]:
        """The register has sent a record of this epoch.  If its version is new, the outcome of a
        proposal is known, because the register accepts no change that names an older version."""
        assert record.epoch == self.epoch
        if record.version <= self.version:
            return []
        self.in_sync, self.version = frozenset(record.in_sync), record.version
        self.pending = None
        return self._recount()

    def refused(self, change: AlterInSync) -> list[PartitionEffect]:
        """The register has refused *change*, which names the present version; this is final."""
        if change != self.pending:
            return []
        self.pending = None
        return self._recount()

    def require_again(self, topic_id: TopicId) -> list[PartitionEffect]:
        """The `LogState.flush_before_ack` or `LogState.min_insync` of a log has changed: apply it
        to commits."""
        leader = self.logs.get(topic_id)
        return on_log(topic_id, self._require(leader)) if leader is not None else []

    def require_durable(self, durable: bool) -> list[PartitionEffect]:
        """*durable*: whether the leader's records count only on the device, from now on."""
        self._durable = durable
        return self._recount()

    @property
    def alone(self) -> bool:
        """Whether the partition has other replicas, but none of them is in sync."""
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
        # Alone, records in the page cache would be lost if this one machine failed.
        durable = self._durable or self.alone
        return leader.require(self._others, len(self.in_sync), durable=durable)

    # --- who lags --------------------------------------------------------------------

    def _look_at(self, broker: BrokerId, now: float) -> None:
        """Note whether *broker* has reached its targets; if so, set new ones."""
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
        """Whether *broker* has not yet acknowledged a log up to *end*."""
        leader = self.logs.get(topic_id)
        return leader is not None and (leader.acknowledged_end(broker) or 0) < end

    def _lags(self, broker: BrokerId, now: float) -> bool:
        session = self.sessions.get(broker)
        if session is not None and not session.open:
            # Its process has probably ended, so producers must not wait for it.  If it has not,
            # it follows and joins again in a moment.
            return True
        if session is None and broker in self.away:
            return True  # likewise: its process has probably ended before it could follow
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
    """*effects* as effects on one log of the partition."""
    return [OnLog(topic_id, effect) for effect in effects]


def refuse_follow(message: Follow, reason: str) -> ToBroker:
    """The refusal of *message*."""
    refused = FollowRefused(
        message.partition,
        message.epoch,
        message.incarnation,
        message.attempt,
        message.topic_id,
        reason,
    )
    return ToBroker(message.broker, refused)
