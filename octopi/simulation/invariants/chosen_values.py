"""Which values of an instance are chosen, counted from what acceptors say.

A value is chosen in a ballot when a quorum of the acceptors that it names has accepted it in that
ballot (`octopi.wire.agreement.AgreedValue.is_quorum`); an acceptor counts when it is about to say
so.  A proposer may build on a value that it read and that never had a quorum itself.  If its own is
chosen, so is what it was built on: a chain of values leads from one chosen value to the next.  It
read what an acceptor told when it promised the ballot.  If several told different values, it is not
known here which of them it had heard when it proposed; the newest one counts that it may follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias

from octopi.wire.agreement import AcceptorId, AgreedValue, Ballot

MayFollow: TypeAlias = Callable[[AgreedValue, AgreedValue], bool]
"""Whether the second value may be decided when the first one is in force."""


def follows(before: AgreedValue, after: AgreedValue) -> bool:
    """The `MayFollow` of values of which nothing else is known."""
    return after.follows(before)


class ForkError(Exception):
    """Two chosen values of an instance are not one history."""


class ChosenValues:
    """The history of one instance.

    Invariant: each value in `history` follows from the one before it.
    """

    def __init__(self, first: AgreedValue | None = None, may_follow: MayFollow = follows) -> None:
        """*first*: the first value, which counts as chosen; None: it is chosen by a quorum, too."""
        self._may_follow = may_follow
        self.history: list[AgreedValue] = [] if first is None else [first]
        """The chosen values, each at the place that its count of changes names."""
        self._proposed: dict[Ballot, AgreedValue] = {}
        self._accepted: dict[Ballot, set[AcceptorId]] = defaultdict(set)
        self._told: dict[Ballot, list[tuple[Ballot, AgreedValue]]] = defaultdict(list)
        """What acceptors had accepted when they promised a ballot, and in which one."""
        self._chosen: set[Ballot] = set()

    @property
    def newest(self) -> AgreedValue | None:
        """The newest chosen value; None: none is chosen yet."""
        return self.history[-1] if self.history else None

    @property
    def pending(self) -> list[AgreedValue]:
        """Values that were proposed, are not chosen, and may still be."""
        known = -1 if self.newest is None else self.newest.change
        return [one for one in self._proposed.values() if one.change > known]

    def promise(self, ballot: Ballot, accepted: Ballot, value: AgreedValue) -> None:
        """An acceptor promises *ballot*, and says that it has accepted *value* in *accepted*."""
        self._told[ballot].append((accepted, value))

    def propose(self, ballot: Ballot, value: AgreedValue) -> None:
        """An acceptor is asked to accept *value* in *ballot*.

        Raises:
          ForkError: if another value was proposed in that ballot.
        """
        known = self._proposed.setdefault(ballot, value)
        if known != value:
            raise ForkError(f"two values are proposed in {ballot}: {known} and {value}")

    def accept(self, ballot: Ballot, acceptor: AcceptorId) -> list[AgreedValue]:
        """*acceptor* says that it accepted what was proposed in *ballot*; return the values that
        are chosen because of that, in their order.

        Raises:
          ForkError: if they don't follow from what was chosen before.
        """
        value, accepted = self._proposed.get(ballot), self._accepted[ballot]
        accepted.add(acceptor)
        if value is None or ballot in self._chosen or not value.is_quorum(accepted):
            return []
        self._chosen.add(ballot)
        if value.change < len(self.history):
            if self.history[value.change] != value:
                raise ForkError(f"{value} is chosen, and so is {self.history[value.change]}")
            return []
        chain = self._chain_to(value, ballot)
        if chain is None:
            raise ForkError(f"{value} is chosen, and doesn't follow from {self.newest}")
        self.history += chain
        return chain

    def is_chosen(self, value: AgreedValue) -> bool:
        """Whether *value* is chosen."""
        return value.change < len(self.history) and self.history[value.change] == value

    def _chain_to(self, value: AgreedValue, ballot: Ballot) -> list[AgreedValue] | None:
        """Values that lead from the newest chosen one to *value*, which was proposed in *ballot*;
        None: there are none."""
        newest = self.newest
        if newest is None:
            return [value] if value.change == 0 else None
        if value.change == newest.change + 1:
            return [value] if value.follows(newest) else None
        told = sorted(self._told[ballot], key=lambda one: one[0], reverse=True)
        for accepted, one in told:
            if one == value:  # it was proposed once more
                return self._chain_to(one, accepted)
        before = [
            (accepted, one)
            for accepted, one in told
            if one.change == value.change - 1 and value.follows(one)
        ]
        fitting = [(accepted, one) for accepted, one in before if self._may_follow(one, value)]
        for accepted, one in fitting or before:
            chain = self._chain_to(one, accepted)
            if chain is not None:
                return [*chain, value]
        return None
