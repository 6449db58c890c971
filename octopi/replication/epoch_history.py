"""Which leader epoch wrote which stretch of a log.

A table of (epoch, offset where its records begin).  Receipts name the epoch of their
records from it, and replicas that meet again find from it where their logs part.
"""

from __future__ import annotations

from bisect import bisect_right

import attrs

from octopi.identifiers import Epoch, Offset


@attrs.define
class EpochHistory:
    """The epochs of one log.

    Invariant: epochs and start offsets both grow strictly; an epoch that wrote nothing
    has no entry.
    """

    _epochs: list[Epoch] = attrs.field(factory=list)
    _starts: list[Offset] = attrs.field(factory=list)

    @classmethod
    def load(cls, entries: list[list[int]]) -> EpochHistory:
        """From what `dump` returned."""
        history = cls()
        for epoch, start in entries:
            history.begin(Epoch(epoch), Offset(start))
        return history

    def dump(self) -> list[list[int]]:
        """``[epoch, start offset]`` in order: plain values for a checkpoint file."""
        return [[epoch, start] for epoch, start in zip(self._epochs, self._starts, strict=True)]

    def begin(self, epoch: Epoch, start: Offset) -> None:
        """Note that records of *epoch* begin at *start*.

        An epoch that began at the same place and wrote nothing is replaced.
        """
        if self._epochs and self._epochs[-1] == epoch:
            return
        assert not self._epochs or epoch > self._epochs[-1], "epochs only grow"
        if self._starts and self._starts[-1] == start:
            self._epochs[-1] = epoch
            return
        self._epochs.append(epoch)
        self._starts.append(start)
        self.check_invariants()

    def epoch_at(self, offset: Offset) -> Epoch:
        """The epoch that wrote the record at *offset*; 0 before the first."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else Epoch(0)

    @property
    def latest(self) -> Epoch:
        """The last epoch that is known; 0 if there was none."""
        return self._epochs[-1] if self._epochs else Epoch(0)

    def truncate(self, end: Offset) -> None:
        """Forget epochs that begin at or behind *end*, the new end of the log."""
        while self._starts and self._starts[-1] >= end:
            self._starts.pop()
            self._epochs.pop()

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert len(self._epochs) == len(self._starts)
        assert all(a < b for a, b in zip(self._epochs, self._epochs[1:], strict=False))
        assert all(a < b for a, b in zip(self._starts, self._starts[1:], strict=False))
