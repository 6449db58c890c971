"""A broker's replica of one partition: the epoch that it has promised, and its role.

Epochs only grow.  A replica that has accepted an epoch, or acted in it, does nothing in an older
one any more, even after a failure: the promise is on the device before another node hears of it.
Only the register's records give a role, and a record appoints one incarnation of a broker, so a
restarted broker is idle until the register sends it a record.

What is on the device before an action:

=============================== =================================================
action                          on the device before it
=============================== =================================================
the register is joined          that the logs are not intact
an epoch is accepted            the logs, the sync flag, the promise
leading or following begins     the promise and the record
it is proposed to lead alone    the logs, the sync flag
a record of an epoch is stored  the log's epoch history
anything is acknowledged        the records, while the sync flag is set
acknowledging from page cache   that the sync flag is no longer set
=============================== =================================================
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import attrs

from octopi.errors import NotLeaderError
from octopi.identifiers import BrokerId, Incarnation, Offset, PartitionId, TopicId
from octopi.limits import REPLICA_LAG_S_MAX
from octopi.record import Scan
from octopi.replication import replica_logs
from octopi.replication.effects import (
    FollowLeader,
    OnLog,
    PartitionEffect,
    ReplicaState,
    SetAside,
    StoreEpochs,
    StoreState,
    SyncLogs,
    ToBroker,
    ToRegister,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.partition_follower import PartitionFollower
from octopi.replication.partition_leader import PartitionLeader, on_log, refuse_follow
from octopi.wire.messages import (
    AcceptEpoch,
    Acknowledge,
    AlterInSync,
    AnnounceEpoch,
    Follow,
    Followed,
    InSyncAltered,
    PartitionRecord,
    ReplicaReport,
    Replicate,
)


class Role(Enum):
    """The role of a replica."""

    IDLE = auto()
    LEADER = auto()
    FOLLOWER = auto()


class PartitionReplica:
    """A broker's replica of a partition.

    Invariants: it has a role only in the promised epoch; while the sync flag is set, its records
    count only on the device.
    """

    def __init__(
        self,
        partition: PartitionId,
        broker: BrokerId,
        incarnation: Incarnation,
        state: ReplicaState,
        logs: dict[TopicId, LogState],
        *,
        lost_power: bool = False,
        lag_s_max: float = REPLICA_LAG_S_MAX,
    ) -> None:
        """Start with the state and the logs on the disk.  *lost_power*: whether the machine may
        have lost its power since the logs were written."""
        self.partition = partition
        self.broker = broker
        self.incarnation = incarnation
        self.logs = logs
        self.role = Role.IDLE
        self.registered = False
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        """The session with the leader; None before the first stream is open."""
        replica_logs.follow_topics(logs)
        flushed = state.sync_flag or not lost_power
        intact = state.intact and replica_logs.are_intact(logs, flushed=flushed)
        whole = state.whole and replica_logs.are_sound(logs)
        self.state = attrs.evolve(state, intact=intact, whole=whole)
        self._away: frozenset[BrokerId] = frozenset()
        self._stopping: frozenset[BrokerId] = frozenset()
        self.is_stopping = False
        self._attempt = 0
        self._lag_s_max = lag_s_max

    # --- the register ----------------------------------------------------------------

    def begin(self) -> list[PartitionEffect]:
        """The first effects of an incarnation: store what was found missing, and remove epochs
        without records from the histories."""
        effects: list[PartitionEffect] = [StoreState(self.state)]
        for topic_id, log in self.logs.items():
            if log.epochs.truncate(log.end):
                effects.append(OnLog(topic_id, StoreEpochs()))
        return effects

    @property
    def report(self) -> ReplicaReport:
        """What the broker reports to the register when it joins."""
        return ReplicaReport(self.partition, self.state.promised, self.state.intact)

    def joined(self) -> list[PartitionEffect]:
        """This incarnation of the broker is a member now."""
        self.registered = True
        return []

    def _intact_by(self, record: PartitionRecord) -> bool:
        """Whether to note the logs as intact when *record* is stored: they were intact, or the
        record shows that the register knows that they were not.  If the register doesn't know the
        partition yet when the broker joins, the replica reports it again the next time."""
        leads = (record.leader, record.leader_incarnation) == (self.broker, self.incarnation)
        return self.state.intact or leads or self.broker not in record.in_sync

    def _whole_by(self, record: PartitionRecord) -> bool:
        """Whether to note the logs as whole when *record* is stored.  If the register, which knows
        of the damage, takes the replica into the in-sync set, damaged records were copied again."""
        is_back = self.state.intact and self.broker in record.in_sync
        return self.state.whole or (is_back and replica_logs.are_sound(self.logs))

    def announced(self, message: AnnounceEpoch) -> list[PartitionEffect]:
        """The register begins a new epoch: give up the role, promise the epoch, and report."""
        if not self.registered or message.epoch < self.state.promised:
            return []
        if message.epoch == self.state.promised and self.role != Role.IDLE:
            return []  # late: the epoch has begun already
        effects = self._leave_role("another leader is being chosen")
        effects += [SyncLogs(), *self._store(promised=message.epoch, sync_flag=True)]
        accept = AcceptEpoch(
            self.partition,
            message.epoch,
            self.broker,
            self.incarnation,
            last_epoch=replica_logs.last_epoch(self.logs),
            log_epoch=self.state.log_epoch,
            ends=replica_logs.log_ends(self.logs, whole=self.state.whole),
        )
        return [*effects, ToRegister(accept)]

    def installed(self, record: PartitionRecord, now: float) -> list[PartitionEffect]:
        """The register has sent a decision: lead, follow, or take over the in-sync set (*now*:
        monotonic, s)."""
        if not self.registered:
            return []
        known = self.state.record
        if known is not None and (known.epoch, known.version) > (record.epoch, record.version):
            return []
        found = {"intact": self._intact_by(record), "whole": self._whole_by(record)}
        if record.epoch < self.state.promised:
            return self._store(record=record, **found)
        if record.epoch == self.state.promised and self.role != Role.IDLE:
            was_in_sync = known is not None and self.broker in known.in_sync
            effects = self._store(record=record, **found)
            if self.leader is not None:
                effects += self._learn(self.leader, record)
            elif self.follower is not None and was_in_sync:
                for topic_id, log in self.logs.items():
                    if not log.sound:
                        effects += self._follow_with(self.follower, topic_id, log)
            return effects
        effects = self._leave_role("another leader was appointed")
        if record.leader == self.broker and record.leader_incarnation == self.incarnation:
            return effects + self._lead(record, now)
        effects += self._store(record=record, promised=record.epoch, **found)
        if record.leader != self.broker and self.broker in record.replicas:
            self.role = Role.FOLLOWER
            effects.append(FollowLeader(record.leader))
        return effects

    def _learn(self, leader: PartitionLeader, record: PartitionRecord) -> list[PartitionEffect]:
        effects = leader.learn(record)
        # The register removed the others from the set, because they lost records.
        return effects + self._set_sync_flag() if leader.alone else effects

    def _leave_role(self, reason: str) -> list[PartitionEffect]:
        effects: list[PartitionEffect] = []
        if self.leader is not None:
            for topic_id, leader in self.leader.logs.items():
                effects += on_log(topic_id, leader.stop(reason))
        self.role, self.leader, self.follower = Role.IDLE, None, None
        return effects

    # --- leading ---------------------------------------------------------------------

    def _lead(self, record: PartitionRecord, now: float) -> list[PartitionEffect]:
        self.role = Role.LEADER
        # A sole replica flushes as its topics ask, whatever the flag says.
        flag = self.state.sync_flag and record.replicas != [self.broker]
        effects = self._store(
            record=record,
            promised=record.epoch,
            log_epoch=record.epoch,
            sync_flag=flag,
            intact=self._intact_by(record),
            # Records that are missing here are part of the loss that an operator accepted.
            whole=record.recovered_epoch == record.epoch or self._whole_by(record),
        )
        if record.recovered_epoch == record.epoch:
            # Records that are damaged here are part of the loss that an operator accepted.
            effects += [
                OnLog(topic_id, SetAside(refill=False))
                for topic_id, log in self.logs.items()
                if not log.sound
            ]
        leader = PartitionLeader(record, now, durable=flag, lag_s_max=self._lag_s_max)
        leader.away, leader.stopping = self._away, self._stopping
        self.leader = leader
        if leader.alone:
            effects += self._set_sync_flag()
        for topic_id, log in self.logs.items():
            log.refusal = ""
            effects += leader.add_log(topic_id, log)
        return effects

    def log_leader(self, topic_id: TopicId) -> LogLeader:
        """The machine that takes produce requests for a log.

        Raises:
          NotLeaderError: if this replica doesn't lead the log.
        """
        leader = self.leader.logs.get(topic_id) if self.leader else None
        if leader is None:
            raise NotLeaderError(f"this broker doesn't lead partition {self.partition} (any more)")
        return leader

    def tick(self, now: float) -> list[PartitionEffect]:
        """Some time has passed (*now*: monotonic, s): propose a change of the in-sync set if one is
        due, and stop waiting for the device if others in sync hold the records as well."""
        effects: list[PartitionEffect] = []
        if self.leader is not None and not self.is_stopping:
            change = self.leader.wanted_change(now)
            if change is not None:
                effects += self.propose(change)
        if self.state.sync_flag and self._shares:
            effects += self._store(sync_flag=False) + self._require_durable(False)
        return effects

    def told_away(self, brokers: frozenset[BrokerId], now: float) -> list[PartitionEffect]:
        """The register has no connection with *brokers* (*now*: monotonic, s): don't wait for those
        of them that don't follow here."""
        self._away = brokers
        if self.leader is None:
            return []
        self.leader.away = brokers
        return self.tick(now)

    def told_stopping(self, brokers: frozenset[BrokerId], now: float) -> list[PartitionEffect]:
        """*brokers* are about to stop (*now*: monotonic, s): they leave the in-sync set before, so
        that producers don't wait for them when they have stopped."""
        self._stopping = brokers
        if self.leader is None:
            return []
        self.leader.stopping = brokers
        return self.tick(now)

    def stopping(self) -> None:
        """This broker is about to stop, and proposes no more changes: its followers lag because it
        stops, and if it were alone in sync, the partition would have no leader without it.

        Unlike an event, this may be called while effects are performed; then a proposal among them
        must not be sent (`may_propose`)."""
        self.is_stopping = True

    def may_propose(self, change: AlterInSync) -> bool:
        """Whether *change*, which was wanted a moment ago, may still be sent."""
        return not self.is_stopping and (self.leader is None or self.leader.stands_by(change))

    @property
    def repeated(self) -> AlterInSync | None:
        """The pending change to send to the register again, as it may not have received it."""
        change = self.leader.pending if self.leader is not None else None
        return change if change is not None and self.may_propose(change) else None

    def propose(self, change: AlterInSync) -> list[PartitionEffect]:
        """Ask the register for *change*.  The shell sends it again while it is `repeated`."""
        assert self.leader is not None
        effects: list[PartitionEffect] = []
        if change.in_sync == [self.broker]:
            effects += self._set_sync_flag()
        effects += self.leader.proposed(change)
        return [*effects, ToRegister(change)]

    def in_sync_altered(self, message: InSyncAltered, now: float) -> list[PartitionEffect]:
        """The register answered a proposal.  The record in the answer counts first: a request that
        came twice is refused the second time, although it was accepted."""
        effects = self.installed(message.record, now)
        if self.leader is not None and not message.accepted:
            effects += self.leader.refused(message.asked)
        return effects

    def follow(self, message: Follow) -> list[PartitionEffect]:
        """A follower asks to follow a log."""
        if self.leader is None:
            # The follower may know before this broker that it leads; it tries again at once.
            return [refuse_follow(message, "this broker doesn't lead the partition (yet)")]
        return self.leader.follow(message)

    def acknowledge(self, message: Acknowledge) -> list[PartitionEffect]:
        """A follower acknowledges a log up to an offset."""
        if self.leader is None:
            return []
        effects = self.leader.acknowledge(message)
        if self.is_stopping:
            return effects
        change = self.leader.wanted_join(message.broker)
        return effects + self.propose(change) if change is not None else effects

    def stream_closed(
        self, broker: BrokerId, incarnation: Incarnation, attempt: int
    ) -> list[PartitionEffect]:
        """A follower's stream broke, so the follower doesn't catch up any more."""
        if self.leader is not None:
            self.leader.session_ended(broker, incarnation, attempt)
        return []

    # --- following -------------------------------------------------------------------

    def stream_opened(self) -> list[PartitionEffect]:
        """A stream to the leader is open: begin a session."""
        record = self.state.record
        if self.role != Role.FOLLOWER or record is None:
            return []
        self._attempt += 1
        self.follower = PartitionFollower(
            record,
            self.broker,
            self.incarnation,
            self._attempt,
            durable=self.state.sync_flag,
            loss_accepted=self.state.log_epoch < record.recovered_epoch,
        )
        if not self.logs:
            return self.follower.follow_without_logs()
        return [
            effect
            for topic_id, log in self.logs.items()
            for effect in self._follow_with(self.follower, topic_id, log)
        ]

    def _follow_with(
        self, follower: PartitionFollower, topic_id: TopicId, log: LogState
    ) -> list[PartitionEffect]:
        """Begin to follow a log.  A damaged part is set aside first, but only when the register has
        removed this replica from the in-sync set: until then its files may be the only copy."""
        if log.sound:
            return follower.add_log(topic_id, log)
        follower.wait_for(topic_id, log)
        record = self.state.record
        if record is None or self.broker in record.in_sync:
            return []
        return [OnLog(topic_id, SetAside(refill=True))]

    def set_aside(self, topic_id: TopicId) -> list[PartitionEffect]:
        """The damaged part of a log was set aside."""
        log = self.logs.get(topic_id)
        if log is None or self.follower is None or topic_id not in self.follower.logs:
            return []
        return self.follower.add_log(topic_id, log)

    def followed(self, message: Followed) -> list[PartitionEffect]:
        """The leader answered where a log diverges from its own."""
        if self.follower is None:
            return []
        effects = self.follower.followed(message)
        if not self.follower.agrees:
            return effects
        # Stored after the cuts, which make the log epoch true, and before acknowledgements count.
        acknowledgements = [one for one in effects if isinstance(one, ToBroker)]
        cuts = [one for one in effects if not isinstance(one, ToBroker)]
        return cuts + self._store(log_epoch=self.follower.epoch) + acknowledgements

    def receive(self, message: Replicate, scan: Scan) -> list[PartitionEffect]:
        """The leader sent records, which *scan* describes; they are valid."""
        return self.follower.receive(message, scan) if self.follower is not None else []

    def replicated(self, topic_id: TopicId, scan: Scan) -> list[PartitionEffect]:
        """The records that were received are appended."""
        return self.follower.replicated(topic_id, scan) if self.follower is not None else []

    # --- logs ------------------------------------------------------------------------

    def add_log(self, topic_id: TopicId, log: LogState) -> list[PartitionEffect]:
        """A log was made here, for a topic of the partition."""
        self.logs[topic_id] = log
        effects = self._follow_topics(topic_id)
        if self.leader is not None:
            effects += self.leader.add_log(topic_id, log)
        elif self.follower is not None:
            effects += self._follow_with(self.follower, topic_id, log)
        return effects

    def remove_log(self, topic_id: TopicId) -> list[PartitionEffect]:
        """The topic was deleted.  Its files may be removed when the effects were performed, as
        internal logs may have to be flushed first."""
        self.logs.pop(topic_id, None)
        if self.follower is not None:
            self.follower.remove_log(topic_id)
        ended = self.leader.remove_log(topic_id) if self.leader is not None else []
        return ended + self._follow_topics()

    def _follow_topics(self, added: TopicId | None = None) -> list[PartitionEffect]:
        changed = replica_logs.follow_topics(self.logs, added)
        return [effect for topic_id in changed for effect in self._require_again(topic_id)]

    def require(self, topic_id: TopicId, count: int, *, flush: bool) -> list[PartitionEffect]:
        """Commit nothing in a log while fewer replicas than *count* are in sync; *flush*: whether
        its records count only on the device.  For internal logs, their topics decide that."""
        if (log := self.logs.get(topic_id)) is None:
            return []
        log.min_insync, log.flush_before_ack = count, flush
        return self._follow_topics() + self._require_again(topic_id)

    def _require_again(self, topic_id: TopicId) -> list[PartitionEffect]:
        role = self.leader or self.follower
        return role.require_again(topic_id) if role is not None else []

    def flushed(self, topic_id: TopicId, end: Offset) -> list[PartitionEffect]:
        """A log is durable below *end*."""
        if (log := self.logs.get(topic_id)) is None:
            return []
        if self.leader is not None:
            return on_log(topic_id, self.leader.logs[topic_id].flushed(end))
        if self.follower is not None:
            return self.follower.flushed(topic_id, end)
        log.flushed(end)
        return []

    # --- what is durable -------------------------------------------------------------

    @property
    def _shares(self) -> bool:
        """Whether other replicas in sync hold the same records, so that page caches may count."""
        if self.leader is not None:
            return self.leader.pending is None and len(self.leader.in_sync) > 1
        record = self.state.record
        agrees = self.follower is not None and self.follower.agrees
        return agrees and record is not None and len(record.in_sync) > 1

    def _set_sync_flag(self) -> list[PartitionEffect]:
        if self.state.sync_flag:
            return []
        # From now on only flushed records count; those that counted before are flushed next.
        effects = self._require_durable(True)
        return [*effects, SyncLogs(), *self._store(sync_flag=True)]

    def _require_durable(self, durable: bool) -> list[PartitionEffect]:
        role = self.leader or self.follower
        return role.require_durable(durable) if role is not None else []

    def clean_shutdown(self) -> list[PartitionEffect]:
        """The broker stops gracefully: flush everything."""
        effects = self._leave_role("the broker is shutting down")
        return [*effects, SyncLogs(), *self._store(sync_flag=True)]

    def _store(self, **changes: Any) -> list[PartitionEffect]:  # noqa: ANN401
        state = attrs.evolve(self.state, **changes)
        if state == self.state:
            return []
        self.state = state
        return [StoreState(state)]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert (self.role == Role.LEADER) == (self.leader is not None)
        assert self.follower is None or self.role == Role.FOLLOWER
        role = self.leader or self.follower
        for log in self.logs.values() if role is None else ():
            log.check_invariants()
        if role is not None:
            assert self.registered
            assert role.epoch == self.state.promised
            assert role.logs.keys() == self.logs.keys()
            assert all(role.logs[one].log is log for one, log in self.logs.items())
            role.check_invariants()  # of its logs, too
