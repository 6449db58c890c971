"""What a replica knows of one of its logs, in any role.

The shell has the bytes; the machines need only what is here.
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
    """The end of the log in the page cache (exclusive)."""
    highwater: Offset
    """Records before it are known to be committed."""
    flushed_end: Offset
    """Records before it are on the device."""
    start: Offset = _BEGINNING
    """The offset of the oldest record that is kept."""
    epochs: EpochHistory = attrs.field(factory=EpochHistory)
    sequences: ProducerSequences = attrs.field(factory=ProducerSequences)
    flush_before_ack: bool = False
    """Whether a record counts as held only when it is on the device."""
    min_insync: int = 1
    """Nothing is committed while fewer replicas than this are in sync."""
    sound: bool = True
    """Whether the files hold what was noted to be on the device.  If not, the log ends where the
    damage begins, and takes no records until the damaged part was set aside."""
    held_end: Offset = _BEGINNING
    """The end, or the highwater mark, that was noted for this log before it was opened; 0: not
    known.  Records between the log's end and this are lost here."""
    generation: int = 0
    """The generation of its topic that is in force, by the topic's record; 0: the topic has only
    ever had one."""
    cancelled: frozenset[int] = frozenset()
    """The generations that were cancelled, by the topic's record."""
    refusal: str = ""
    """Why this replica doesn't follow the leader with this log; empty if it does, or can."""

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
        """Records before *end* are on the device."""
        self.flushed_end = max(self.flushed_end, min(end, self.end))

    def accept_loss(self, end: Offset) -> None:
        """Move the highwater mark back to *end*: an operator has accepted the loss of the records
        behind it."""
        self.highwater = min(self.highwater, end)

    def damage_set_aside(self, start: Offset, end: Offset) -> None:
        """The damaged part was moved out of the log, which goes from *start* to *end* now."""
        self.start, self.end = start, end
        self.highwater = max(start, min(self.highwater, end))
        self.flushed_end = min(self.flushed_end, end)
        self.epochs.truncate(end)
        self.sequences = self.sequences.before(end)
        self.sound = True

    def truncate(self, end: Offset) -> None:
        """The log is cut, and ends at *end* now."""
        assert self.highwater <= end <= self.end, "what is committed is never cut"
        self.end = end
        self.held_end = min(self.held_end, end)
        self.flushed_end = min(self.flushed_end, end)
        self.epochs.truncate(end)

    def past(self, offset: Offset) -> PriorState:
        """What this log knows about records before *offset*: their epochs and producers."""
        return PriorState(self.epochs.before(offset), self.sequences.before(offset))

    def restart(self, start: Offset, past: PriorState) -> None:
        """All records are dropped; the log continues at *start*, with *past* about the records
        before."""
        assert start >= self.end or self.start == self.end, "what is committed is never dropped"
        self.start = self.highwater = self.end = self.flushed_end = start
        self.epochs, self.sequences = past.epochs, past.sequences

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert self.start <= self.highwater <= self.end
        assert self.flushed_end <= self.end
        self.epochs.check_invariants()
        self.sequences.check_invariants()
