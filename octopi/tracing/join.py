"""The steps with which a broker joins its cluster, and a follower joins its leader.

They come in this order, with two exceptions: the register admits a broker (5) before the broker
hears of it (4b), and the files of a replica are moved (15) while it is retired (13).  Between 5
and 6 the register sends decisions (E9, E10) and topics (T2, T3) to the broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from octopi.coordination.journal_entries import Entry
from octopi.identifiers import BrokerId, Incarnation, Offset
from octopi.tracing.common import BrokerStep, EpochStep, MemberStep, PartitionStep, ReplicaLogStep
from octopi.tracing.step import Step, part, step
from octopi.wire.messages import PartitionRecord, ReplicaReport, ReplicaTrouble, TopicRecord


@part
class IdentityStep(Step):
    """A step about the identity of a broker."""

    cluster: str
    broker: BrokerId | None
    incarnation: Incarnation


@part
class AdmissionStep(MemberStep):
    """A step about a broker that the register admits."""

    entries: Sequence[Entry]


@part
class FollowStep(ReplicaLogStep):
    """A step about a follower's request to follow a log."""

    attempt: int
    epochs: list[tuple[int, int]]
    log_end: Offset
    leader: BrokerId


@part
class ComparisonStep(ReplicaLogStep):
    """A step about the common prefix of two logs: they agree before *keep*, and records come from
    *begin* on."""

    attempt: int
    keep: int
    begin: int


@part
class AnswerStep(ComparisonStep):
    """A step about a leader's answer to a follower."""

    follower: BrokerId


@step("J1a broker stores who it is")
class J1Identifying(IdentityStep):
    pass


@step("J1b broker stored who it is")
class J1Identified(IdentityStep):
    pass


@step("J2 broker reached the register")
class J2Connected(Step):
    register: str


@step("J3 broker tells the register what it holds")
class J3Reporting(Step):
    partitions: list[PartitionRecord]
    topics: list[TopicRecord]
    standings: list[ReplicaReport]


@step("J4a broker asks to join")
class J4Joining(IdentityStep):
    pass


@step("J4b broker heard that it joined")
class J4Joined(IdentityStep):
    pass


@step("J5a register lets a broker in")
class J5Admitting(AdmissionStep):
    pass


@step("J5b register made durable that a broker is in")
class J5Admitted(AdmissionStep):
    pass


@step("J6 register sends clients to the broker from now on")
class J6Serving(MemberStep):
    pass


@step("J7 follower opened a stream to its leader")
class J7StreamOpened(PartitionStep):
    leader: BrokerId


@step("J8a follower asks to follow a log")
class J8Asking(FollowStep):
    pass


@step("J8b follower asked to follow a log")
class J8Asked(FollowStep):
    pass


@step("J9a leader tells where a follower's log parts from its own")
class J9Comparing(AnswerStep):
    pass


@step("J9b leader told where a follower's log parts from its own")
class J9Compared(AnswerStep):
    pass


@step("J10 follower heard where its log parts from the leader's")
class J10Parted(ComparisonStep):
    leader: BrokerId


@step("J11 leader finds that a follower caught up")
class J11CaughtUp(EpochStep):
    version: int
    follower: BrokerId


@step("J12 follower is in the in-sync set")
class J12InSync(EpochStep):
    in_sync: list[BrokerId]
    version: int
    proposed: list[BrokerId] | None
    follower: BrokerId


@step("J13a broker gives a replica up")
class J13Retiring(PartitionStep):
    pass


@step("J13b broker gave a replica up")
class J13Retired(PartitionStep):
    pass


@step("J14 register hears which replicas of a broker take no records")
class J14Troubled(BrokerStep):
    disk_trouble: str
    troubles: list[ReplicaTrouble]


@step("J15a broker moves the files of a replica that it gives up")
class J15Moving(PartitionStep):
    pass


@step("J15b broker moved the files of a replica that it gives up")
class J15Moved(PartitionStep):
    folder: str
