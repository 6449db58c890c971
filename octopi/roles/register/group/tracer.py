"""Traces the steps of a register of several (`octopi.tracing.registers`)."""

from __future__ import annotations

from collections.abc import Sequence

from octopi.agreement.journal.replica import JournalReplica
from octopi.agreement.journal.stored import Stored, StoredAppend, StoredVote
from octopi.environment import Trace
from octopi.tracing import steps
from octopi.wire.registers import EntriesStored, ToRegister, VoteAnswer


class GroupTracer:
    """Observes the shell of one register's replica of the journal."""

    def __init__(self, trace: Trace, replica: JournalReplica) -> None:
        self._trace = trace
        self._replica = replica

    def storing(self, entries: Sequence[Stored]) -> None:
        """*entries* are appended next."""
        for one in entries:
            match one:
                case StoredVote(term, vote) if vote is not None:
                    self._trace(steps.G1Voting(term=term, candidate=vote.address))
        if not self._replica.is_active:
            ends = [one.index + 1 for one in entries if isinstance(one, StoredAppend)]
            if ends:
                self._trace(steps.G4Storing(term=self._replica.term, end=ends[-1]))

    def told(self, address: str, message: ToRegister) -> None:
        """*message*, which had to wait for the device, was sent to the register at *address*, or
        was counted, if that is this one."""
        match message:
            case VoteAnswer(term=term):
                self._trace(steps.G1Voted(term=term, candidate=address))
            case EntriesStored(term=term, end=end):
                self._trace(steps.G4Stored(term=term, end=end))

    def changed(self, might_decide: bool, was_active: bool, term: int, committed: int) -> None:
        """The replica has changed; the arguments are what it was before."""
        replica = self._replica
        if was_active and not (replica.is_active and replica.term == term):
            self._trace(steps.G6Deposed(term=term))
        if replica.is_active and not (was_active and replica.term == term):
            # Its own entry, with which the term begins, is there already.
            self._trace(steps.G2Elected(term=replica.term, end=replica.history.end - 1))
        if replica.committed > committed:
            self._trace_commit(committed)
        if replica.may_decide and not (might_decide and replica.term == term):
            self._trace(steps.G3Active(term=replica.term, end=replica.committed))

    def _trace_commit(self, start: int) -> None:
        replica, history = self._replica, self._replica.history
        snapshot = history.snapshot
        first = max(start, snapshot.end)
        self._trace(
            steps.G5Committed(
                term=replica.term,
                start=start,
                end=replica.committed,
                entries=tuple(
                    history.entries[first - snapshot.end : replica.committed - snapshot.end]
                ),
                snapshot=snapshot.contents if start < snapshot.end else (),
            )
        )

    def folding(self, end: int) -> None:
        """The entries before *end* are folded next."""
        self._trace(steps.G7Folding(term=self._replica.term, end=end))

    def folded(self, end: int) -> None:
        """The folded journal is in force."""
        self._trace(steps.G7Folded(term=self._replica.term, end=end))
