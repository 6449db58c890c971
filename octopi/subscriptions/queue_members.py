"""The members that are attached to a queue, and how much each of them takes."""

from __future__ import annotations

import heapq

import attrs

from octopi.identifiers import MemberId, Offset
from octopi.subscriptions.effects import Session
from octopi.subscriptions.queued_messages import QueuedMessage


@attrs.define(eq=False)
class QueueMember:
    """One that takes messages."""

    session: Session
    name: MemberId
    credit_messages: int
    """How many it takes in all since its attach."""
    credit_bytes: int
    dealt_messages: int = 0
    dealt_bytes: int = 0
    open: dict[Offset, QueuedMessage] = attrs.field(factory=dict)
    """By their offsets."""
    parked: list[QueuedMessage] = attrs.field(factory=list)
    """Messages that only this member may have, because of their keys, when it takes more."""
    ranked: int = 0
    """What it took when it was ranked among the others."""

    @property
    def free_count(self) -> int:
        """How many more messages it takes."""
        if self.dealt_bytes >= self.credit_bytes:
            return 0
        return self.credit_messages - self.dealt_messages

    @property
    def has_room(self) -> bool:
        """Whether it takes another message."""
        return self.dealt_messages < self.credit_messages and self.dealt_bytes < self.credit_bytes


class QueueMembers:
    """All members of one queue; finding the one that takes most is quick, however many there
    are."""

    def __init__(self) -> None:
        self._members: dict[Session, QueueMember] = {}
        self._ranks: list[tuple[int, Session]] = []
        """A heap of (minus the free credit, session); of each member only the rank that it
        remembers counts, and that is never too low."""

    def __len__(self) -> int:
        return len(self._members)

    def get(self, session: Session) -> QueueMember | None:
        """The one with that session."""
        return self._members.get(session)

    @property
    def any_name(self) -> MemberId | None:
        """The name of one of them; None: there is none."""
        return next((one.name for one in self._members.values()), None)

    @property
    def any_session(self) -> Session | None:
        """That of one of them; None: there is none."""
        return next(iter(self._members), None)

    @property
    def free_count(self) -> int:
        """How many messages all of them take."""
        return sum(one.free_count for one in self._members.values())

    def add(self, member: QueueMember) -> None:
        """One more."""
        self._members[member.session] = member
        self._rank(member)

    def remove(self, session: Session) -> QueueMember | None:
        """One leaves."""
        return self._members.pop(session, None)

    def remove_all(self) -> list[QueueMember]:
        """All leave."""
        gone, self._members, self._ranks = list(self._members.values()), {}, []
        return gone

    def grant(self, member: QueueMember, messages: int, size_bytes: int) -> None:
        """It takes so much in all since its attach; less than before: no effect."""
        member.credit_messages = max(member.credit_messages, messages)
        member.credit_bytes = max(member.credit_bytes, size_bytes)
        self._rank(member)

    def take_back(self, member: QueueMember, size_bytes: int) -> None:
        """It wasn't sent a message that it was dealt."""
        member.dealt_messages -= 1
        member.dealt_bytes -= size_bytes
        self._rank(member)

    def _rank(self, member: QueueMember) -> None:
        if member.free_count > member.ranked:
            member.ranked = member.free_count
            heapq.heappush(self._ranks, (-member.ranked, member.session))

    def freest(self) -> QueueMember | None:
        """The one that takes most; None: none takes any."""
        ranks = self._ranks
        while ranks:
            rank, session = ranks[0]
            member = self._members.get(session)
            if member is None or member.ranked != -rank:
                heapq.heappop(ranks)
                continue
            free_count = member.free_count
            if free_count == member.ranked:
                return member
            member.ranked = free_count
            if free_count:
                heapq.heapreplace(ranks, (-free_count, session))
            else:
                heapq.heappop(ranks)
        return None
