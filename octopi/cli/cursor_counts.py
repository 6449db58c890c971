"""Which positions of the shared cursors of `demo --relay` came, are missing, and came twice.

Whoever has a cursor numbers its positions from 0.  The page counts in the same way
(`octopi/console/static/console/cursor_counts.js`).
"""

from __future__ import annotations

import json
from typing import Final

import attrs

from octopi.cli.rendering import counted

WHO_CHARACTERS_MAX: Final = 40
NUMBER_MAX: Final = 2**53 - 1


@attrs.frozen
class CursorPosition:
    """One position of one cursor."""

    who: str
    number: int
    x: float
    """From the left, 0 to 1."""
    y: float
    """From the top, 0 to 1."""

    def encode(self) -> bytes:
        """As JSON, as the page has it."""
        return json.dumps(attrs.asdict(self)).encode()


def whose(value: bytes) -> tuple[str, int] | None:
    """Who sent a message with this *value*, and its number; None if it is no position of a
    cursor."""
    try:
        found = json.loads(value)
        who, number = found["who"], found["number"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(who, str) or not 0 < len(who) <= WHO_CHARACTERS_MAX:
        return None
    if type(number) is not int or not 0 <= number <= NUMBER_MAX:
        return None
    return who, number


class CursorCounts:
    """The counts of one reader of all cursors."""

    def __init__(self) -> None:
        self.read = 0
        self.missing = 0
        self.twice = 0
        self._next: dict[str, int] = {}

    def take(self, who: str, number: int) -> None:
        """The position *number* of *who* came.  The first one of somebody is where counting
        begins."""
        wanted = self._next.get(who, number)
        self.read += 1
        if number < wanted:
            self.twice += 1
            return
        self.missing += number - wanted
        self._next[who] = number + 1

    def taken(self, who: str) -> int:
        """The number of the next position of *who*; 0 if none came."""
        return self._next.get(who, 0)

    def __str__(self) -> str:
        read, cursors = counted(self.read, "position"), counted(len(self._next), "cursor")
        return f"{read} of {cursors}, {self.missing:,} missing, {self.twice:,} twice"
