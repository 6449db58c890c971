"""A controller with the habit of its shell: what it decides is journaled, then applied."""

from __future__ import annotations

from octopi.coordination.controller import Controller
from octopi.coordination.decisions import Decision
from octopi.coordination.journal_entries import Entry


class JournaledController:
    """*controller*, and a journal in memory that all of its decisions go to."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.journal: list[Entry] = []

    def persist(self, decision: Decision | None) -> None:
        """Journal and apply *decision*; there has to be one."""
        assert decision is not None
        self.record(decision.entries)

    def record(self, entries: list[Entry]) -> None:
        """Journal and apply *entries*, as they are read at a start."""
        self.journal += entries
        for entry in entries:
            self.controller.apply(entry)
        self.controller.check_invariants()
