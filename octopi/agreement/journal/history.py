"""The entries of a replicated journal, the older ones folded into a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from octopi.limits import REPLICATED_PAGE_BYTES
from octopi.wire.registers import JournalEntry, Voters

_ENTRY_BYTES: Final = 100
"""What an entry takes beside its content, at most (bytes), but for voters."""


@attrs.frozen
class JournalSnapshot:
    """What all entries before an index lead to."""

    end: int = 0
    """The index."""
    term: int = 0
    """The term of the last of these entries; 0: there is none."""
    voters: Voters = ()
    contents: tuple[bytes, ...] = ()
    """Contents of entries that lead to the same state."""


class JournalHistory:
    """The entries of a journal in memory.  An index counts entries from the first one of all, and
    ends are exclusive."""

    def __init__(self, snapshot: JournalSnapshot | None = None) -> None:
        self.snapshot = snapshot or JournalSnapshot()
        self.entries: list[JournalEntry] = []
        """Those behind the snapshot."""
        self._changes: list[tuple[int, Voters]] = [(self.snapshot.end, self.snapshot.voters)]
        """The voters in force, each with the index behind the entry that says so."""

    def copy(self) -> JournalHistory:
        """A history that changes by itself."""
        one = JournalHistory(self.snapshot)
        one.entries, one._changes = self.entries.copy(), self._changes.copy()
        return one

    @property
    def end(self) -> int:
        """The index behind the last entry."""
        return self.snapshot.end + len(self.entries)

    @property
    def end_term(self) -> int:
        """The term of the last entry; 0: there is none."""
        return self.entries[-1].term if self.entries else self.snapshot.term

    def term_before(self, index: int) -> int:
        """The term of the entry before *index*, which is not before the snapshot's end."""
        at = index - self.snapshot.end
        assert at >= 0
        return self.entries[at - 1].term if at else self.snapshot.term

    def term_start(self, index: int) -> int:
        """The index at which the run of entries of one term begins that ends before *index*; the
        snapshot's end, if it began before."""
        term, at = self.term_before(index), index
        while at > self.snapshot.end and self.term_before(at) == term:
            at -= 1
        return at

    @property
    def voters(self) -> Voters:
        """Those in force: by the last entry that changes them, committed or not."""
        return self._changes[-1][1]

    @property
    def voters_before(self) -> Voters:
        """Those in force before the last entry that changes them; the same, if that is folded."""
        return self._changes[max(0, len(self._changes) - 2)][1]

    @property
    def voters_end(self) -> int:
        """The index behind the last entry that changes the voters, or the snapshot's end."""
        return self._changes[-1][0]

    def voters_at(self, index: int) -> Voters:
        """Those in force behind the entries before *index*."""
        return next(voters for end, voters in reversed(self._changes) if end <= index)

    def page(self, index: int) -> tuple[JournalEntry, ...]:
        """Entries from *index* on, as many as one message takes."""
        page: list[JournalEntry] = []
        size = 0
        for at in range(index - self.snapshot.end, len(self.entries)):
            size += len(self.entries[at].content) + _ENTRY_BYTES
            if page and size > REPLICATED_PAGE_BYTES:
                break
            page.append(self.entries[at])
        return tuple(page)

    def contents_page(self, first: int) -> tuple[bytes, ...]:
        """Contents of the snapshot from *first* on, as many as one message takes."""
        page: list[bytes] = []
        size = 0
        for content in self.snapshot.contents[first:]:
            size += len(content) + _ENTRY_BYTES
            if page and size > REPLICATED_PAGE_BYTES:
                break
            page.append(content)
        return tuple(page)

    def put(self, index: int, entry: JournalEntry) -> None:
        """Put *entry* at *index*, in place of all that was there and behind it."""
        at = index - self.snapshot.end
        assert 0 <= at <= len(self.entries), "a journal has no gap"
        del self.entries[at:]
        self.entries.append(entry)
        while self._changes[-1][0] > index:
            self._changes.pop()
        if entry.voters:
            self._changes.append((index + 1, entry.voters))

    def shortened(self, end: int, contents: Sequence[bytes]) -> JournalHistory:
        """The same with *contents* instead of all entries before *end*."""
        assert self.snapshot.end <= end <= self.end
        one = JournalHistory(
            JournalSnapshot(end, self.term_before(end), self.voters_at(end), tuple(contents))
        )
        one.entries = self.entries[end - self.snapshot.end :]
        one._changes += [change for change in self._changes if change[0] > end]
        return one

    def contents(self, end: int | None = None) -> Iterator[bytes]:
        """The contents of all entries before *end*, which lead to the state there."""
        yield from self.snapshot.contents
        last = self.end if end is None else end
        for entry in self.entries[: last - self.snapshot.end]:
            if entry.content:
                yield entry.content
