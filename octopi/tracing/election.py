"""The steps of leadership: which broker leads a partition, and which replicas are in sync.

A change of leadership goes through steps 1 to 12; a broker confirms decisions (9b) after it has
begun to lead or follow (11, 12).  The other steps belong to what follows a change: logs are cut,
in-sync sets change, and leaders resign or hand over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octopi.coordination.election import ElectionGoal, LogLoss
from octopi.coordination.journal_entries import Entry
from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset
from octopi.tracing.common import (
    BrokerStep,
    CommitStep,
    EpochStep,
    PartitionStep,
    ReplicaLogStep,
)
from octopi.tracing.step import Step, part, step
from octopi.wire.messages import AlterInSync, PartitionRecord


@part
class AcceptanceStep(EpochStep):
    """A step about a replica's acceptance of an epoch; see `octopi.wire.membership.AcceptEpoch`."""

    broker: BrokerId
    incarnation: Incarnation
    last_epoch: int
    log_epoch: Epoch
    ends: list[dict[str, Any]]
    first: int
    more: bool


@part
class AnnouncementStep(EpochStep):
    """A step about the announcement of an epoch to a replica."""

    broker: BrokerId


@part
class DecisionStep(Step):
    """A step about the decision which replica leads.  *losses*: the known losses, for each
    partition record that accepts a loss."""

    entries: Sequence[Entry]
    losses: list[list[LogLoss]]


@part
class OrderStep(BrokerStep):
    """A step about decisions that the register sends to a broker."""

    records: list[PartitionRecord]


@part
class InstallationStep(Step):
    """A step about decisions that a broker carries out."""

    records: list[PartitionRecord]


@part
class LeadershipStep(EpochStep):
    """A step about the in-sync set that a leader uses."""

    in_sync: list[BrokerId]
    version: int
    proposed: list[BrokerId] | None


@part
class TruncationStep(ReplicaLogStep):
    """A step about a log that is cut at *end*."""

    log_end: Offset
    end: int
    highwater: Offset


@part
class RestartStep(ReplicaLogStep):
    """A step about a log that is emptied and continues at *begin*."""

    log_end: Offset
    begin: int


@part
class ProposalStep(EpochStep):
    """A step about an in-sync set that a leader proposes."""

    leader: BrokerId
    leader_incarnation: Incarnation
    version: int
    in_sync: list[BrokerId]
    joiner_incarnation: int | None


@part
class JudgementStep(Step):
    """A step about the register's answer to a proposed in-sync set."""

    asked: AlterInSync
    accepted: bool
    record: PartitionRecord | None


@part
class ResignationStep(EpochStep):
    """A step about a leader that resigns."""

    leader: BrokerId
    leader_incarnation: Incarnation
    reason: str


@part
class DepartureStep(Step):
    """A step about a broker that stops; *broker* is None if it has no id yet."""

    broker: BrokerId | None
    incarnation: Incarnation


@step("E1 register wants another leader")
class E1Wanted(EpochStep):
    version: int
    leader: BrokerId
    leader_incarnation: Incarnation
    replicas: list[BrokerId]
    in_sync: list[BrokerId]
    lost: list[BrokerId]
    recovered_epoch: Epoch
    goal: ElectionGoal | None


@step("E2 register made the next epoch durable")
class E2Announced(EpochStep):
    pass


@step("E3a register tells a replica the next epoch")
class E3Announcing(AnnouncementStep):
    pass


@step("E3b register told a replica the next epoch")
class E3Told(AnnouncementStep):
    pass


@step("E4 replica hears of the next epoch")
class E4Heard(EpochStep):
    pass


@step("E5 replica left its role")
class E5Left(EpochStep):
    role: str


@step("E6a replica accepts the epoch, having promised it")
class E6Accepting(AcceptanceStep):
    pass


@step("E6b replica accepted the epoch")
class E6Accepted(AcceptanceStep):
    pass


@step("E7 register heard an acceptance")
class E7Counted(AcceptanceStep):
    pass


@step("E8a register decides who leads")
class E8Deciding(DecisionStep):
    pass


@step("E8b register made durable who leads")
class E8Decided(DecisionStep):
    pass


@step("E9a register tells a broker its decisions")
class E9Telling(OrderStep):
    pass


@step("E9b broker confirmed the register's decisions")
class E9Confirmed(OrderStep):
    pass


@step("E10a broker hears the register's decisions")
class E10Installing(InstallationStep):
    pass


@step("E10b broker made the register's decisions durable")
class E10Installed(InstallationStep):
    pass


@step("E11 broker begins to lead")
class E11Leading(LeadershipStep):
    pass


@step("E12 broker begins to follow")
class E12Following(EpochStep):
    leader: BrokerId


@step("E13a follower cuts its log")
class E13Truncating(TruncationStep):
    pass


@step("E13b follower cut its log")
class E13Truncated(TruncationStep):
    pass


@step("E14a follower drops its log and begins where the leader's starts")
class E14Restarting(RestartStep):
    pass


@step("E14b follower dropped its log and begins where the leader's starts")
class E14Restarted(RestartStep):
    pass


@step("E15 leader committed for the first time in its epoch")
class E15FirstCommit(CommitStep):
    pass


@step("E16a leader proposes another in-sync set")
class E16Proposing(ProposalStep):
    pass


@step("E16b leader proposed another in-sync set")
class E16Proposed(ProposalStep):
    pass


@step("E17a register judges a proposed in-sync set")
class E17Altering(JudgementStep):
    pass


@step("E17b register made its judgement durable")
class E17Altered(JudgementStep):
    pass


@step("E18 leader goes by another in-sync set")
class E18Learned(LeadershipStep):
    pass


@step("E19a leader resigns")
class E19Resigning(ResignationStep):
    pass


@step("E19b leader resigned")
class E19Resigned(ResignationStep):
    pass


@step("E20 register gave up the goal of an election")
class E20GivenUp(PartitionStep):
    goal: ElectionGoal | None


@step("E21a broker tells the register that it is about to stop")
class E21Stopping(DepartureStep):
    pass


@step("E21b broker told the register that it is about to stop")
class E21Told(DepartureStep):
    pass


@step("E22a register hands over what a stopping broker leads")
class E22Emptying(DepartureStep):
    pass


@step("E22b register handed over what a stopping broker led")
class E22Emptied(DepartureStep):
    pass


@step("E23a leader prepares that another broker leads")
class E23Preparing(PartitionStep):
    pass


@step("E23b leader is prepared that another broker leads")
class E23Prepared(PartitionStep):
    pass


@step("E24a broker says goodbye to the register")
class E24Leaving(DepartureStep):
    pass


@step("E24b broker said goodbye to the register")
class E24Left(DepartureStep):
    pass
