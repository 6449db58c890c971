"""The trace steps of the effects of one replica: a table from effects to steps.

`octopi.roles.broker.replica_driver` performs the effects and has the tracer trace a step before and
another one after each.  An effect that fails has no second step.  There is a tracer only if the
environment has an observer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import attrs

from octopi.environment import Trace
from octopi.errors import StorageError
from octopi.identifiers import NO_EPOCH, BrokerId, Offset, PartitionId, TopicId
from octopi.record import Scan
from octopi.replication.effects import (
    Answer,
    Append,
    AppendReplicated,
    CommitReceipt,
    Effect,
    OnLog,
    PartitionEffect,
    PublishHighwater,
    Refusal,
    ReplicaState,
    Restart,
    SetAside,
    StoreState,
    ToBroker,
    ToRegister,
    Truncate,
)
from octopi.replication.partition_leader import PartitionLeader
from octopi.replication.partition_replica import PartitionReplica, Role
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.log_fields import LogFields, log_fields
from octopi.tracing import steps
from octopi.tracing.common import CommitStep, MarkStep
from octopi.tracing.durability import PromiseStep, SetAsideStep
from octopi.tracing.election import RestartStep, TruncationStep
from octopi.tracing.join import AnswerStep, FollowStep
from octopi.tracing.produce import (
    AcknowledgementStep,
    PlacedBatchStep,
    ReceiptStep,
    RefusalStep,
    ReplicationStep,
)
from octopi.tracing.step import Step
from octopi.wire.messages import Acknowledge, AlterInSync, Follow, Followed, FollowRefused

Traced = TypeVar("Traced", bound=Step)

After = Callable[[], None]
"""Traces the step after an effect."""


class ReplicaTracer:
    """Traces the effects and events of *machine*, the replica of *partition*."""

    def __init__(self, trace: Trace, partition: PartitionId, machine: PartitionReplica) -> None:
        self._trace = trace
        self._partition = partition
        self._machine = machine
        self._role = (Role.IDLE, NO_EPOCH)
        """The role and epoch that were traced last."""
        self._in_sync: tuple[int, list[BrokerId]] = (0, [])
        """The version and the members of the in-sync set that was traced last."""
        self._committed_epoch = 0

    # --- effects -------------------------------------------------------------------------

    def before(
        self,
        effect: PartitionEffect,
        logs: Mapping[TopicId, LocalLog],
        failure: StorageError | None,
    ) -> After:
        """Trace the step before *effect*, which is performed next; return the function that traces
        the step after it.  An effect that can't be tried has no steps.  *logs*: the logs of this
        replica.  *failure*: why the replica takes nothing any more; None: it does."""
        match effect:
            case OnLog(topic_id, Append()) if failure is not None or not self._leads(topic_id):
                return _nothing
            case OnLog(topic_id, on_log):
                if (log := logs.get(topic_id)) is not None:
                    return self._before_on_log(on_log, log)
            case ToBroker(broker, message):
                if (log := logs.get(TopicId(message.topic_id))) is not None:
                    return self._before_telling(log, broker, message)
            case StoreState(state):
                return self._both(self._of_state(state), steps.D2Promising, steps.D2Promised)
            case ToRegister(AlterInSync() as change) if self._machine.may_propose(change):
                self._before_proposing(change)
        return _nothing

    def _before_on_log(self, effect: Effect, log: LocalLog) -> After:
        match effect:
            case Append(_, found):
                appended = PlacedBatchStep(
                    *self._of_log(log), *_batch_fields(found), *_place(log.end, found)
                )
                return self._both(appended, steps.P2Appending, steps.P2Appended)
            case AppendReplicated(_, found):
                replicated = ReplicationStep(
                    *self._of_log(log),
                    *_place(log.end, found),
                    records_epoch=log.state.epochs.latest,
                )
                return self._both(replicated, steps.P3Replicating, steps.P3Replicated)
            case PublishHighwater(highwater):
                return self._before_publishing(log, highwater)
            case Truncate(end):
                cut = TruncationStep(
                    *self._of_log(log), log_end=log.end, end=end, highwater=log.highwater
                )
                return self._both(cut, steps.E13Truncating, steps.E13Truncated)
            case Restart(begin):
                restarted = RestartStep(*self._of_log(log), log_end=log.end, begin=begin)
                return self._both(restarted, steps.E14Restarting, steps.E14Restarted)
            case SetAside():
                self._trace(steps.D6SettingAside(*self._set_aside(log).values()))
                return lambda: self._trace(steps.D6SetAside(*self._set_aside(log).values()))
        return _nothing

    def _before_telling(
        self,
        log: LocalLog,
        broker: BrokerId,
        message: Follow | Followed | FollowRefused | Acknowledge,
    ) -> After:
        match message:
            case Acknowledge():
                acknowledged = AcknowledgementStep(
                    *log_fields(log, message.epoch),
                    attempt=message.attempt,
                    end=message.end,
                    leader=broker,
                )
                return self._both(acknowledged, steps.P4Acknowledging, steps.P4Acknowledged)
            case Follow():
                asked = FollowStep(
                    *log_fields(log, message.epoch),
                    attempt=message.attempt,
                    epochs=[(one.epoch, one.start) for one in message.epochs],
                    log_end=Offset(message.log_end),
                    leader=broker,
                )
                return self._both(asked, steps.J8Asking, steps.J8Asked)
            case Followed():
                answer = AnswerStep(
                    *log_fields(log, message.epoch),
                    attempt=message.attempt,
                    keep=message.keep,
                    begin=message.begin,
                    follower=broker,
                )
                return self._both(answer, steps.J9Comparing, steps.J9Compared)
        return _nothing

    def _before_proposing(self, change: AlterInSync) -> None:
        if change.joiner_incarnation is not None:
            (joiner,) = set(change.in_sync) - {*self._in_sync[1]}
            self._trace(steps.J11CaughtUp(self._partition, change.epoch, change.version, joiner))

    def _before_publishing(self, log: LocalLog, highwater: Offset) -> After:
        leader = self._machine.leader
        if leader is None:
            mark = MarkStep(*self._of_log(log), highwater=highwater, log_end=log.end)
            return self._both(mark, steps.P8Following, steps.P8Followed)
        in_sync, version, proposed = _set_fields(leader)
        commit = CommitStep(
            *self._of_log(log),
            highwater=highwater,
            log_end=log.end,
            flushed_end=log.state.flushed_end,
            in_sync=in_sync,
            version=version,
            proposed=proposed,
        )
        self._trace(steps.P5InSync(*commit.values()))
        committed = self._both(commit, steps.P6Committing, steps.P6Committed)
        if leader.epoch == self._committed_epoch:
            return committed
        self._committed_epoch = leader.epoch

        def first_committed() -> None:
            committed()
            self._trace(steps.E15FirstCommit(*commit.values()))

        return first_committed

    # --- events --------------------------------------------------------------------------

    def received(self, log: LocalLog, found: Scan) -> None:
        """Trace that the leader handles a producer's batch."""
        self._trace(steps.P1Received(*self._of_log(log), *_batch_fields(found)))

    def observed(self, log: LocalLog, found: Scan, answer: Answer) -> Answer:
        """Return *answer*, wrapped so that it traces the step of that answer."""

        def observed(content: CommitReceipt | Refusal) -> None:
            batch = *self._of_log(log), *_batch_fields(found)
            if isinstance(content, CommitReceipt):
                in_sync, version, proposed = _set_fields(self._machine.leader)
                receipt = ReceiptStep(
                    *batch,
                    *_place(content.offset, found),
                    records_epoch=content.epoch,
                    duplicate=content.duplicate,
                    highwater=log.highwater,
                    in_sync=in_sync,
                    version=version,
                    proposed=proposed,
                )
                after = self._both(receipt, steps.P7Acknowledging, steps.P7Acknowledged)
            else:
                refusal = RefusalStep(*batch, content.status, content.reason)
                after = self._both(refusal, steps.P9Refusing, steps.P9Refused)
            answer(content)
            after()

        return observed

    def decided(self) -> None:
        """Trace how an event has changed the machine.  Its effects are performed after this."""
        leader = self._machine.leader
        role, was = (self._machine.role, self._machine.state.promised), self._role
        version, knew = leader.version if leader is not None else 0, self._in_sync
        if role == was and version == knew[0]:
            return  # in one epoch a version has one in-sync set
        record, of_set = self._machine.state.record, _set_fields(leader)
        in_sync = self._in_sync = version, of_set[0]
        if role != was:
            self._role = role
            if was[0] is not Role.IDLE:
                self._trace(steps.E5Left(self._partition, was[1], was[0].name))
            if leader is not None:
                self._trace(steps.E11Leading(self._partition, role[1], *of_set))
            elif role[0] is Role.FOLLOWER and record is not None:
                self._trace(steps.E12Following(self._partition, role[1], record.leader))
        elif leader is not None:
            self._trace(steps.E18Learned(self._partition, role[1], *of_set))
            for broker in sorted({*in_sync[1]} - {*knew[1]}):
                self._trace(steps.J12InSync(self._partition, role[1], *of_set, follower=broker))

    # --- fields of steps -----------------------------------------------------------------

    def _leads(self, topic_id: TopicId) -> bool:
        leader = self._machine.leader
        return leader is not None and topic_id in leader.logs

    def _of_log(self, log: LocalLog) -> LogFields:
        """Which log a step is about, and the epoch in which the replica leads or follows."""
        role = self._machine.leader or self._machine.follower
        return log_fields(log, role.epoch if role is not None else NO_EPOCH)

    def _of_state(self, state: ReplicaState) -> PromiseStep:
        return PromiseStep(self._partition, **attrs.asdict(state, recurse=False))

    def _set_aside(self, log: LocalLog) -> SetAsideStep:
        return SetAsideStep(*self._of_log(log), log_end=log.end)

    def _both(self, said: Traced, before: type[Traced], after: type[Traced]) -> After:
        """Trace *before* now and *after* later, with the same fields."""
        values = said.values()
        self._trace(before(*values))
        return partial(self._trace, after(*values))


def _nothing() -> None:
    """Trace nothing."""


def _place(offset: Offset, found: Scan) -> tuple[Offset, Offset]:
    return offset, Offset(offset + found.valid_bytes)


def _batch_fields(found: Scan) -> tuple[bytes | None, int | None, int | None, int]:
    """Which batch a step is about, so that it can be recognised in other steps; see
    `octopi.tracing.produce.BatchStep`."""
    run = found.runs[0] if found.runs else None
    if run is None:
        return None, None, None, found.count
    return run.producer_id, run.producer_epoch, run.first_sequence, found.count


def _set_fields(
    leader: PartitionLeader | None,
) -> tuple[list[BrokerId], int, list[BrokerId] | None]:
    """What a commit needs: the in-sync set, its version, and the proposed set that may follow
    it."""
    if leader is None:
        return [], 0, None
    proposed = leader.pending.in_sync if leader.pending is not None else None
    return sorted(leader.in_sync), leader.version, proposed
