"""What a member of a queue sends to the leader of a log, and when its attachment ended."""

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias, TypeVar

import attrs

from octopi.clients.leader_errors import may_pass_at_a_leader
from octopi.errors import OctopiError, RefusedError, Status
from octopi.identifiers import Offset
from octopi.limits import SETTLE_COUNT_MAX

_T = TypeVar("_T")


@attrs.frozen
class SendSettle:
    """Tell the leader what was answered.  Each entry is an offset and its attempt, and more."""

    acknowledged: tuple[tuple[Offset, int], ...] = ()
    released: tuple[tuple[Offset, int, int], ...] = ()
    """With the delay in milliseconds."""
    rejected: tuple[tuple[Offset, int, str], ...] = ()
    """With the reason."""
    extended: tuple[tuple[Offset, int], ...] = ()
    confirm: int | None = None
    """The number to answer with when all that was answered up to here is committed; None: no
    answer."""


@attrs.frozen
class SendCredit:
    """Tell the leader how much it may deal, counted from the attach."""

    messages: int
    size_bytes: int


QueueEffect: TypeAlias = SendSettle | SendCredit


class QueueRemedy(Enum):
    """What to do after an attachment to a queue ended."""

    ATTACH_AGAIN = auto()
    """Look up the log's leader, and attach there; as for `AttachRemedy.ATTACH_AGAIN`."""
    STOP = auto()
    """Trying again can't help."""


def queue_remedy(error: OctopiError) -> QueueRemedy:
    """What to do after an attachment ended with *error*.  A queue's member has no claim of its own,
    so being fenced means only that the mark was reset."""
    match error:
        case RefusedError(
            status=Status.MEMBER_FENCED | Status.UNKNOWN_MEMBER | Status.UNKNOWN_SUBSCRIPTION
        ):
            return QueueRemedy.ATTACH_AGAIN
        case _:
            return QueueRemedy.ATTACH_AGAIN if may_pass_at_a_leader(error) else QueueRemedy.STOP


class PendingAnswers:
    """Answers that are not sent yet."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[Offset, int]] = []
        self.released: list[tuple[Offset, int, int]] = []
        self.rejected: list[tuple[Offset, int, str]] = []
        self.extended: list[tuple[Offset, int]] = []

    def __len__(self) -> int:
        return len(self.acknowledged) + len(self.released) + len(self.rejected) + len(self.extended)

    @property
    def deliveries(self) -> list[tuple[Offset, int]]:
        """Those that the program has answered."""
        given_back = [one[:2] for one in (*self.released, *self.rejected)]
        return [*self.acknowledged, *given_back]

    def next_settle(self, confirm: int | None) -> SendSettle:
        """Take as many as one message can have, acknowledgements first."""
        room = SETTLE_COUNT_MAX
        acknowledged = _cut(self.acknowledged, room)
        room -= len(acknowledged)
        released = _cut(self.released, room)
        room -= len(released)
        rejected = _cut(self.rejected, room)
        room -= len(rejected)
        return SendSettle(acknowledged, released, rejected, _cut(self.extended, room), confirm)

    def clear(self) -> int:
        """Forget all; return how many were no extensions."""
        count = len(self) - len(self.extended)
        self.acknowledged.clear()
        self.released.clear()
        self.rejected.clear()
        self.extended.clear()
        return count


def _cut(entries: list[_T], count: int) -> tuple[_T, ...]:
    """Take the first *count* of *entries* out of it."""
    taken = tuple(entries[:count])
    del entries[:count]
    return taken
