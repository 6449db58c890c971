"""When to ask about somebody who says nothing.

Silence proves nothing: a slow node is silent, and so is one that has nothing to say.  It is
a reason to ask somebody who watches that node, and the longer it lasts without a finding,
the less often.  Knows no clock and no task; times are seconds on one clock of the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from octopi.limits import QUESTION_INTERVAL_S, SILENCE_GROWTH


class Silence:
    """A question is due after *first_s* of silence, then whenever that has grown by
    `SILENCE_GROWTH`.  With a word the silence is over, and the next one begins anew.
    """

    def __init__(self, first_s: float, since: Callable[[], float | None]) -> None:
        """*since* says when the silence that lasts began; None: there is none."""
        self._first_s = first_s
        self._since = since
        self._began: float | None = None
        self._due_s = first_s
        """How long the silence will have lasted when a question is due."""
        self._soon_s = QUESTION_INTERVAL_S

    def due_at(self) -> float:
        """When to ask, unless a word comes before; infinity: not at all."""
        began = self._since()
        if began != self._began:
            self._began = began
            self._due_s = self._first_s
            self._soon_s = QUESTION_INTERVAL_S
        return math.inf if began is None else began + self._due_s

    def asked(self, now: float) -> None:
        """The question that was due was asked."""
        assert self._began is not None, "nothing was due"
        self._due_s = SILENCE_GROWTH * max(self._due_s, now - self._began)

    def nobody_there(self, now: float) -> None:
        """The answer was that nobody is in charge: that changes soon, so ask again soon, unless
        a word came meanwhile."""
        is_due_late = self.due_at() > now + self._soon_s
        if is_due_late and self._began is not None and self._began <= now:
            self._due_s = now - self._began + self._soon_s
            self._soon_s *= 2
