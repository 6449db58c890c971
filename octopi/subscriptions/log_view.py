"""What the machines of subscriptions ask about a log of a topic, at its leader."""

from __future__ import annotations

from typing import Protocol

from octopi.identifiers import Offset
from octopi.position import Anchor


class LogView(Protocol):
    """A log of a topic, as its leader sees it at this moment.  Answering costs no I/O."""

    @property
    def start(self) -> Offset:
        """The oldest record that retention has left."""

    @property
    def highwater(self) -> Offset:
        """What is committed ends here."""

    @property
    def end(self) -> Offset:
        """The log ends here."""

    def held_bytes(self, begin: Offset) -> int:
        """How much from *begin* on retention keeps for subscriptions alone."""

    def has_place(self, offset: Offset) -> bool:
        """Whether a record begins at *offset*, from `start` to `end`, or the log ends there.

        Raises:
          NeedsTimeError: if that is not known without I/O: ask again.
        """

    def anchor_before(self, offset: Offset) -> Anchor:
        """The anchor of the place at *offset*; empty if what ends there isn't known."""

    def fork(self, offset: Offset, anchor: Anchor) -> Offset | None:
        """None if the log agrees up to *offset* with one that has *anchor* there, as far as is
        known; else the last offset up to which they agree."""
