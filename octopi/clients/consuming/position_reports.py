"""When a client tells the broker of a reading how far its program is, so that people see its lag.

It does so when the reading begins, then at most once in `POSITION_REPORT_INTERVAL_S`, and only if
the position has changed.  The cost doesn't grow with the number of messages.  This module knows no
clock and no connection.
"""

from __future__ import annotations

import math

from octopi.identifiers import Offset
from octopi.limits import POSITION_REPORT_INTERVAL_S


class PositionReports:
    """The reports about one log, for one reading after the other."""

    def __init__(self) -> None:
        self.is_idle = True
        """Whether no report is due until the program takes more messages: then call `taken`."""
        self.due_at = -math.inf
        """The time to call `next`, by the clock, unless this is idle."""
        self._last_at = -math.inf
        self._reported: Offset | None = None
        """The last report of this reading; None: there was none."""

    def begin(self) -> None:
        """A reading begins: its broker doesn't know the position, so a report is due."""
        self._reported = None
        self.is_idle, self.due_at = False, -math.inf

    def taken(self) -> None:
        """The program took messages."""
        self.is_idle, self.due_at = False, self._last_at + POSITION_REPORT_INTERVAL_S

    def next(self, dealt: Offset, taken: Offset, now: float) -> Offset | None:
        """The position to report now; None: it was reported already.

        *dealt*: the program has dealt with the messages below; *taken*: it took the messages below.
        While these differ, another report will be due."""
        offset = min(dealt, taken)  # behind a fork the program doesn't know of yet, `taken` is less
        self.is_idle = offset == taken
        self.due_at = now + POSITION_REPORT_INTERVAL_S
        if offset == self._reported:
            return None
        self._reported, self._last_at = offset, now
        return offset
