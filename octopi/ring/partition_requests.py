"""What a broker asks for in the proposals of one partition (`octopi.ring.partition`)."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.ring.partition_election import OwnElection
from octopi.wire.agreement import AcceptorId
from octopi.wire.messages import AlterInSync


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
class ReadValue:
    """Nothing is to be changed."""


AskedChange: TypeAlias = (
    AlterInSync
    | CheckIn
    | Announcement
    | ElectionDecision
    | OtherAcceptors
    | LeastInSync
    | ReadValue
)
