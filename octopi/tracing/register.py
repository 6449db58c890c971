"""The steps of the register's journal, and of its connections with brokers."""

from __future__ import annotations

from collections.abc import Sequence

from octopi.coordination.journal_entries import Entry
from octopi.identifiers import Offset
from octopi.tracing.common import MemberStep
from octopi.tracing.step import Step, part, step


@part
class EntriesStep(Step):
    """A step about entries of the journal."""

    entries: Sequence[Entry]


@part
class JournalFlushStep(Step):
    """A step about a flush of the journal."""

    log_end: Offset


@step("R1 register read its journal")
class R1Read(EntriesStep):
    pass


@step("R2a register appends to its journal")
class R2Appending(EntriesStep):
    pass


@step("R2b register appended to its journal")
class R2Appended(EntriesStep):
    pass


@step("R3a register flushes its journal")
class R3Flushing(JournalFlushStep):
    pass


@step("R3b register flushed its journal")
class R3Flushed(JournalFlushStep):
    pass


@step("R4a register begins a fresh journal with its whole state")
class R4Snapshot(EntriesStep):
    pass


@step("R4b register's fresh journal is in force")
class R4Switched(Step):
    pass


@step("R4c register removed the old journal")
class R4Replaced(Step):
    pass


@step("R5 register has listened long enough to decide")
class R5Gathered(Step):
    cluster: str


@step("R6 register lost a broker")
class R6Lost(MemberStep):
    pass


@step("R7 register's connection with a broker broke")
class R7Broken(MemberStep):
    pass


@step("R8 register has a new connection with a broker that was there all the time")
class R8Restored(MemberStep):
    pass
