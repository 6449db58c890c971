"""The anchors of what a consumer has read of a log, with which it finds the last common offset
after a fork.

If a broker has another epoch before a place than the consumer has read there, it answers with an
offset up to which both agree.  They may agree further, since an anchor names only a few epochs.
The consumer remembers the anchors of all that it read.  It subscribes again at the next lower place
that it has read, until a broker agrees.  It compares anchors, and never interprets them.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.identifiers import Offset
from octopi.position import NO_ANCHOR, Anchor, Place

_RUNS_MAX: Final = 100
"""Older runs are forgotten: one begins with each change of the log's leader, without end."""


@attrs.define
class _Run:
    """Consecutive places that have the same anchor."""

    after: Offset
    """The offset before the first of these places (exclusive)."""
    end: Offset
    """The last of these places (inclusive)."""
    anchor: Anchor


class Trail:
    """The anchors of the places that a consumer passed, the newest last.

    Invariant: each run begins where the one before it ends, and the last one ends at `offset`.
    """

    def __init__(self, place: Place) -> None:
        self.offset = place.offset
        self._runs: list[_Run] = []
        self.know(place.anchor)

    @property
    def place(self) -> Place:
        """The place of the next record to read."""
        return Place(self.offset, self._runs[-1].anchor if self._runs else NO_ANCHOR)

    def anchor_at(self, offset: Offset) -> Anchor:
        """The anchor of a place that was passed; empty: not known."""
        for run in reversed(self._runs):
            if run.after < offset:
                return run.anchor if offset <= run.end else NO_ANCHOR
        return NO_ANCHOR

    def know(self, anchor: Anchor) -> None:
        """`place` has *anchor*; this changes nothing if its anchor is known already."""
        if anchor and not self._runs:
            self._runs.append(_Run(Offset(self.offset - 1), self.offset, anchor))

    def read(self, end: Offset, anchor: Anchor) -> None:
        """Records were read up to *end*, which has *anchor*."""
        runs = self._runs
        if not anchor:
            runs.clear()
        elif runs and runs[-1].anchor == anchor:
            runs[-1].end = end
        else:
            runs.append(_Run(self.offset, end, anchor))
            del runs[:-_RUNS_MAX]
        self.offset = end

    def fall_back(self, offset: Offset) -> None:
        """A broker has another history before `place`, and agrees up to *offset*, perhaps further:
        go back to the place to try next."""
        assert offset < self.offset, "a fork lies before what was read"
        if self._runs:
            last = self._runs[-1]
            if last.after < offset:
                last.end = offset  # the broker may have a part of this run
            else:
                self._runs.pop()
                if self._runs:
                    offset = last.after  # the broker has nothing of this run, but maybe of earlier
        self.offset = offset

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        ends = [one.after for one in self._runs[1:]] + [self.offset]
        assert all(one.after < one.end == end for one, end in zip(self._runs, ends, strict=False))
