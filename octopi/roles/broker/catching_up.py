"""The followers of this broker's partitions that catch up, and whether they are sent something.

All of them run and rest together, as what one costs producers shows only while the others
rest, too.  Which lengths turns have is the business of `octopi.replication.catch_up_pace`.
"""

from __future__ import annotations

from typing import Protocol

from octopi.environment import Clock
from octopi.replication.catch_up_pace import CatchUpPace, CatchUpProgress


class Behind(Protocol):
    """A follower's stream, while that catches up."""

    @property
    def lacking_bytes(self) -> int:
        """What it has not been sent yet."""

    @property
    def on_their_way_bytes(self) -> int:
        """What it was sent and did not acknowledge."""


class CatchingUp:
    """Who catches up with this broker; `produced` and `sent` are told as they happen."""

    def __init__(self, clock: Clock, slowdown_max: float) -> None:
        """*slowdown_max*: the share of their rate that producers may lose."""
        self._clock = clock
        self._slowdown_max = slowdown_max
        self._behind: dict[Behind, None] = {}
        self._pace: CatchUpPace | None = None
        self._produced_bytes = 0
        self._sent_bytes = 0

    def produced(self, size_bytes: int) -> None:
        """Producers appended so much."""
        self._produced_bytes += size_bytes

    def sent(self, follower: Behind, size_bytes: int) -> None:
        """*follower* was sent so much; harmless if it doesn't catch up."""
        if follower in self._behind:
            self._sent_bytes += size_bytes

    def begin(self, follower: Behind) -> None:
        """*follower* catches up from now on; harmless if it does already."""
        if follower in self._behind:
            return
        if self._pace is None:
            # What was learned about the cost is of another time.
            self._pace = CatchUpPace(self._slowdown_max, self._progress())
        self._behind[follower] = None
        self._pace.lacking_changed(follower.lacking_bytes)

    def end(self, follower: Behind) -> None:
        """The opposite; harmless if it doesn't."""
        if follower not in self._behind:
            return
        del self._behind[follower]
        if not self._behind:
            self._pace = None
        elif self._pace is not None:
            self._pace.lacking_changed(-follower.lacking_bytes)

    def may_send(self) -> bool:
        """Whether those who catch up are to be sent records now."""
        pace = self._pace
        assert pace is not None, "somebody catches up"
        if self._clock.now() >= pace.look_at:
            pace.look(self._progress())
        return pace.may_send

    @property
    def look_again_s(self) -> float:
        """After how long `may_send` may have another answer (s)."""
        assert self._pace is not None, "somebody catches up"
        return max(0.0, self._pace.look_at - self._clock.now())

    def _progress(self) -> CatchUpProgress:
        return CatchUpProgress(
            self._clock.now(),
            self._produced_bytes,
            self._sent_bytes,
            sum(one.lacking_bytes for one in self._behind),
            sum(one.on_their_way_bytes for one in self._behind),
        )
