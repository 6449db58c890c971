"""Which leader epoch wrote which stretch of a log.

A table of (epoch, offset where its records begin).  Receipts name the epoch of their
records from it, and replicas that meet again find from it where their logs part.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter
from typing import Final

import attrs

from octopi.identifiers import Epoch, Offset

_EPOCH: Final = itemgetter(0)
_START: Final = itemgetter(1)


@attrs.define
class EpochHistory:
    """The epochs of one log.

    Invariant: epochs and start offsets both grow strictly.  An epoch that wrote nothing has
    no entry, but for the last one, which may be about to write.
    """

    _entries: list[tuple[Epoch, Offset]] = attrs.field(factory=list)
    """Each epoch, and where its records begin."""

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
        self.check_invariants()
        return True

    def epoch_at(self, offset: Offset) -> Epoch:
        """The epoch that wrote the record at *offset*; 0 before the first."""
        at = bisect_right(self._entries, offset, key=_START)
        return self._entries[at - 1][0] if at else Epoch(0)

    def end_of_epoch_at(self, offset: Offset, log_end: Offset) -> Offset:
        """Where the records of the epoch that wrote the one at *offset* end (exclusive)."""
        at = bisect_right(self._entries, offset, key=_START)
        return self._entries[at][1] if at < len(self._entries) else log_end

    def epoch_before(self, offset: Offset) -> Epoch:
        """The epoch that wrote the record which ends at *offset*; 0 if that isn't known."""
        at = bisect_left(self._entries, offset, key=_START)
        return self._entries[at - 1][0] if at else Epoch(0)

    def fork(
        self, offset: Offset, epoch: Epoch, log_end: Offset, *, is_leader: bool
    ) -> Offset | None:
        """Whether this log parted from one in which a record of *epoch* ends at *offset*.

        *epoch* is none that this replica has yet to hear of.  *log_end*: where this log ends;
        as long as the replica leads, there is no more of it anywhere.

        Returns: None if the logs agree up to *offset*, as far as this history tells.  Otherwise
        the last common offset: where the records of the newest epoch end here that isn't newer
        than *epoch*.  If that epoch is *epoch* itself, this is exact: one leader wrote all of
        its records, in order.  Otherwise the other log may have had less of the older epoch,
        and nothing here can tell; whoever knows which epoch it read there asks again.
        """
        newer = bisect_right(self._entries, epoch, key=_EPOCH)
        is_over = newer < len(self._entries)
        end = self._entries[newer][1] if is_over else log_end
        if offset > end:
            return end if is_over or is_leader else None
        at = bisect_left(self._entries, offset, key=_START)
        if not at:
            return None  # there is nothing before it, or this history begins later
        found, start = self._entries[at - 1]
        # Records of an older epoch in the place of what was read: this log had more of that
        # epoch.  How much the other one had isn't known here, so go back to where it begins.
        return None if found == epoch else start

    @property
    def latest(self) -> Epoch:
        """The last epoch that is known; 0 if there was none."""
        return self._entries[-1][0] if self._entries else Epoch(0)

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
