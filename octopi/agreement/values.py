"""Agreed values, and how many acceptors choose one."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from octopi.identifiers import BrokerId, DirectoryId
from octopi.limits import ACCEPTORS_MAX, AGREED_BYTES_MAX


@attrs.frozen(order=True)
class AcceptorId:
    """An acceptor.  A broker that comes back with an empty disk has another directory, so it is
    another acceptor: it doesn't know what the former one promised."""

    broker: BrokerId
    directory: DirectoryId


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
    acceptors: tuple[AcceptorId, ...]
    previous: tuple[AcceptorId, ...]
    """The acceptors of the value before."""
    content: bytes
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


def first_value(acceptors: Collection[AcceptorId], content: bytes) -> AgreedValue:
    """The value with which an instance begins.  It counts as chosen, so all nodes have to know the
    same one."""
    group = tuple(sorted(acceptors))
    return AgreedValue(0, group, group, content)


def is_majority(have: Collection[AcceptorId], group: Collection[AcceptorId]) -> bool:
    """Whether *have* contains more than half of *group*."""
    return 2 * len(set(have).intersection(group)) > len(group)
