"""When a leader sends to followers that catch up, so that producers hardly notice.

The leader alternates.  In a *run* it sends these followers as much as they take.  Then it waits
until they have acknowledged that, and in the *rest* that follows it sends them nothing.  The rates
of producers in runs and in rests show what catching up costs producers, whatever resource both
need: the leader's event loop, processors, a disk, the network.  The lengths of runs and rests are
chosen so that producers lose, on average, no more than they may.  Where catching up costs nothing,
the leader rests a tenth of the time, only to keep measuring; and after a run in which nothing was
produced it doesn't rest at all.

One rule comes first: in every run, followers come nearer to the ends of their logs, by a share of
what they are sent.  Otherwise, where producers could use all resources, a follower that was away
would never catch up.

This module knows no follower and no log, only sums.  It doesn't concern in-sync followers, since
producers wait for what these are sent.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final

import attrs

from octopi.limits import CATCH_UP_GAIN

_REST_S_MIN: Final = 0.1
"""Long enough for producers to use what is free, and for some dozens of their batches."""

_REST_S_MAX: Final = 0.5
_RUN_S_MIN: Final = 0.1
_RUN_S_MAX: Final = 1.0
"""Bounds how old the measured cost is when the load of producers changes."""

_RUN_ON_S: Final = 4.0
"""The longest run that brings no follower nearer: a follower that hangs, or is slower than
producers, must not make the run endless."""

_DRAIN_S_MAX: Final = 0.25
"""After this time the rest begins even if followers have not acknowledged all they were sent."""

_LOOK_S: Final = 0.01
"""How often to check conditions for which no time is known in advance."""

_MEMORY: Final = 0.8
"""The weight of a turn relative to the next one, so about the last five turns count."""

_UNNOTICED_BYTES_PER_S: Final = 32 * 1024
"""Added to both rates of producers, so that a difference of this size, which may be chance, hardly
counts."""

_LOSS_UNKNOWN: Final = 0.5
"""The share that a run is assumed to cost until it was measured."""


@attrs.frozen
class CatchUpProgress:
    """The sums over all logs of a leader by which the pace is chosen."""

    now: float
    """On the monotonic clock (s)."""
    produced_bytes: int
    """What producers have appended, counted from any moment on."""
    sent_bytes: int
    """What followers that catch up were sent, counted from any moment on."""
    lacking_bytes: int
    """What these followers have not been sent yet."""
    on_their_way_bytes: int
    """What they were sent and have not acknowledged."""


class _Turn(Enum):
    RUN = auto()
    DRAIN = auto()
    REST = auto()


@attrs.define
class _Rate:
    """The rate of producers in one kind of turn; the newest turns count most."""

    size_bytes: float = 0.0
    seconds: float = 0.0

    def add(self, begin: CatchUpProgress, end: CatchUpProgress) -> None:
        self.size_bytes = _MEMORY * self.size_bytes + end.produced_bytes - begin.produced_bytes
        self.seconds = _MEMORY * self.seconds + end.now - begin.now

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.seconds


class CatchUpPace:
    """Alternates runs and rests; made when the first follower begins to catch up.

    Invariant: runs and rests end, and a rest follows each run in which something was produced.
    """

    def __init__(self, slowdown_max: float, begin: CatchUpProgress) -> None:
        """*slowdown_max*: the share of their rate that producers may lose."""
        self.look_at = begin.now
        """When to call `look` next; before that, it changes nothing (monotonic, s)."""
        self._slowdown_max = slowdown_max
        self._in_runs, self._in_rests = _Rate(), _Rate()
        # Measure first the rate of producers alone.
        self._turn = _Turn.DRAIN
        self._began = begin
        self._last_run_ended = begin
        self._drained_s = 0.0

    @property
    def may_send(self) -> bool:
        """Whether records may be sent now to followers that catch up."""
        return self._turn == _Turn.RUN

    @property
    def loss(self) -> float:
        """The share of their rate that producers lose in runs."""
        if not (self._in_runs.seconds and self._in_rests.seconds):
            return _LOSS_UNKNOWN
        run, rest = self._in_runs.bytes_per_s, self._in_rests.bytes_per_s
        return max(0.0, 1 - (run + _UNNOTICED_BYTES_PER_S) / (rest + _UNNOTICED_BYTES_PER_S))

    def lacking_changed(self, difference_bytes: int) -> None:
        """A follower that lacks *difference_bytes* began to catch up (negative: it ceased to).  The
        change doesn't count as progress of the run."""
        last = self._last_run_ended
        self._last_run_ended = attrs.evolve(
            last, lacking_bytes=last.lacking_bytes + difference_bytes
        )

    def look(self, seen: CatchUpProgress) -> None:
        """Begin the next turn if this one is over."""
        if seen.now < self.look_at:
            return
        self.look_at = seen.now + _LOOK_S
        match self._turn:
            case _Turn.RUN:
                if self._brought_nearer(seen) or seen.now >= self._began.now + _RUN_ON_S:
                    self._in_runs.add(self._began, seen)
                    self._last_run_ended = seen
                    if seen.produced_bytes > self._began.produced_bytes:
                        self._begin(_Turn.DRAIN, seen, 0.0)
                    else:
                        self._begin(_Turn.RUN, seen, self._run_s(_REST_S_MIN))
            case _Turn.DRAIN:
                if not seen.on_their_way_bytes or seen.now >= self._began.now + _DRAIN_S_MAX:
                    self._drained_s = seen.now - self._began.now
                    self._begin(_Turn.REST, seen, self._rest_s())
            case _Turn.REST:
                self._in_rests.add(self._began, seen)
                self._begin(_Turn.RUN, seen, self._run_s(seen.now - self._began.now))

    def _begin(self, turn: _Turn, seen: CatchUpProgress, seconds: float) -> None:
        self._turn, self._began = turn, seen
        self.look_at = seen.now + seconds

    def _brought_nearer(self, seen: CatchUpProgress) -> bool:
        """Whether followers lack less than at the end of the last run, by at least the share
        `CATCH_UP_GAIN` of what they were sent since."""
        last = self._last_run_ended
        sent_bytes = seen.sent_bytes - last.sent_bytes
        nearer_bytes = last.lacking_bytes - seen.lacking_bytes
        return 0 < CATCH_UP_GAIN * sent_bytes <= nearer_bytes

    @property
    def _runs_per_rest(self) -> float:
        """How many times as long as rests runs may be, including the time in which followers work
        on what they were sent."""
        share = min(1.0, self._slowdown_max / self.loss) if self.loss else 1.0
        return share / (1 - share) if share < 1 else math.inf

    def _rest_s(self) -> float:
        worked_s = _RUN_S_MIN + self._drained_s
        rest_s = worked_s / self._runs_per_rest if self._runs_per_rest else math.inf
        return min(_REST_S_MAX, max(_REST_S_MIN, rest_s))

    def _run_s(self, rested_s: float) -> float:
        run_s = rested_s * self._runs_per_rest - self._drained_s
        return min(_RUN_S_MAX, max(_RUN_S_MIN, run_s))
