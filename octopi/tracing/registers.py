"""The steps of several registers that keep one journal: votes, terms, entries, what is committed.

An index counts entries of the journal from the first one of all.
"""

from __future__ import annotations

from octopi.tracing.step import Step, part, step
from octopi.wire.registers import JournalEntry


@part
class TermStep(Step):
    """A step in a term."""

    term: int


@part
class VoteStep(TermStep):
    """A step about this register's vote, which it gives to the register at an address."""

    candidate: str


@part
class EntriesEndStep(TermStep):
    """A step about entries of the journal before an index."""

    end: int


@step("G1a register votes in a term")
class G1Voting(VoteStep):
    pass


@step("G1b register told its vote, or counted it")
class G1Voted(VoteStep):
    pass


@step("G2 register is elected")
class G2Elected(EntriesEndStep):
    pass


@step("G3 register is active, because an entry of its term is committed")
class G3Active(EntriesEndStep):
    pass


@step("G4a register stores entries for the active one")
class G4Storing(EntriesEndStep):
    pass


@step("G4b register acknowledged entries to the active one, or counted its own")
class G4Stored(EntriesEndStep):
    pass


@step("G5 register knows that entries are committed")
class G5Committed(TermStep):
    start: int
    end: int
    entries: tuple[JournalEntry, ...]
    """Those before *end*, as far as they are not folded."""
    snapshot: tuple[bytes, ...]
    """The contents that the entries before them are folded into; empty if *entries* begin at
    *start*."""


@step("G6 register is not the active one any more")
class G6Deposed(TermStep):
    pass


@step("G7a register folds its journal")
class G7Folding(EntriesEndStep):
    pass


@step("G7b register's folded journal is in force")
class G7Folded(EntriesEndStep):
    pass
