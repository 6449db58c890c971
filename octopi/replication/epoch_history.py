"""Which leader epoch wrote which stretch of a log.

A table of (epoch, offset where its records begin).  Receipts name the epoch of their
records from it, and replicas that meet again find from it where their logs part.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final

import attrs

from octopi.identifiers import NO_EPOCH, Epoch, Offset
from octopi.position import DISTANCES, NO_ANCHOR, Anchor, BegunEpoch, anchor_of

_EPOCH: Final = itemgetter(0)
_START: Final = itemgetter(1)
_NOTHING: Final = Offset(0)
_ADJACENT_MAX: Final = 2
"""An anchor names each epoch up to this distance (`DISTANCES`)."""


@attrs.define
class EpochHistory:
    """The epochs of one log.

    Invariant: epochs and start offsets both grow strictly.  An epoch that wrote nothing has
    no entry, but for the last one, which may be about to write.
    """

    _entries: list[tuple[Epoch, Offset]] = attrs.field(factory=list)
    """Each epoch, and where its records begin."""
    _told: tuple[int, Anchor] = attrs.field(default=(0, NO_ANCHOR), init=False, eq=False)
    """The anchor behind the first so many entries that was made last: most readers want it."""

    @classmethod
    def load(cls, entries: Iterable[Iterable[int]]) -> EpochHistory:
        """From what `dump` returned."""
        history = cls()
        for epoch, start in entries:
            history.begin(Epoch(epoch), Offset(start))
        return history

    def dump(self) -> list[list[int]]:
        """``[epoch, start offset]`` in order: plain values for a checkpoint file."""
        return [[epoch, start] for epoch, start in self._entries]

    def begin(self, epoch: Epoch, start: Offset) -> bool:
        """Note that records of *epoch* begin at *start*; say whether that is news.

        An epoch that began at the same place and wrote nothing is replaced.
        """
        if self._entries:
            last_epoch, last_start = self._entries[-1]
            if last_epoch == epoch:
                return False
            assert epoch > last_epoch, "epochs only grow"
            if last_start == start:
                self._entries.pop()
        self._entries.append((epoch, start))
        self._told = 0, NO_ANCHOR
        self.check_invariants()
        return True

    def epoch_at(self, offset: Offset) -> Epoch:
        """The epoch that wrote the record at *offset*; 0 before the first."""
        at = bisect_right(self._entries, offset, key=_START)
        return self._entries[at - 1][0] if at else NO_EPOCH

    def end_of_epoch_at(self, offset: Offset, log_end: Offset) -> Offset:
        """Where the records of the epoch that wrote the one at *offset* end (exclusive)."""
        at = bisect_right(self._entries, offset, key=_START)
        return self._entries[at][1] if at < len(self._entries) else log_end

    def anchor_before(self, offset: Offset) -> Anchor:
        """The anchor of the place at *offset*; empty if what ends there isn't known."""
        return self._anchor(bisect_left(self._entries, offset, key=_START))

    def anchor_behind(self, offset: Offset) -> Anchor:
        """The anchor of each place behind the record at *offset*, up to the last of its epoch."""
        return self._anchor(bisect_right(self._entries, offset, key=_START))

    def _anchor(self, count: int) -> Anchor:
        """Of a place behind records of the first *count* epochs, and of no other."""
        if count != self._told[0]:
            named = [self._entries[count - 1 - one] for one in DISTANCES if one < count]
            self._told = count, anchor_of(named)
        return self._told[1]

    def fork(
        self, offset: Offset, read: Sequence[BegunEpoch], log_end: Offset, *, is_leader: bool
    ) -> Offset | None:
        """Whether this log parted from one that was read up to *offset*.

        *read*: the epochs that the anchor of that place names, and at least one; the newest is
        none that this replica has yet to hear of.  *log_end*: where this log ends; as long as the
        replica leads, there is no more of it anywhere.

        Returns: None if the logs agree up to *offset*, as far as this history tells.  Otherwise
        an offset up to which they agree, below *offset*: the last one, if this log has records of
        one of the first three epochs in *read*.
        """
        epoch = read[0][0]
        newer = bisect_right(self._entries, epoch, key=_EPOCH)
        is_over = newer < len(self._entries)
        end = self._entries[newer][1] if is_over else log_end
        if offset > end:
            return self._common(offset, read, log_end) if is_over or is_leader else None
        at = bisect_left(self._entries, offset, key=_START)
        if not at or self._entries[at - 1][0] == epoch:
            return None  # the same; or there is nothing before it, or this history begins later
        return self._common(offset, read, log_end)

    def _common(self, offset: Offset, read: Sequence[BegunEpoch], log_end: Offset) -> Offset:
        """An offset up to which this log and the one that was read agree.

        One leader wrote all records of an epoch, in order, and held one log below them.  So logs
        that both have records of an epoch agree up to where the first of them has no more of it;
        and records of an epoch that this log doesn't have are not in it from their first on.
        """
        until = offset
        """What was read below it is of the epoch at hand, or older."""
        for known, (epoch, start) in zip(DISTANCES, read, strict=False):
            at = bisect_right(self._entries, epoch, key=_EPOCH)
            if at and self._entries[at - 1][0] == epoch and self._entries[at - 1][1] < until:
                end = self._entries[at][1] if at < len(self._entries) else log_end
                # Behind epochs that the anchor leaves out it isn't known how much of this one was
                # read, but for its first record.
                return min(end, until if known <= _ADJACENT_MAX else start)
            until = start
        return _NOTHING  # whatever came before them was read in epochs that aren't named

    @property
    def latest(self) -> Epoch:
        """The last epoch that is known; 0 if there was none."""
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def ends(self, log_end: Offset) -> dict[Epoch, Offset]:
        """Where the records of each epoch end (exclusive) in a log that ends at *log_end*;
        epochs without records are left out."""
        stops = [start for _, start in self._entries[1:]] + [log_end]
        rows = zip(self._entries, stops, strict=False)
        return {epoch: min(stop, log_end) for (epoch, start), stop in rows if start < log_end}

    def truncate(self, end: Offset) -> bool:
        """Forget epochs that begin at or behind *end*, the end of the log; say whether there
        were any."""
        known = len(self._entries)
        while self._entries and self._entries[-1][1] >= end:
            self._entries.pop()
        self._told = 0, NO_ANCHOR
        return len(self._entries) < known

    def before(self, end: Offset) -> EpochHistory:
        """The history of the log's records before *end*."""
        return EpochHistory(self._entries[: bisect_left(self._entries, end, key=_START)])

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(self._entries))


def divergence(mine: dict[Epoch, Offset], theirs: dict[Epoch, Offset]) -> Offset:
    """Where two logs part, from where their epochs end (`EpochHistory.ends`).

    One leader wrote all records of an epoch, in order, so of an epoch that both know, the
    shorter stretch is a prefix of the longer; and a leader of that epoch held one log below
    it.  So they agree up to the end of the shorter stretch of the newest common epoch.
    Contents are never compared.
    """
    common = mine.keys() & theirs.keys()
    if not common:
        return Offset(0)
    newest = max(common)
    return min(mine[newest], theirs[newest])
