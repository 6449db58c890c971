"""Agreed values, and what proposers and acceptors send each other about them
(`octopi.agreement`).

A message is about one value, its *instance*.  Acceptors answer on the connection on which they were
asked, so only the proposer that used a ballot hears who promised it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, TypeAlias

import attrs

from octopi.field_bounds import AtMost, Within, judged
from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId
from octopi.limits import (
    ACCEPTORS_MAX,
    AGREED_BYTES_MAX,
    BALLOT_ROUND_MAX,
    BROKER_ID_MAX,
    INSTANCE_MAX,
    NONCE_BYTES_MAX,
    VALUES_TOLD_MAX,
)
from octopi.model import Verb
from octopi.wire.declarations import (
    BROKER_TO_BROKER,
    BROKER_TO_BROKER_BACK,
    notice,
    on_the_cluster,
)

_OF_NODES: Final = on_the_cluster(Verb.REPLICATE)
Instance: TypeAlias = Annotated[InstanceId, Within(0, INSTANCE_MAX)]


@attrs.frozen(order=True)
class Ballot:
    """One attempt of one proposer.  A ballot is never used twice: a proposer counts its rounds up,
    and its incarnation is counted up durably before it proposes anything."""

    round: Annotated[int, Within(0, BALLOT_ROUND_MAX)]
    broker: Annotated[BrokerId, Within(0, BROKER_ID_MAX)]
    incarnation: Incarnation


NO_BALLOT: Final = Ballot(0, BrokerId(0), Incarnation(0))
"""Below all ballots; the first value of an instance counts as accepted in it."""


@attrs.frozen(order=True)
class AcceptorId:
    """An acceptor.  A broker that comes back with an empty disk has another directory, so it is
    another acceptor: it doesn't know what the former one promised."""

    broker: Annotated[BrokerId, Within(1, BROKER_ID_MAX)]
    directory: Annotated[DirectoryId, AtMost(NONCE_BYTES_MAX)]


AcceptorGroup: TypeAlias = Annotated[tuple[AcceptorId, ...], AtMost(ACCEPTORS_MAX)]


@judged
@attrs.frozen
class AgreedValue:
    """A value of an instance.

    It is chosen once a majority of `acceptors` and a majority of `previous` have accepted it in one
    ballot.  The two differ only while the acceptors change.  Then the next value has the new
    acceptors as both, so no step leads from one group to the other without a majority of each.
    """

    change: int
    """Counts the chosen values of the instance, from 0: of two chosen values with the same count
    there is only one."""
    acceptors: AcceptorGroup
    previous: AcceptorGroup
    """The acceptors of the value before."""
    content: Annotated[bytes, AtMost(AGREED_BYTES_MAX)]
    """What was decided; its meaning is the caller's."""

    @property
    def is_joint(self) -> bool:
        """Whether a change of the acceptors is under way."""
        return self.acceptors != self.previous

    @property
    def members(self) -> frozenset[AcceptorId]:
        """All acceptors whose answers count."""
        return frozenset(self.acceptors + self.previous)

    def is_quorum(self, have: Collection[AcceptorId]) -> bool:
        """Whether *have* contains a majority of the acceptors, and of the previous ones."""
        return is_majority(have, self.acceptors) and is_majority(have, self.previous)

    def with_content(self, content: bytes) -> AgreedValue:
        """The next value, with another *content*."""
        return attrs.evolve(self, change=self.change + 1, content=content)

    def moved_to(self, acceptors: Collection[AcceptorId]) -> AgreedValue:
        """The next value, with which the acceptors begin to change."""
        group = tuple(sorted(acceptors))
        return attrs.evolve(self, change=self.change + 1, acceptors=group)

    def completed(self) -> AgreedValue:
        """The value that follows a joint one: only the new acceptors are left."""
        return attrs.evolve(self, change=self.change + 1, previous=self.acceptors)

    def follows(self, before: AgreedValue) -> bool:
        """Whether a proposer that read *before* may propose this: it is *before* itself, or counts
        one more, and the acceptors change by way of a joint value."""
        if self == before:
            return True
        kept = before.acceptors if before.is_joint else self.acceptors
        return (
            self.change == before.change + 1
            and self.previous == before.acceptors
            and self.acceptors == kept
        )

    def fault(self) -> str:
        """Why no proposer proposes this; empty if one can."""
        for group in (self.acceptors, self.previous):
            if not 0 < len(group) <= ACCEPTORS_MAX:
                return f"a value has 1 to {ACCEPTORS_MAX} acceptors, not {len(group)}"
            if len({one.broker for one in group}) < len(group):
                return "a broker is one acceptor at most"
        if len(self.content) > AGREED_BYTES_MAX:
            return f"a value has at most {AGREED_BYTES_MAX} bytes, not {len(self.content)}"
        return "" if self.change >= 0 else "its count of changes is negative"


def is_majority(have: Collection[AcceptorId], group: Collection[AcceptorId]) -> bool:
    """Whether *have* contains more than half of *group*."""
    return 2 * len(set(have).intersection(group)) > len(group)


# --- from a proposer to an acceptor --------------------------------------------------------


@notice("prepare_ballot", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class PrepareBallot:
    """Promise to accept nothing of a lower ballot.  Answered by `BallotPromised`, `BallotRefused`
    or `AcceptorDeparted`."""

    instance: Instance
    ballot: Ballot


@judged
@notice("accept_value", BROKER_TO_BROKER, needs=_OF_NODES, since=2)
@attrs.frozen
class AcceptValue:
    """Accept *value* in *ballot*, and promise *successor* as well.  Answered by `ValueAccepted`,
    `BallotRefused` or `AcceptorDeparted`."""

    instance: Instance
    ballot: Ballot
    value: AgreedValue
    successor: Ballot
    """The proposer's next ballot; the ballot itself: no promise is asked for."""

    def fault(self) -> str:
        """Why no proposer sends this; empty if one can."""
        return "" if self.successor >= self.ballot else "the next ballot is a lower one"


@notice("value_chosen", BROKER_TO_BROKER, BROKER_TO_BROKER_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class ValueChosen:
    """To all who use the value: it was chosen."""

    instance: Instance
    ballot: Ballot
    value: AgreedValue


@attrs.frozen
class KnownValue:
    """How new a value is that somebody knows to be chosen."""

    instance: Instance
    change: int


@notice("known_values", BROKER_TO_BROKER, BROKER_TO_BROKER_BACK, needs=_OF_NODES, since=2)
@attrs.frozen
class KnownValues:
    """The sender knows these values.  Whoever knows a newer one tells it (`ValueChosen`); whoever
    knows an older one says so likewise."""

    values: Annotated[tuple[KnownValue, ...], AtMost(VALUES_TOLD_MAX)]


# --- from an acceptor to a proposer --------------------------------------------------------


@notice("ballot_promised", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class BallotPromised:
    """Answer to `PrepareBallot`: the promise, and what this acceptor accepted last."""

    instance: Instance
    acceptor: AcceptorId
    ballot: Ballot
    accepted: Ballot
    value: AgreedValue | None
    """None: it knows no value of this instance."""


@notice("value_accepted", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class ValueAccepted:
    """Answer to `AcceptValue`: it was accepted."""

    instance: Instance
    acceptor: AcceptorId
    ballot: Ballot
    promised: Ballot
    """The highest promise of the acceptor now."""


@notice("ballot_refused", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class BallotRefused:
    """Answer to `PrepareBallot` and `AcceptValue`: a higher ballot, or this one, was promised."""

    instance: Instance
    acceptor: AcceptorId
    ballot: Ballot
    promised: Ballot


@notice("acceptor_departed", BROKER_TO_BROKER_BACK, since=2)
@attrs.frozen
class AcceptorDeparted:
    """Answer to `PrepareBallot` and `AcceptValue`: the sender is no acceptor of the instance any
    more, and never votes for the group that it was in."""

    instance: Instance
    acceptor: AcceptorId
    ballot: Ballot
    successors: AcceptorGroup
    """The acceptors that took over when it left."""


ToAcceptor: TypeAlias = PrepareBallot | AcceptValue | ValueChosen
ToProposer: TypeAlias = BallotPromised | ValueAccepted | BallotRefused | AcceptorDeparted
