"""Fair scheduling of the connections that share one thread.  It decides; callers do the waiting.

A node is one event loop.  In each round of the loop every task that can go on does so once, so a
hundred connections that always have something to do would make rounds long, and delay everything
else that the node does: following, membership, flushes, timers.  A `FairQueue` gives its members
together at most about *round_s* seconds of a round; the rest of them wait for a later round.

Of the members that wait, the one that has used the least time goes first, as in a fair queueing
scheduler (virtual run time of Linux' CFS): a connection with few requests is hardly delayed by
connections with many, however many of those there are.  The time that a member uses is counted
only while members have to wait; before that, a turn costs two readings of the clock.

A useless frame counts as if it took `USELESS_FRAME_S`, also if the member sent it shortly before
members had to wait.  So members with real requests go before members that flood the node.

`UselessFramePauses` makes a member pause if it sends many useless frames, such as heartbeats
without end.  So it takes a small share of the node's time, even while the node is idle.

The module knows no task and no clock: callers say how long a turn took.
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
"""A turn is expected to take at least this long, even if the member's last turn was shorter."""


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
        """Useless frames that counted at `_useless_at`; the count falls with time."""
        self._useless_at = 0.0


class Ticket:
    """One entry in the queue of waiting members; a member may have several, one for each task."""

    __slots__ = ("account", "is_withdrawn")

    def __init__(self, account: MemberUsage) -> None:
        self.account: Final = account
        self.is_withdrawn = False


class FairQueue:
    """Shares the rounds of a loop among its members.

    A *period* begins when the first member has to wait, and ends when none does; `is_contended` is
    true during it.  In a period, `charge` has to be called for each turn, and `next_round` once a
    round.
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
        """*round_s*: how many seconds of a round the members may use together."""
        self._round_s = round_s
        self.is_contended = False
        """Whether members have to wait, or the round is used up."""
        self._round_used_s = 0.0
        self._period = 0
        self._floor_s = 0.0
        """The time that the member had used that was chosen last; a new member starts near it."""
        self._waiting: list[tuple[float, int, Ticket]] = []
        """A heap of (seconds used when it was pushed, number, ticket).  The member may have used
        more since."""
        self._number = 0

    def charge(self, account: MemberUsage, used_s: float, useless_count: int = 0) -> bool:
        """A turn of *account* took *used_s* seconds, and *useless_count* useless frames were read
        in it.  True: a period begins with this turn, so the caller has to see to `next_round`."""
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
        """A round of the event loop has ended.  While the queue is contended this does nothing,
        since `next_round` begins the rounds then."""
        if not self.is_contended:
            self._round_used_s = 0.0

    def may_go(self, account: MemberUsage) -> bool:
        """Whether *account* may work in this round: some of the round is left, and no waiting
        member has used less."""
        if not self.is_contended:
            return True
        self._counted(account)
        if self._round_used_s >= self._round_s:
            return False
        first = self._first()
        return first is None or account._used_s <= first.account._used_s

    def wait(self, account: MemberUsage) -> Ticket:
        """Put *account* into the queue.  `next_round` returns the ticket when it may work."""
        self._counted(account)
        ticket = Ticket(account)
        self._push(ticket)
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """No task waits with *ticket* any more.  Harmless if `next_round` has returned it."""
        ticket.is_withdrawn = True

    def next_round(self) -> list[Ticket]:
        """Begin a round, and return the tickets of the members that may work in it without asking
        again: as many as fit if their turns are as long as their last ones.  When no member waits,
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
        """Reset what *account* has used if that is of an earlier period, and raise it to a minimum,
        so that a new member can't delay the others for long.  Useless frames raise the minimum."""
        least_s = max(0.0, self._floor_s - FAIR_HEAD_START_S)
        least_s += account._useless_count * USELESS_FRAME_S
        if account._period != self._period:
            account._period = self._period
            account._used_s = least_s
        elif account._used_s < least_s:
            account._used_s = least_s

    def _first(self) -> Ticket | None:
        """The ticket of the waiting member that has used the least."""
        while self._waiting:
            noted_s, _, ticket = self._waiting[0]
            if ticket.is_withdrawn:
                heapq.heappop(self._waiting)
            elif ticket.account._used_s > noted_s:  # another task of the member worked meanwhile
                heapq.heappop(self._waiting)
                self._push(ticket)
            else:
                return ticket
        return None

    def _push(self, ticket: Ticket) -> None:
        self._number += 1
        heapq.heappush(self._waiting, (ticket.account._used_s, self._number, ticket))


class UselessFramePauses:
    """Decides how long a member pauses after useless frames.

    A member may send `USELESS_FRAMES_FREE` of them in a burst, and `USELESS_FRAMES_PER_S` in the
    long run.  The members that pause may send `USELESS_FRAMES_PER_S_ALL` together, so each pauses
    longer the more there are.
    """

    __slots__ = ("pausing_count",)

    def __init__(self) -> None:
        self.pausing_count = 0
        """How many members pause now; callers count it up and down."""

    def charge(self, account: MemberUsage, frame_count: int, now: float) -> float:
        """*account* has sent *frame_count* useless frames by *now*.  Return for how many seconds it
        has to pause."""
        free = max(0.0, now - account._useless_at) * USELESS_FRAMES_PER_S
        count = max(0.0, account._useless_count - free) + frame_count
        rate = min(USELESS_FRAMES_PER_S, USELESS_FRAMES_PER_S_ALL / (self.pausing_count + 1))
        pause_s = max(0.0, count - USELESS_FRAMES_FREE) / rate
        # The pause pays for the frames beyond the free ones; it doesn't allow further ones.
        account._useless_count = min(count, USELESS_FRAMES_FREE)
        account._useless_at = now + pause_s
        return pause_s
