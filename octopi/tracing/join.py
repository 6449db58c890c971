"""The steps of joining: a broker its cluster, a follower its leader.

They come in this order, but that the register admits (5) before the broker hears of it (4b), and a
replica's files are moved (15) while it is given up (13).  Between 5 and 6 the broker is told
decisions (E9, E10) and topics (T2, T3).
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
    """Of what a broker is in its cluster."""

    cluster: str
    broker: BrokerId | None
    incarnation: Incarnation


@part
class AdmissionStep(MemberStep):
    """Of a broker that the register lets in."""

    entries: Sequence[Entry]


@part
class FollowStep(ReplicaLogStep):
    """Of a follower's request to follow a log."""

    attempt: int
    epochs: list[tuple[int, int]]
    log_end: Offset
    leader: BrokerId


@part
class ComparisonStep(ReplicaLogStep):
    """Of where two logs part: they agree below *keep*, and records come from *begin* on."""

    attempt: int
    keep: int
    begin: int


@part
class AnswerStep(ComparisonStep):
    """Of a leader's answer to a follower."""

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
