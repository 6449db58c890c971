"""Puts the pages of a snapshot together that a standby is sent."""

from __future__ import annotations

from octopi.agreement.journal.history import JournalSnapshot
from octopi.wire.registers import SnapshotSent


class SnapshotPages:
    """The pages that have come of one snapshot, of one active register."""

    def __init__(self) -> None:
        self._of = (0, 0)
        """The term of the sender and the end of the snapshot."""
        self._contents: tuple[bytes, ...] = ()

    @property
    def count(self) -> int:
        """How many contents have come."""
        return len(self._contents)

    def add(self, page: SnapshotSent) -> JournalSnapshot | None:
        """The whole snapshot, if *page* was the last one."""
        if page.first == 0 or self._of != (page.term, page.end):
            self._of, self._contents = (page.term, page.end), ()
        if page.first == len(self._contents):
            self._contents += page.contents
        if len(self._contents) < page.count:
            return None
        whole = JournalSnapshot(page.end, page.end_term, page.voters, self._contents)
        self._contents = ()
        return whole
