"""What the active register knows of each register, itself among them."""

from __future__ import annotations

from typing import TypeAlias

from octopi.agreement.journal.history import JournalHistory
from octopi.limits import REPLICATED_WINDOW_ENTRIES
from octopi.wire.registers import (
    ActiveHeard,
    EntriesMissed,
    EntriesSent,
    EntriesStored,
    RegisterId,
    SnapshotSent,
    SnapshotTaken,
)

Progress: TypeAlias = ActiveHeard | EntriesStored | EntriesMissed | SnapshotTaken
"""What registers say to the active one."""


class StandbyProgress:
    """What the active register knows of the register at one address."""

    def __init__(self, end: int, now: float) -> None:
        """*end*: that of the active register's journal."""
        self.identity: RegisterId | None = None
        """Who is there; None: it has not answered in this term."""
        self.next = end
        """The index of the next entry to send."""
        self.heard_at = now
        """When the last message was sent that it has answered."""
        self.registers: tuple[str, ...] = ()
        """The addresses in its list; empty: it has not said yet."""
        self._stored = 0
        """The index before which it has everything on its device, and the same."""
        self._snapshot = (0, 0)
        """The end of the snapshot that it is being sent, and how many contents it has."""
        self._awaits = False
        """Whether the next page of the snapshot is on its way."""

    @property
    def has_room(self) -> bool:
        """Whether more entries may be sent."""
        return self.next - self._stored < REPLICATED_WINDOW_ENTRIES

    def stored_by(self, register: RegisterId) -> int:
        """The index before which *register* has everything."""
        return self._stored if register == self.identity else 0

    def next_content(self, end: int, *, again: bool) -> int | None:
        """The number of the first content to send next of the snapshot with that *end*; None: one
        is on its way, and needs not be sent *again* yet."""
        if self._snapshot[0] != end:
            self._snapshot, self._awaits = (end, 0), False
        if self._awaits and not again:
            return None
        self._awaits = True
        return self._snapshot[1]

    def messages(
        self,
        sender: RegisterId,
        term: int,
        history: JournalHistory,
        committed: int,
        sent_ms: int,
        *,
        beats: bool,
    ) -> list[SnapshotSent | EntriesSent]:
        """What to send it next of *history*; *beats*: something in any case."""
        if self.next < history.snapshot.end:
            snapshot = history.snapshot
            first = self.next_content(snapshot.end, again=beats)
            if first is None:
                return []
            page, count = history.contents_page(first), len(snapshot.contents)
            before = (sender, term, snapshot.end, snapshot.term, snapshot.voters)
            return [SnapshotSent(*before, first, count, page, sent_ms)]
        messages: list[SnapshotSent | EntriesSent] = []
        while beats or (self.next < history.end and self.has_room):
            entries = history.page(self.next) if self.has_room else ()
            term_before = history.term_before(self.next)
            messages.append(
                EntriesSent(sender, term, self.next, term_before, entries, committed, sent_ms)
            )
            self.next += len(entries)
            beats = False
        return messages

    def heard(self, message: Progress, end: int) -> None:
        """Note *message* of this register.  *end*: of the active register's journal."""
        if message.sender != self.identity:
            self.identity, self._stored = message.sender, 0
        match message:
            case ActiveHeard(sent_ms=sent_ms, registers=registers):
                self.heard_at = max(self.heard_at, sent_ms / 1000)
                self.registers = registers
            case EntriesStored(end=stored):
                self._stored = max(self._stored, stored)
                self.next = max(self.next, stored)
            case EntriesMissed(end=at):
                self.next = max(self._stored, min(at, end))
            case SnapshotTaken(end=of, count=count):
                if of == self._snapshot[0]:
                    self._snapshot, self._awaits = (of, count), False
