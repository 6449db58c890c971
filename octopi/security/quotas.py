"""Quotas of subjects, and how much of them is used.

Pure.  A quota stands in a token, in the claim ``octopi_quota``; a node's settings apply to what the
token does not limit.  Topics are counted by the register, in its journal.  Bytes
and readings are counted by each broker on its own, in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from octopi.errors import InvalidOptionError, RefusedError, Status
from octopi.limits import QUOTA_LOOK_INTERVAL_S, QUOTA_RUN_BYTES_MIN, QUOTA_RUNS_COUNT

CLAIM: Final = "octopi_quota"

LogName = tuple[str, str, int]
"""Topic name, topic id, partition."""

Bounds = Callable[[LogName], tuple[int, int] | None]
"""Start and end of a log (bytes); None if the log does not exist any more."""


@attrs.frozen
class Quota:
    """Limits of one subject; None: no limit."""

    topics: int | None = None
    """Existing topics that it created."""
    bytes: int | None = None
    """Bytes of records that it appended at one broker and that are still stored there."""
    readings: int | None = None
    """Open readings at one broker, and joins and attaches of members, of all its connections
    together."""

    def or_else(self, defaults: Quota) -> Quota:
        """This quota, with *defaults* for what it does not limit."""
        return Quota(
            defaults.topics if self.topics is None else self.topics,
            defaults.bytes if self.bytes is None else self.bytes,
            defaults.readings if self.readings is None else self.readings,
        )


NO_QUOTA: Final = Quota()


@attrs.frozen
class Creator:
    """Who creates a topic."""

    subject: str = ""
    """Empty if the node requires no tokens."""
    topics_max: int | None = None


NOBODY: Final = Creator()


def quota_of(claim: object) -> Quota:
    """The quota that the claim of a token describes.

    Raises:
      InvalidOptionError: if the claim is not valid; then the token is refused.  If it counted as a
          quota without limits, a misspelt word would grant everything.
    """
    if claim is None:
        return NO_QUOTA
    names = [field.name for field in attrs.fields(Quota)]
    if not isinstance(claim, Mapping) or not set(claim) <= set(names):
        raise InvalidOptionError(f"{CLAIM} has other parts than {', '.join(names)}")
    for value in claim.values():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise InvalidOptionError(f"{CLAIM} has a part that is no number")
    return Quota(**claim)


def exceeded(what: str, count_max: int) -> RefusedError:
    """The refusal of more than *count_max* of *what*."""
    return RefusedError(
        f"the token's quota is {count_max:,} {what}, and they are used up", Status.QUOTA_EXCEEDED
    )


@attrs.define
class _StoredRun:
    """Bytes of one subject in a stretch of a log, which may also hold bytes of others."""

    first: int
    end: int
    size_bytes: int


@attrs.define
class SubjectUsage:
    """The readings and stored bytes of one subject at one broker."""

    reading_count: int = 0
    stored_bytes: int = 0
    """Includes bytes that are reserved and not stored yet."""
    _runs: dict[LogName, deque[_StoredRun]] = attrs.Factory(dict)
    _looked_at: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is counted, so the object can be dropped."""
        return not (self.reading_count or self.stored_bytes)

    def subscribe(self, quota: Quota) -> None:
        """Count a reading, or a request that counts as one.

        Raises:
          RefusedError: QUOTA_EXCEEDED; then none is counted.
        """
        if quota.readings is not None and self.reading_count >= quota.readings:
            raise exceeded("readings at a broker", quota.readings)
        self.reading_count += 1

    def unsubscribed(self) -> None:
        """A reading ended."""
        self.reading_count -= 1

    def reserve(self, size_bytes: int, bytes_max: int, bounds: Bounds, now: float) -> None:
        """Count records that are about to be appended; `stored` or `refused` follows.  Bytes that
        retention or a deletion removed are subtracted only when the quota is used up, and at most
        once in `QUOTA_LOOK_INTERVAL_S` by *now* (s).

        Raises:
          RefusedError: QUOTA_EXCEEDED; then nothing is counted.
        """
        if self.stored_bytes + size_bytes > bytes_max:
            self._look(bounds, now)
            if self.stored_bytes + size_bytes > bytes_max:
                raise exceeded("bytes stored at a broker", bytes_max)
        self.stored_bytes += size_bytes

    def refused(self, size_bytes: int) -> None:
        """The reserved bytes were not stored, or were stored before."""
        self.stored_bytes -= size_bytes

    def stored(self, log: LogName, offset: int, size_bytes: int, bytes_max: int) -> None:
        """The reserved bytes are stored in *log* from *offset* on."""
        runs = self._runs.setdefault(log, deque())
        longest = max(QUOTA_RUN_BYTES_MIN, bytes_max // QUOTA_RUNS_COUNT)
        if runs and runs[-1].size_bytes < longest:
            runs[-1].end = max(runs[-1].end, offset + size_bytes)
            runs[-1].size_bytes += size_bytes
        else:
            runs.append(_StoredRun(offset, offset + size_bytes, size_bytes))

    def _look(self, bounds: Bounds, now: float) -> None:
        """Subtract bytes that are no longer stored."""
        if self._looked_at is not None and now < self._looked_at + QUOTA_LOOK_INTERVAL_S:
            return
        self._looked_at = now
        for log, runs in list(self._runs.items()):
            start, end = bounds(log) or (0, 0)
            kept = deque(run for run in runs if run.end > start and run.first < end)
            self.stored_bytes -= sum(one.size_bytes for one in runs)
            self.stored_bytes += sum(one.size_bytes for one in kept)
            if kept:
                self._runs[log] = kept
            else:
                del self._runs[log]
