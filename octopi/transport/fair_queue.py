"""Fair scheduling of the connections that share one thread.  Decides; the caller does the waiting.

A node is one event loop.  In each round of the loop every task that can go on does so once, so a
hundred connections that always have something to do would make rounds long, and delay whatever
else the node does: following, membership, flushes, timers.  A `FairQueue` gives its members
together at most about *round_s* seconds of a round, and lets the others wait for a later round.

Among those that wait, the one that has used the least goes first, as in a fair queueing scheduler
(virtual run time of Linux' CFS): a connection that asks little is hardly delayed by others that
ask much, however many they are.  What was used is counted from the moment at which members began
to wait; while nobody has to wait, nothing is counted, and a turn costs two looks at the clock.

Frames of no use count as if each took `USELESS_FRAME_S`, also those that a member sent shortly
before it had to wait.  So however many members flood, those that ask for something go before them.

`UselessFramePauses` makes members pause that send many useless frames, such as heartbeats without
end.  So they take a small share of the node's time, even while it is idle.

Knows no task and no clock: callers say how long a turn took.
"""

from __future__ import annotations

import heapq
from typing import Final

from octopi.limits import (
    FAIR_HEAD_START_S,
    ROUND_S,
    TURN_S,
    USELESS_FRAME_S,
    USELESS_FRAMES_FREE,
    USELESS_FRAMES_PER_S,
    USELESS_FRAMES_PER_S_ALL,
)

_TURN_S_MIN: Final = TURN_S / 2
"""A turn is expected to take at least so long, whatever the last one took."""


class MemberUsage:
    """The time that one member has used."""

    __slots__ = ("_period", "_turn_s", "_used_s", "_useless_at", "_useless_count")

    def __init__(self) -> None:
        self._used_s = 0.0
        """In the period `_period` of its queue."""
        self._period = -1
        self._turn_s = TURN_S
        """How long its last turn took."""
        self._useless_count = 0.0
        """Frames of no use that count at `_useless_at`; later fewer of them do."""
        self._useless_at = 0.0


class Ticket:
    """A place among those that wait; a member may have several."""

    __slots__ = ("account", "is_withdrawn")

    def __init__(self, account: MemberUsage) -> None:
        self.account: Final = account
        self.is_withdrawn = False


class FairQueue:
    """Shares the rounds of a loop among its members.

    A *period* begins when members have to wait, and ends when no one does: `is_contended` tells.
    In it `charge` is to be called with each turn, and `next_round` once a round.
    """

    __slots__ = (
        "_floor_s",
        "_number",
        "_period",
        "_round_s",
        "_round_used_s",
        "_waiting",
        "is_contended",
    )

    def __init__(self, round_s: float = ROUND_S) -> None:
        """*round_s*: what members together may use of a round, in seconds."""
        self._round_s = round_s
        self.is_contended = False
        """Whether members have to wait, or the round is used up."""
        self._round_used_s = 0.0
        self._period = 0
        self._floor_s = 0.0
        """What was used by the member that was let go last: a newcomer begins there."""
        self._waiting: list[tuple[float, int, Ticket]] = []
        """A heap.  A number may be smaller than what its member has used since."""
        self._number = 0

    def charge(self, account: MemberUsage, used_s: float, useless_count: int = 0) -> bool:
        """A turn of *account* took *used_s*, and so many frames of no use were read in it; say
        whether members have to wait from now on, so that somebody has to call `next_round`."""
        self._round_used_s += used_s
        if self.is_contended:
            self._counted(account)
            account._used_s += used_s + useless_count * USELESS_FRAME_S
            account._turn_s = used_s
        elif self._round_used_s >= self._round_s:
            self.is_contended = True
            self._period += 1
            self._floor_s = 0.0
            self._counted(account)
            account._used_s = account._turn_s = used_s
            return True
        return False

    def round_is_over(self) -> None:
        """Every task of the loop had its chance since the last turn: see `next_round`, which is
        called instead while the queue is contended."""
        if not self.is_contended:
            self._round_used_s = 0.0

    def may_go(self, account: MemberUsage) -> bool:
        """Whether *account* may work in this round: some of it is left, and nobody who waits has
        used less."""
        if not self.is_contended:
            return True
        self._counted(account)
        if self._round_used_s >= self._round_s:
            return False
        first = self._first()
        return first is None or account._used_s <= first.account._used_s

    def wait(self, account: MemberUsage) -> Ticket:
        """Have *account* wait; `next_round` returns the ticket when it may work."""
        self._counted(account)
        ticket = Ticket(account)
        self._push(ticket)
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """No task waits with *ticket* any more; harmless if it was returned."""
        ticket.is_withdrawn = True

    def next_round(self) -> list[Ticket]:
        """A round has begun: the tickets of those that may work in it, and need not ask again: as
        many as fit into it, if their turns are as long as their last ones were.  When nobody waits,
        the period ends."""
        self._round_used_s = 0.0
        left_s = self._round_s
        chosen: list[Ticket] = []
        while (first := self._first()) is not None:
            expected_s = max(_TURN_S_MIN, first.account._turn_s)
            if chosen and expected_s > left_s:
                break
            left_s -= expected_s
            heapq.heappop(self._waiting)
            self._floor_s = max(self._floor_s, first.account._used_s)
            chosen.append(first)
        if not chosen:
            self.is_contended = False
        return chosen

    def _counted(self, account: MemberUsage) -> None:
        """See that what *account* has used is that of this period, and not so little that others
        would wait for it for long.  What it sent of no use before counts in each period."""
        least_s = max(0.0, self._floor_s - FAIR_HEAD_START_S)
        least_s += account._useless_count * USELESS_FRAME_S
        if account._period != self._period:
            account._period = self._period
            account._used_s = least_s
        elif account._used_s < least_s:
            account._used_s = least_s

    def _first(self) -> Ticket | None:
        """The ticket of the one who waits and has used the least."""
        while self._waiting:
            noted_s, _, ticket = self._waiting[0]
            if ticket.is_withdrawn:
                heapq.heappop(self._waiting)
            elif ticket.account._used_s > noted_s:  # others of its member worked meanwhile
                heapq.heappop(self._waiting)
                self._push(ticket)
            else:
                return ticket
        return None

    def _push(self, ticket: Ticket) -> None:
        self._number += 1
        heapq.heappush(self._waiting, (ticket.account._used_s, self._number, ticket))


class UselessFramePauses:
    """How long members pause that send frames of no use.

    Each may send `USELESS_FRAMES_FREE` at once and `USELESS_FRAMES_PER_S`; those that have to pause
    together `USELESS_FRAMES_PER_S_ALL`, so that they pause longer if they are many.
    """

    __slots__ = ("pausing_count",)

    def __init__(self) -> None:
        self.pausing_count = 0
        """How many pause now: for callers to keep."""

    def charge(self, account: MemberUsage, frame_count: int, now: float) -> float:
        """*account* sent so many frames of no use, until *now*; return for how many seconds it has
        to pause."""
        free = max(0.0, now - account._useless_at) * USELESS_FRAMES_PER_S
        count = max(0.0, account._useless_count - free) + frame_count
        rate = min(USELESS_FRAMES_PER_S, USELESS_FRAMES_PER_S_ALL / (self.pausing_count + 1))
        pause_s = max(0.0, count - USELESS_FRAMES_FREE) / rate
        # The pause makes up for those beyond the free ones, and earns no others.
        account._useless_count = min(count, USELESS_FRAMES_FREE)
        account._useless_at = now + pause_s
        return pause_s
