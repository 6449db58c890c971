"""The followers that catch up with this broker, and whether they may be sent records now.

All these followers run and rest together, because what one of them costs producers shows only while
the others rest, too.  `octopi.replication.catch_up_pace` decides how long runs and rests are.
"""

from __future__ import annotations

from typing import Protocol

from octopi.environment import Clock
from octopi.replication.catch_up_pace import CatchUpPace, CatchUpProgress


class Behind(Protocol):
    """The stream of a follower that catches up."""

    @property
    def lacking_bytes(self) -> int:
        """The bytes that the follower has not been sent yet."""

    @property
    def on_their_way_bytes(self) -> int:
        """The bytes that the follower was sent and has not acknowledged."""


class CatchingUp:
    """The followers that catch up with this broker.  Call `produced` and `sent` as it happens."""

    def __init__(self, clock: Clock, slowdown_max: float) -> None:
        """*slowdown_max*: the share of their rate that producers may lose."""
        self._clock = clock
        self._slowdown_max = slowdown_max
        self._behind: dict[Behind, None] = {}
        self._pace: CatchUpPace | None = None
        self._produced_bytes = 0
        self._sent_bytes = 0

    def produced(self, size_bytes: int) -> None:
        """Note that producers appended *size_bytes*."""
        self._produced_bytes += size_bytes

    def sent(self, follower: Behind, size_bytes: int) -> None:
        """Note that *follower* was sent *size_bytes*; harmless if it doesn't catch up."""
        if follower in self._behind:
            self._sent_bytes += size_bytes

    def begin(self, follower: Behind) -> None:
        """Note that *follower* begins to catch up; harmless if it does already."""
        if follower in self._behind:
            return
        if self._pace is None:
            # What the last pace measured about the cost may be out of date.
            self._pace = CatchUpPace(self._slowdown_max, self._progress())
        self._behind[follower] = None
        self._pace.lacking_changed(follower.lacking_bytes)

    def end(self, follower: Behind) -> None:
        """Note that *follower* doesn't catch up any more; harmless if it didn't."""
        if follower not in self._behind:
            return
        del self._behind[follower]
        if not self._behind:
            self._pace = None
        elif self._pace is not None:
            self._pace.lacking_changed(-follower.lacking_bytes)

    def may_send(self) -> bool:
        """Whether records may be sent now to followers that catch up."""
        pace = self._pace
        assert pace is not None, "no follower catches up"
        if self._clock.now() >= pace.look_at:
            pace.look(self._progress())
        return pace.may_send

    @property
    def look_again_s(self) -> float:
        """Seconds until `may_send` may change."""
        assert self._pace is not None, "no follower catches up"
        return max(0.0, self._pace.look_at - self._clock.now())

    def _progress(self) -> CatchUpProgress:
        return CatchUpProgress(
            self._clock.now(),
            self._produced_bytes,
            self._sent_bytes,
            sum(one.lacking_bytes for one in self._behind),
            sum(one.on_their_way_bytes for one in self._behind),
        )
