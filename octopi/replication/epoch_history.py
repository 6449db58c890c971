"""Which leader epoch wrote which stretch of a log.

The history is a table of (epoch, offset where its records begin).  Receipts take the epoch of their
records from it, and a follower and its leader find with it where their logs diverge.
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

    Invariant: epochs and start offsets both grow strictly.  An epoch without records has no entry,
    except the last one, which may be about to write some.
    """

    _entries: list[tuple[Epoch, Offset]] = attrs.field(factory=list)
    """Each epoch, and where its records begin."""
    _told: tuple[int, Anchor] = attrs.field(default=(0, NO_ANCHOR), init=False, eq=False)
    """A cache: a number of entries, and the anchor behind these entries.  Most readers ask for the
    same one."""

    @classmethod
    def load(cls, entries: Iterable[Iterable[int]]) -> EpochHistory:
        """The history that `dump` has returned."""
        history = cls()
        for epoch, start in entries:
            history.begin(Epoch(epoch), Offset(start))
        return history

    def dump(self) -> list[list[int]]:
        """``[epoch, start offset]`` in order: plain values for a checkpoint file."""
        return [[epoch, start] for epoch, start in self._entries]

    def begin(self, epoch: Epoch, start: Offset) -> bool:
        """Note that records of *epoch* begin at *start*; return whether that changed anything.

        An epoch without records that began at the same place is replaced.
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
        """The epoch of the record at *offset*; 0 before the first entry."""
        at = bisect_right(self._entries, offset, key=_START)
        return self._entries[at - 1][0] if at else NO_EPOCH

    def end_of_epoch_at(self, offset: Offset, log_end: Offset) -> Offset:
        """Where the records of the epoch that wrote the one at *offset* end (exclusive)."""
        at = bisect_right(self._entries, offset, key=_START)
        return self._entries[at][1] if at < len(self._entries) else log_end

    def anchor_before(self, offset: Offset) -> Anchor:
        """The anchor for *offset*; empty if the epoch of the record that ends there isn't known."""
        return self._anchor(bisect_left(self._entries, offset, key=_START))

    def anchor_behind(self, offset: Offset) -> Anchor:
        """The anchor for each offset behind the record at *offset*, up to the end of its epoch."""
        return self._anchor(bisect_right(self._entries, offset, key=_START))

    def _anchor(self, count: int) -> Anchor:
        """The anchor of an offset behind records of exactly the first *count* entries."""
        if count != self._told[0]:
            named = [self._entries[count - 1 - one] for one in DISTANCES if one < count]
            self._told = count, anchor_of(named)
        return self._told[1]

    def fork(
        self, offset: Offset, read: Sequence[BegunEpoch], log_end: Offset, *, is_leader: bool
    ) -> Offset | None:
        """Check whether this log diverged from one that was read up to *offset*.

        *read*: the epochs that the anchor of that offset names, at least one; none is newer than
        the partition's epoch that this replica knows.  *log_end*: where this log ends.
        *is_leader*: whether this replica leads, so that no replica has more of the log.

        Returns: None if the logs agree up to *offset*, as far as this history shows.  Otherwise
        an offset below *offset* up to which they agree: the last such offset, if this log has
        records of one of the first three epochs in *read*.
        """
        epoch = read[0][0]
        newer = bisect_right(self._entries, epoch, key=_EPOCH)
        is_over = newer < len(self._entries)
        end = self._entries[newer][1] if is_over else log_end
        if offset > end:
            return self._common(offset, read, log_end) if is_over or is_leader else None
        at = bisect_left(self._entries, offset, key=_START)
        if not at or self._entries[at - 1][0] == epoch:
            return None  # the epochs are the same, or this history has nothing before *offset*
        return self._common(offset, read, log_end)

    def _common(self, offset: Offset, read: Sequence[BegunEpoch], log_end: Offset) -> Offset:
        """An offset up to which this log and the one that was read agree.

        One leader wrote all records of an epoch, in order, and had one log before them.  So two
        logs that both have records of an epoch agree up to where one of them has no more records of
        that epoch.  If this log has no records of an epoch, the logs can only agree up to the first
        record of that epoch.
        """
        until = offset
        """The records that were read below this offset are of the present epoch, or of older
        ones."""
        for known, (epoch, start) in zip(DISTANCES, read, strict=False):
            at = bisect_right(self._entries, epoch, key=_EPOCH)
            if at and self._entries[at - 1][0] == epoch and self._entries[at - 1][1] < until:
                end = self._entries[at][1] if at < len(self._entries) else log_end
                # The anchor leaves out epochs behind this one, so it isn't known how many records
                # of this epoch were read, except the first.
                return min(end, until if known <= _ADJACENT_MAX else start)
            until = start
        return _NOTHING  # the epochs of the records before are not named in *read*

    @property
    def latest(self) -> Epoch:
        """The last epoch of the history; 0 if it is empty."""
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def ends(self, log_end: Offset) -> dict[Epoch, Offset]:
        """Where the records of each epoch end (exclusive) in a log that ends at *log_end*;
        epochs without records are left out."""
        stops = [start for _, start in self._entries[1:]] + [log_end]
        rows = zip(self._entries, stops, strict=False)
        return {epoch: min(stop, log_end) for (epoch, start), stop in rows if start < log_end}

    def truncate(self, end: Offset) -> bool:
        """Remove epochs that begin at or behind *end*, the end of the log; return whether there
        were any."""
        known = len(self._entries)
        while self._entries and self._entries[-1][1] >= end:
            self._entries.pop()
        self._told = 0, NO_ANCHOR
        return len(self._entries) < known

    def before(self, end: Offset) -> EpochHistory:
        """The part of the history about records before *end*."""
        return EpochHistory(self._entries[: bisect_left(self._entries, end, key=_START)])

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(self._entries))


def divergence(mine: dict[Epoch, Offset], theirs: dict[Epoch, Offset]) -> Offset:
    """The offset from which two logs differ, computed from the ends of their epochs
    (`EpochHistory.ends`).

    One leader wrote all records of an epoch, in order.  So if both logs have records of an epoch,
    the shorter stretch is a prefix of the longer one; and that leader had one log before these
    records.  So the logs agree up to the end of the shorter stretch of the newest common epoch.
    Contents are never compared.
    """
    common = mine.keys() & theirs.keys()
    if not common:
        return Offset(0)
    newest = max(common)
    return min(mine[newest], theirs[newest])
