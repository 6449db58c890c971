"""What a replica knows of one of its logs, whatever its role.

The bytes are the shell's; this is all that the machines need to know of them.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.identifiers import Offset
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.prior_state import PriorState
from octopi.replication.producer_sequences import ProducerSequences

_BEGINNING: Final = Offset(0)


@attrs.define
class LogState:
    """One log on one broker.

    Invariant: ``start <= highwater <= end`` and ``flushed_end <= end``.
    """

    end: Offset
    """End of the log in the page cache (exclusive)."""
    highwater: Offset
    """Known to be committed below this."""
    flushed_end: Offset
    """On the device below this."""
    start: Offset = _BEGINNING
    """The oldest record that retention has left."""
    epochs: EpochHistory = attrs.field(factory=EpochHistory)
    sequences: ProducerSequences = attrs.field(factory=ProducerSequences)
    flush_before_ack: bool = False
    """Whether a record counts only when it is on the device."""
    min_insync: int = 1
    """Nothing is committed while fewer replicas than this are in sync."""
    sound: bool = True
    """Whether the files hold what was noted to be on the device.  If not, the log ends where they
    stop being sound, and takes nothing until what is behind is set aside."""
    held_end: Offset = _BEGINNING
    """Where this log is known to have ended, or to have been committed, when it was opened; 0: not
    known.  What lies between its end and this is lost here."""
    refusal: str = ""
    """Why this replica doesn't follow the leader with this log; empty if it does, or may."""

    @classmethod
    def empty(cls, *, flush_before_ack: bool = False, min_insync: int = 1) -> LogState:
        """A log without records."""
        return cls(
            _BEGINNING,
            _BEGINNING,
            _BEGINNING,
            flush_before_ack=flush_before_ack,
            min_insync=min_insync,
        )

    def flushed(self, end: Offset) -> None:
        """The device has everything below *end*."""
        self.flushed_end = max(self.flushed_end, min(end, self.end))

    def accept_loss(self, end: Offset) -> None:
        """What was committed from *end* on is given up, by an operator's order."""
        self.highwater = min(self.highwater, end)

    def damage_set_aside(self, start: Offset, end: Offset) -> None:
        """What wasn't sound was taken out of the log, which goes from *start* to *end* now."""
        self.start, self.end = start, end
        self.highwater = max(start, min(self.highwater, end))
        self.flushed_end = min(self.flushed_end, end)
        self.epochs.truncate(end)
        self.sequences = self.sequences.before(end)
        self.sound = True

    def truncate(self, end: Offset) -> None:
        """The log ends at *end* now."""
        assert self.highwater <= end <= self.end, "what is committed is never cut"
        self.end = end
        self.held_end = min(self.held_end, end)
        self.flushed_end = min(self.flushed_end, end)
        self.epochs.truncate(end)

    def past(self, offset: Offset) -> PriorState:
        """What this log knows of its records before *offset*."""
        return PriorState(self.epochs.before(offset), self.sequences.before(offset))

    def restart(self, start: Offset, past: PriorState) -> None:
        """Every record is gone; the log begins again at *start*."""
        assert start >= self.end or self.start == self.end, "what is committed is never dropped"
        self.start = self.highwater = self.end = self.flushed_end = start
        self.epochs, self.sequences = past.epochs, past.sequences

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.start <= self.highwater <= self.end
        assert self.flushed_end <= self.end
        self.epochs.check_invariants()
        self.sequences.check_invariants()
