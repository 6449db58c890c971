"""What a consumer has read of a log, so that it finds out where the log parted from that.

A broker that finds another epoch before a place than the consumer read there answers with an
offset up to which both agree.  They may agree on more: an anchor names a few epochs only.  The
consumer knows of all that it read, and asks again from the next place below that it read, until
a broker agrees.  Anchors are compared and never interpreted.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.identifiers import Offset
from octopi.position import NO_ANCHOR, Anchor, Place

_RUNS_MAX: Final = 100
"""Older ones are forgotten: a log changes its leader now and then."""


@attrs.define
class _Run:
    """Places with one anchor, one behind the other."""

    after: Offset
    """They lie behind this one,"""
    end: Offset
    """up to this one."""
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
        """Where it goes on."""
        return Place(self.offset, self._runs[-1].anchor if self._runs else NO_ANCHOR)

    def anchor_at(self, offset: Offset) -> Anchor:
        """The anchor of a place that was passed; empty: not known."""
        for run in reversed(self._runs):
            if run.after < offset:
                return run.anchor if offset <= run.end else NO_ANCHOR
        return NO_ANCHOR

    def know(self, anchor: Anchor) -> None:
        """*anchor* stands before `place`; no news if that is known already."""
        if anchor and not self._runs:
            self._runs.append(_Run(Offset(self.offset - 1), self.offset, anchor))

    def read(self, end: Offset, anchor: Anchor) -> None:
        """Records were read up to *end*, and *anchor* stands before it."""
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
        """A broker has something else before `place`, and agrees up to *offset*, perhaps further:
        go back to the place to ask for next."""
        assert offset < self.offset, "a fork lies before what was read"
        if self._runs:
            last = self._runs[-1]
            if last.after < offset:
                last.end = offset  # perhaps it has a part of these
            else:
                self._runs.pop()
                if self._runs:
                    offset = last.after  # it has none of them, but perhaps those before
        self.offset = offset

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        ends = [one.after for one in self._runs[1:]] + [self.offset]
        assert all(one.after < one.end == end for one, end in zip(self._runs, ends, strict=False))
