"""When a leader sends to followers that catch up, so that producers hardly notice.

By turns: in a *run* those followers are sent as much as they take; then what is on its way
is awaited, and in the *rest* that follows they are sent nothing.  What producers manage in
runs and in rests says what catching up costs them, whatever it is that both need: the
leader's event loop, processors, a disk, the network.  Runs and rests are given such lengths
that producers lose, over all turns, no more than they may.  Where catching up costs nothing
it rests a tenth of the time, only to go on knowing that; and behind a run in which nobody
produced it rests not at all.

One thing comes first: in every turn followers come nearer to the ends of their logs, by a
share of what they are sent.  Else, where producers could take all there is, nobody who was
away would ever be back.

Knows no follower and no log, only sums.  In-sync followers are no business of it: what they
are sent is what producers wait for.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final

import attrs

from octopi.limits import CATCH_UP_GAIN

_REST_S_MIN: Final = 0.1
"""Time for producers to take what is free, and for some dozens of their batches."""

_REST_S_MAX: Final = 0.5
_RUN_S_MIN: Final = 0.1
_RUN_S_MAX: Final = 1.0
"""So old is at most what is known about the cost when producers' habits change."""

_RUN_ON_S: Final = 4.0
"""A run that brought no follower nearer goes on for so long at most: a follower that hangs or is
slower than producers must not make the others' runs endless."""

_DRAIN_S_MAX: Final = 0.25
"""The rest begins then, also if a follower has not acknowledged all that it was sent."""

_LOOK_S: Final = 0.01
"""How often to look whether something has come to pass that has no time."""

_MEMORY: Final = 0.8
"""A turn counts so much less than the one after it: about five of them count."""

_UNNOTICED_BYTES_PER_S: Final = 32 * 1024
"""A difference in producers' rates of that size is chance: it is added to both of them."""

_LOSS_UNKNOWN: Final = 0.5
"""What a run costs until it is known."""


@attrs.frozen
class CatchUpProgress:
    """What the pace is judged by; sums over all logs of a leader."""

    now: float
    """On the monotonic clock (s)."""
    produced_bytes: int
    """What producers had appended, counted from any beginning."""
    sent_bytes: int
    """What followers that catch up were sent, counted from any beginning."""
    lacking_bytes: int
    """What these followers have not been sent yet."""
    on_their_way_bytes: int
    """What they were sent and did not acknowledge."""


class _Turn(Enum):
    RUN = auto()
    DRAIN = auto()
    REST = auto()


@attrs.define
class _Rate:
    """What producers manage in one kind of turn, the newest ones counting most."""

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

    Invariant: runs and rests end, and a rest follows each run in which somebody produced.
    """

    def __init__(self, slowdown_max: float, begin: CatchUpProgress) -> None:
        """*slowdown_max*: the share of their rate that producers may lose."""
        self.look_at = begin.now
        """When to `look` next: nothing changes before (monotonic, s)."""
        self._slowdown_max = slowdown_max
        self._in_runs, self._in_rests = _Rate(), _Rate()
        # The first thing to know is what producers manage by themselves.
        self._turn = _Turn.DRAIN
        self._began = begin
        self._last_run_ended = begin
        self._drained_s = 0.0

    @property
    def may_send(self) -> bool:
        """Whether followers that catch up are sent records now."""
        return self._turn == _Turn.RUN

    @property
    def loss(self) -> float:
        """The share of their rate that producers lose in runs."""
        if not (self._in_runs.seconds and self._in_rests.seconds):
            return _LOSS_UNKNOWN
        run, rest = self._in_runs.bytes_per_s, self._in_rests.bytes_per_s
        return max(0.0, 1 - (run + _UNNOTICED_BYTES_PER_S) / (rest + _UNNOTICED_BYTES_PER_S))

    def lacking_changed(self, difference_bytes: int) -> None:
        """Followers began or ceased to catch up that lack so much: that is no progress."""
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
        """Whether enough of what was sent since the last run's end was not just what
        producers had appended meanwhile."""
        last = self._last_run_ended
        sent_bytes = seen.sent_bytes - last.sent_bytes
        nearer_bytes = last.lacking_bytes - seen.lacking_bytes
        return 0 < CATCH_UP_GAIN * sent_bytes <= nearer_bytes

    @property
    def _runs_per_rest(self) -> float:
        """How much longer than rests runs may be, with the time in which followers still
        work on what they were sent."""
        share = min(1.0, self._slowdown_max / self.loss) if self.loss else 1.0
        return share / (1 - share) if share < 1 else math.inf

    def _rest_s(self) -> float:
        worked_s = _RUN_S_MIN + self._drained_s
        rest_s = worked_s / self._runs_per_rest if self._runs_per_rest else math.inf
        return min(_REST_S_MAX, max(_REST_S_MIN, rest_s))

    def _run_s(self, rested_s: float) -> float:
        run_s = rested_s * self._runs_per_rest - self._drained_s
        return min(_RUN_S_MAX, max(_RUN_S_MIN, run_s))
