"""The turns in which a node's connections work.  `octopi.transport.fair_queue` decides about them;
this module makes the tasks wait.

A connection handles what its peer sent in turns.  A turn ends when nothing is left to handle, or
when it has lasted `octopi.limits.TURN_S`; then all other tasks have theirs.  While connections
together need more of each round of the event loop than they may have, they wait for one another.

Turns are timed by the stopwatch of the `Environment`.  In virtual time it stands still, so turns
never end by time there, and no connection waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from octopi.environment import Clock, Stopwatch
from octopi.errors import STATUS_MEANINGS, Status
from octopi.limits import DENIAL_FRAMES, ROUND_S, TURN_S, USELESS_FRAMES_PER_TURN
from octopi.transport.fair_queue import FairQueue, MemberUsage, Ticket, UselessFramePauses
from octopi.wire.messages import Authenticate, Credit, Heartbeat, ReportPosition, Unsubscribe

_OF_NO_USE: Final = frozenset({Heartbeat, Authenticate, Credit, ReportPosition, Unsubscribe})
"""Messages that no client needs to send often."""


class ConnectionTurns:
    """The turns of connections that share one part of each round.

    *nursery* owns the task that wakes waiting connections; it is started when it is first needed.
    """

    def __init__(
        self,
        clock: Clock,
        stopwatch: Stopwatch,
        nursery: trio.Nursery,
        *,
        round_s: float = ROUND_S,
    ) -> None:
        self.clock = clock
        self.stopwatch = stopwatch
        self.queue = FairQueue(round_s)
        self.pauses = UselessFramePauses()
        self._nursery = nursery
        self._tasks: dict[Ticket, trio.lowlevel.Task] = {}
        """The tasks that wait, by their tickets."""
        self._is_started = False
        self._work = trio.lowlevel.ParkingLot()

    def turn(self) -> ConnectionTurn:
        """The turn of a new connection."""
        return ConnectionTurn(self)

    def start_waiting(self) -> None:
        """The queue has become contended: have the rounds begun until it isn't any more."""
        if self._is_started:
            self._work.unpark()
        else:
            self._is_started = True
            self._nursery.start_soon(self._see_to_rounds)

    async def wait(self, account: MemberUsage) -> None:
        """Wait for a later round, in which *account* may work."""
        ticket = self.queue.wait(account)
        self._tasks[ticket] = trio.lowlevel.current_task()

        def give_up(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            del self._tasks[ticket]
            self.queue.withdraw(ticket)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    async def _see_to_rounds(self) -> None:
        while True:
            while self.queue.is_contended:
                for ticket in self.queue.next_round():
                    trio.lowlevel.reschedule(self._tasks.pop(ticket))
                await trio.lowlevel.checkpoint()
            await self._work.park()


class ConnectionTurn:
    """The turns of one task, which works for one connection; see `octopi.environment.Turn`."""

    __slots__ = (
        "_began", "_pauses_until", "_queue", "_stopwatch", "_works", "account", "is_over",
        "turns", "useless_count", "waits_until",
    )  # fmt: skip

    def __init__(self, turns: ConnectionTurns, account: MemberUsage | None = None) -> None:
        """*account*: where the time is counted; the tasks of one connection share it."""
        self.turns = turns
        self.account = account or MemberUsage()
        self._queue = turns.queue
        self._stopwatch = turns.stopwatch
        self._began = 0.0
        self._works = False
        self.is_over = False
        self.useless_count = 0
        self._pauses_until: float | None = None
        self.waits_until = -math.inf
        """Infinite while the task waits for its turn; else when its last wait ended, by the
        clock."""

    def took(self, message: type) -> None:
        """Count *message*, the class of a message that was read."""
        if message in _OF_NO_USE:
            self.useless_count += 1

    def was_of_use(self) -> None:
        """Don't count the last message as useless, although messages of its class are."""
        if self.useless_count:
            self.useless_count -= 1

    def refused(self, status: int) -> None:
        """A request was refused with *status*; refused access counts as useless frames."""
        if STATUS_MEANINGS[Status(status)].of_access:
            self.useless_count += DENIAL_FRAMES

    def begin(self) -> bool:
        """See `octopi.environment.Turn`."""
        if self._pauses_until is not None:
            return False
        if self._queue.is_contended and not self._queue.may_go(self.account):
            return False
        self._began = self._stopwatch()
        self._works = True
        self.is_over = False
        return True

    def go_on(self) -> None:
        """Begin a turn without asking the queue: it continues work of an earlier turn."""
        self._began = self._stopwatch()
        self._works = True
        self.is_over = False

    async def wait(self) -> None:
        """See `octopi.environment.Turn`."""
        turns = self.turns
        self.waits_until = math.inf
        try:
            if self._pauses_until is not None:
                turns.pauses.pausing_count += 1
                try:
                    await turns.clock.sleep_until(self._pauses_until)
                finally:
                    turns.pauses.pausing_count -= 1
                self._pauses_until = None
            if not self._queue.may_go(self.account):
                await turns.wait(self.account)
        finally:
            self.waits_until = turns.clock.now()
        self.go_on()

    def look(self) -> None:
        """See `octopi.environment.Turn`."""
        took_s = self._stopwatch() - self._began
        if took_s >= TURN_S or self.useless_count >= USELESS_FRAMES_PER_TURN:
            self.is_over = True

    def end(self) -> None:
        """See `octopi.environment.Turn`."""
        if not self._works:
            return
        self._works = False
        used_s = self._stopwatch() - self._began
        if self._queue.charge(self.account, used_s, self.useless_count):
            self.turns.start_waiting()
        if self.useless_count:
            now = self.turns.clock.now()
            pause_s = self.turns.pauses.charge(self.account, self.useless_count, now)
            self.useless_count = 0
            if pause_s:
                self._pauses_until = now + pause_s

    async def give_way(self) -> None:
        """See `octopi.environment.Turn`."""
        self.end()
        await trio.lowlevel.checkpoint()
        self._queue.round_is_over()
        if not self.begin():
            await self.wait()


def another(turn: ConnectionTurn | None) -> ConnectionTurn | None:
    """A turn for another task that works for the connection of *turn*."""
    return None if turn is None else ConnectionTurn(turn.turns, turn.account)


async def allowed(turn: ConnectionTurn | None) -> ConnectionTurn | None:
    """Wait until another task may work for the connection of *turn*, and return the turn of that
    task.  It is for tasks of which many may be woken at once, of one connection or of many."""
    own = another(turn)
    if own is not None and not own.begin():
        await own.wait()
    return own


@contextmanager
def measured(turn: ConnectionTurn | None) -> Iterator[None]:
    """Count the block to *turn*, for which the task has waited.  The block must not wait."""
    if turn is None:
        yield
        return
    turn.go_on()  # the task may have waited for something else since
    try:
        yield
    finally:
        turn.end()
