"""The journal of the active register in one term: its entries are durable when a majority of the
registers has them."""

from __future__ import annotations

from octopi.coordination.journal_entries import Entry
from octopi.errors import LogReadOnlyError
from octopi.identifiers import Offset
from octopi.roles.register.group.group import RegisterGroup
from octopi.roles.register.register_journal import JournalTracer, decode, encode


class AgreedJournal:
    """See `octopi.roles.register.decision_log.EntryLog`.  The ends of its trace steps count
    entries, not bytes."""

    def __init__(self, group: RegisterGroup, tracer: JournalTracer | None) -> None:
        """*group*: this register is active in it, and may decide."""
        self._group = group
        self._term = group.replica.term
        self._end = group.replica.history.end
        self._tracer = tracer

    def read(self) -> list[Entry]:
        """All entries: what was decided before this term."""
        return [decode(one) for one in self._group.replica.history.contents()]

    @property
    def is_over(self) -> bool:
        """Whether this register can't decide any more in this term."""
        replica = self._group.replica
        is_active = replica.may_decide and replica.term == self._term
        return self._group.failure is not None or not is_active

    @property
    def size_bytes(self) -> int:
        return self._group.size_bytes

    @property
    def is_flushed(self) -> bool:
        return self._group.replica.committed >= self._end and not self.is_over

    @property
    def wants_snapshot(self) -> bool:
        return self._group.wants_snapshot

    def append(self, entries: list[Entry]) -> None:
        if not entries:
            return
        if self.is_over:
            raise LogReadOnlyError("this register is not the active one any more")
        if (tracer := self._tracer) is not None:
            tracer.appending(entries)
        self._group.propose([encode(one) for one in entries], self._term)
        self._end = self._group.replica.history.end
        if tracer is not None:
            tracer.appended(entries)

    async def flush(self) -> None:
        end = self._end
        if (tracer := self._tracer) is not None:
            tracer.flushing(Offset(end))
        while not self.is_over and self._group.replica.committed < end:
            await self._group.changed()
        if self.is_over:
            raise LogReadOnlyError("this register is not the active one any more")
        if tracer is not None:
            tracer.flushed(Offset(end))

    async def replace(self, entries: list[Entry]) -> None:
        end, contents = self._group.replica.history.end, [encode(one) for one in entries]
        self._end = end
        await self.flush()
        await self._group.shorten(end, contents)
