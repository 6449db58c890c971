"""What proposers and acceptors send each other."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from octopi.agreement.ballots import Ballot
from octopi.agreement.values import AcceptorId, AgreedValue
from octopi.identifiers import InstanceId


@attrs.frozen
class PrepareBallot:
    """Proposer to acceptor: promise to accept nothing of a lower ballot."""

    instance: InstanceId
    ballot: Ballot


@attrs.frozen
class BallotPromised:
    """Answer to `PrepareBallot`: the promise, and what this acceptor accepted last."""

    instance: InstanceId
    acceptor: AcceptorId
    ballot: Ballot
    accepted: Ballot
    value: AgreedValue | None
    """None: it knows no value of this instance."""


@attrs.frozen
class AcceptValue:
    """Proposer to acceptor: accept *value* in *ballot*, and promise *successor* as well."""

    instance: InstanceId
    ballot: Ballot
    value: AgreedValue
    successor: Ballot
    """The proposer's next ballot; the ballot itself: no promise is asked for."""


@attrs.frozen
class ValueAccepted:
    """Answer to `AcceptValue`: it was accepted."""

    instance: InstanceId
    acceptor: AcceptorId
    ballot: Ballot
    promised: Ballot
    """The highest promise of the acceptor now."""


@attrs.frozen
class BallotRefused:
    """Answer to `PrepareBallot` and `AcceptValue`: a higher ballot, or this one, was promised."""

    instance: InstanceId
    acceptor: AcceptorId
    ballot: Ballot
    promised: Ballot


@attrs.frozen
class AcceptorDeparted:
    """Answer to `PrepareBallot` and `AcceptValue`: the sender is no acceptor of the instance any
    more, and never votes for the group that it was in."""

    instance: InstanceId
    acceptor: AcceptorId
    ballot: Ballot
    successors: tuple[AcceptorId, ...]
    """The acceptors that took over when it left."""


@attrs.frozen
class ValueChosen:
    """Proposer to all who use the value: it was chosen."""

    instance: InstanceId
    ballot: Ballot
    value: AgreedValue


ToAcceptor: TypeAlias = PrepareBallot | AcceptValue | ValueChosen
ToProposer: TypeAlias = BallotPromised | ValueAccepted | BallotRefused | AcceptorDeparted
