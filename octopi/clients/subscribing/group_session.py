"""What a member of a subscription has to do with its logs, as far as the coordinator decides it.

The coordinator assigns logs, and asks for their release.  Each assignment has a claim, a number
that grows with each assignment of the log.  A member reads a log while it holds a claim of it:

  - It takes a log with a claim that is newer than each one that it gave back, and with no other:
    an assignment that comes late doesn't revive what was released.
  - It gives a log back when the program has finished with it and its mark is stored.  Until the
    coordinator has heard that, it may ask again, and is answered again.
  - A broken connection to the coordinator ends nothing.  The member joins again under the same
    name or id, and reads on meanwhile.
  - It gives up all its logs if the coordinator doesn't know it any more: others may have them.

Pure: calls are events, results are lists of effects, to be performed in their order.  It knows no
connection, no clock and no task.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, TypeAlias

import attrs

from octopi.clients.leader_errors import may_pass_at_a_leader
from octopi.errors import OctopiError, RefusedError, Status
from octopi.identifiers import NO_CLAIM, Claim, MemberId, PartitionId

HeldClaim: TypeAlias = tuple[PartitionId, Claim]
"""A partition, and the claim with which a member has its log."""


@attrs.frozen
class BeginLog:
    """Attach to the log at its leader, and let the program read it."""

    partition: PartitionId
    claim: Claim


@attrs.frozen
class FinishLog:
    """Have the program finish what it has in hand, then call `GroupSession.finished`."""

    partition: PartitionId
    claim: Claim


@attrs.frozen
class AbandonLog:
    """Stop the program's work on the log at once: another member may have it."""

    partition: PartitionId
    claim: Claim


@attrs.frozen
class ReportReleased:
    """Tell the coordinator, if it can be told now, that these are free."""

    claims: tuple[HeldClaim, ...]


GroupEffect: TypeAlias = BeginLog | FinishLog | AbandonLog | ReportReleased


_NO_MEMBER: Final = MemberId("")


class JoinRemedy(Enum):
    """What to do after a join ended."""

    JOIN_AGAIN = auto()
    """Look up the coordinator, and join under the same name, with the claims that are held."""
    START_OVER = auto()
    """The member is none any more: give up all logs (`GroupSession.expired`), then join again."""
    STOP = auto()
    """Trying again can't help."""


def join_remedy(error: OctopiError) -> JoinRemedy:
    """What to do after a join ended with *error*."""
    match error:
        case RefusedError(status=Status.UNKNOWN_MEMBER):
            return JoinRemedy.START_OVER
        case _:
            return JoinRemedy.JOIN_AGAIN if may_pass_at_a_leader(error) else JoinRemedy.STOP


class GroupSession:
    """One member of one subscription.

    Invariants: a log has one claim at a time, and it is newer than each one of it that was given
    back; what is being finished is held.
    """

    def __init__(self, static_member: MemberId | None = None) -> None:
        """*static_member*: its name, which it chose; None: the coordinator gives it an id."""
        self.static_member = static_member
        self.member = static_member or _NO_MEMBER
        """What the coordinator calls it; empty before it has joined."""
        self._held: dict[PartitionId, Claim] = {}
        self._ending: set[PartitionId] = set()
        """Of these, those that the program was asked to finish."""
        self._given_back: dict[PartitionId, Claim] = {}
        """The newest claim of each log that is held no more."""
        self._is_new = True
        """Whether nothing was heard since the last join."""

    @property
    def held(self) -> list[HeldClaim]:
        """What is held now, by partition: to be told when joining."""
        return sorted(self._held.items())

    def is_ending(self, partition: PartitionId) -> bool:
        """Whether the program was asked to finish with that log."""
        return partition in self._ending

    def joining(self) -> list[HeldClaim]:
        """A request to join goes out: what to say that is held."""
        self._is_new = True
        return self.held

    def assigned(
        self, member: MemberId, add: Iterable[HeldClaim], release: Iterable[HeldClaim]
    ) -> list[GroupEffect]:
        """The coordinator assigned logs to the member, which it calls *member*, and asked for
        others."""
        self.member = member
        effects: list[GroupEffect] = []
        again: dict[PartitionId, Claim] = {}
        if self._is_new:  # what was told on an older connection may not have arrived
            self._is_new = False
            again.update(
                (partition, claim)
                for partition, claim in self._given_back.items()
                if partition not in self._held
            )
        for partition, claim in add:
            if claim <= self._given_back.get(partition, NO_CLAIM):
                if partition not in self._held:
                    again[partition] = self._given_back[partition]
            elif claim < self._held.get(partition, NO_CLAIM):
                again[partition] = claim  # the coordinator lost the newer one; it is to go on
            elif claim > self._held.get(partition, NO_CLAIM):
                effects += self._drop(partition)
                again.pop(partition, None)
                self._held[partition] = claim
                effects.append(BeginLog(partition, claim))
        for partition, claim in release:
            held = self._held.get(partition)
            if held == claim and partition not in self._ending:
                self._ending.add(partition)
                effects.append(FinishLog(partition, claim))
            elif held is None and claim <= self._given_back.get(partition, NO_CLAIM):
                again[partition] = self._given_back[partition]
            elif held is None:  # it was revoked before it was heard of
                again[partition] = self._given_back[partition] = claim
        if again:
            effects.append(ReportReleased(tuple(sorted(again.items()))))
        return effects

    def finished(self, partition: PartitionId, claim: Claim) -> list[GroupEffect]:
        """The program has finished with the log, and its mark is stored, as far as it can be."""
        if self._held.get(partition) != claim:
            return []
        self._forget(partition)
        return [ReportReleased(((partition, claim),))]

    def lost(self, partition: PartitionId, claim: Claim) -> list[GroupEffect]:
        """The log's leader refuses the claim: there is a newer one."""
        if self._held.get(partition) != claim:
            return []
        return [*self._drop(partition), ReportReleased(((partition, claim),))]

    def expired(self) -> list[GroupEffect]:
        """The coordinator knows the member no more: all its logs may be others'."""
        self.member = self.static_member or _NO_MEMBER
        return [effect for partition in sorted(self._held) for effect in self._drop(partition)]

    def _drop(self, partition: PartitionId) -> list[GroupEffect]:
        if partition not in self._held:
            return []
        return [AbandonLog(partition, self._forget(partition))]

    def _forget(self, partition: PartitionId) -> Claim:
        claim = self._held.pop(partition)
        self._ending.discard(partition)
        self._given_back[partition] = claim
        return claim

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self._ending <= self._held.keys()
        for partition, claim in self._held.items():
            assert claim > self._given_back.get(partition, NO_CLAIM), partition
