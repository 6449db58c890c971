"""Where retention has a log start, and what it keeps for subscriptions alone.  Does no I/O."""

from __future__ import annotations

from typing import Final

import attrs

from octopi.identifiers import Offset
from octopi.storage.segmented_log import SegmentedLog
from octopi.subscriptions.known_marks import SlowestMark


@attrs.frozen
class KeptStart:
    """What retention has decided about a log."""

    start: Offset
    """The log is to start there, or behind it if it does so already.  It still starts before it if
    a segment could not be removed, or became due too late for this time."""
    expired_end: Offset
    """It would start there, if retention waited for no subscription."""
    slowest: SlowestMark | None
    """The mark that was asked for; None: there was none to wait for."""

    @property
    def held_for(self) -> str:
        """The subscription that retention waits for; empty: for none, or it is not known."""
        return self.slowest.subscription if self.slowest and self.start < self.expired_end else ""

    def held_bytes(self, begin: Offset) -> int:
        """How much from *begin* on stays for subscriptions alone.  What was to be removed, and is
        still there, doesn't count."""
        return max(0, self.expired_end - max(begin, self.start))

    def unread_from(self, was_at: Offset, start: Offset) -> Offset | None:
        """Where that begins which was removed although a subscription has yet to process it, if the
        log started at *was_at* before and starts at *start* now; None: nothing was."""
        if self.slowest is None or not self.slowest.subscription:
            return None
        begin = max(self.slowest.offset, was_at)
        return begin if begin < start else None


NOTHING_KEPT: Final = KeptStart(Offset(0), Offset(0), None)
"""Nothing was decided yet."""


def kept_start(
    files: SegmentedLog,
    now_ms: int,
    *,
    below: Offset,
    outdated_below: Offset,
    slowest: SlowestMark | None,
) -> KeptStart:
    """Decide about the log in *files*; the arguments are those of `SegmentedLog.retention_start`.

    Raises:
      StorageError: if the log is closed.
    """
    expired_end = start = files.retention_start(now_ms, below=below, outdated_below=outdated_below)
    if slowest is not None:
        hold = slowest.offset
        start = files.retention_start(now_ms, below=below, outdated_below=outdated_below, hold=hold)
    return KeptStart(start, expired_end, slowest)
