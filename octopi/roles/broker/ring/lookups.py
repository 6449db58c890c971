"""The look-ups that somebody on this broker waits for."""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.errors import NotReadyError
from octopi.ring.lookup import HolderFound, LookupOutcome


class AwaitedLookups:
    """Look-ups by number, each until its outcome was taken."""

    def __init__(self) -> None:
        self._outcomes: dict[int, LookupOutcome | None] = {}
        self._concluded = trio.Event()
        self._last = 0

    async def look_up(self, begin: Callable[[int], None]) -> HolderFound:
        """Call *begin* with the number of a new look-up, and wait for its outcome.

        Raises:
          NotReadyError: if the holder is not found.
        """
        number = self._last = self._last + 1
        self._outcomes[number] = None
        try:
            begin(number)
            while (outcome := self._outcomes[number]) is None:
                await self._concluded.wait()
        finally:
            del self._outcomes[number]
        if isinstance(outcome, HolderFound):
            return outcome
        raise NotReadyError(f"the holder is not found: {outcome.why}")

    def conclude(self, number: int, outcome: LookupOutcome) -> None:
        """A look-up has this outcome."""
        if number in self._outcomes:  # whoever asked may have been cancelled
            self._outcomes[number] = outcome
        self._concluded.set()
        self._concluded = trio.Event()
