"""What a broker does because of what is agreed on about a partition (`octopi.ring.partition`)."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.agreement.proposer import SendToAcceptor
from octopi.coordination.election import LogLoss
from octopi.identifiers import BrokerId, Epoch
from octopi.model import PartitionRecord
from octopi.wire.agreement import ValueChosen
from octopi.wire.messages import AnnounceEpoch, InSyncAltered


@attrs.frozen
class TellValue:
    """Tell *brokers* what was chosen: acceptors, and those that have a replica or had one before
    this value."""

    brokers: frozenset[BrokerId]
    message: ValueChosen


@attrs.frozen
class AnnounceTo:
    """Tell the replicas on *brokers* that an epoch begins; each answers this broker."""

    brokers: tuple[BrokerId, ...]
    message: AnnounceEpoch


@attrs.frozen
class ReplicaAdmitted:
    """This incarnation of the broker is registered for the partition: its replica may act."""


@attrs.frozen
class ReplicaRefused:
    """This broker is not the one that is registered for the partition: it has an older copy of the
    data directory, or another one runs with a newer copy."""

    why: str


@attrs.frozen
class InstallDecision:
    """*record* is in force: have the replica act on it."""

    record: PartitionRecord


@attrs.frozen
class AnswerLeader:
    """Tell the replica, which leads, what became of its request for another in-sync set."""

    message: InSyncAltered


@attrs.frozen
class ElectionBegun:
    """An election that this broker holds has begun: it announced this epoch."""

    epoch: Epoch


@attrs.frozen
class LeaderDecided:
    """The election that this broker held was decided as it proposed."""

    record: PartitionRecord
    losses: tuple[LogLoss, ...] = ()
    """What is known to be lost, if the record says that something may be."""
    was_ordered: bool = False
    """Whether an operator ordered it."""


DecidedEffect: TypeAlias = (
    SendToAcceptor
    | TellValue
    | AnnounceTo
    | ReplicaAdmitted
    | ReplicaRefused
    | InstallDecision
    | AnswerLeader
    | ElectionBegun
    | LeaderDecided
)
