"""What a broker asks for in the proposals of one partition (`octopi.ring.partition`)."""

from __future__ import annotations

from enum import Enum, unique
from typing import TypeAlias

import attrs

from octopi.coordination.partition_changes import PartitionChange, close, reopen, rest
from octopi.identifiers import NO_EPOCH, BrokerId, Epoch
from octopi.ring.partition_election import OwnElection
from octopi.wire.agreement import AcceptorId
from octopi.wire.messages import AlterInSync


@unique
class EndingKind(Enum):
    """The steps in handing the cluster over; see `octopi.coordination.partition_changes`."""

    REST = "rest"
    CLOSE = "close"
    REOPEN = "reopen"


@attrs.frozen
class CheckIn:
    """This broker is to be registered."""


@attrs.frozen
class Announcement:
    """The epoch of an election is to be spent."""

    election: OwnElection


@attrs.frozen
class ElectionDecision:
    """An election is to be decided."""

    election: OwnElection


@attrs.frozen
class OtherAcceptors:
    """The acceptors are to be others."""

    acceptors: tuple[AcceptorId, ...]


@attrs.frozen
class LeastInSync:
    """The least number of in-sync replicas is to be another one."""


@attrs.frozen
class EndingStep:
    """A step in handing the cluster over to registers (`octopi.ring.ending`)."""

    kind: EndingKind
    attempt: int
    epoch: Epoch = NO_EPOCH
    """In which this broker leads, if the partition is to rest."""
    brokers: tuple[BrokerId, ...] = ()
    """All that are awaited, if it is to be closed."""

    @property
    def change(self) -> PartitionChange:
        """It, as a change of the partition."""
        match self.kind:
            case EndingKind.REST:
                return rest(self.attempt, self.epoch)
            case EndingKind.CLOSE:
                return close(self.attempt, self.brokers)
            case EndingKind.REOPEN:
                return reopen(self.attempt)


@attrs.frozen
class ReadValue:
    """Nothing is to be changed."""


AskedChange: TypeAlias = (
    AlterInSync
    | CheckIn
    | Announcement
    | ElectionDecision
    | OtherAcceptors
    | LeastInSync
    | EndingStep
    | ReadValue
)
