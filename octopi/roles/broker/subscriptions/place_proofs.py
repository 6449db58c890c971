"""Finds out whether records begin at places in logs, where that takes longer than a mark may wait.

That is so where a log's index is missing or damaged: the records before the place are read then.
"""

from __future__ import annotations

from typing import Final

import trio

from octopi.errors import RefusedError, StorageError
from octopi.identifiers import Offset
from octopi.roles.broker.local_log import LocalLog

_RUNNING_MAX: Final = 16
"""Places that are looked at for the subscriptions of one partition at a time."""


class PlaceProofs:
    """Those of the subscriptions of one partition."""

    def __init__(self, tasks: trio.Nursery) -> None:
        """*tasks*: the broker's nursery."""
        self._tasks = tasks
        self._running: set[tuple[LocalLog, Offset]] = set()

    def begin(self, log: LocalLog, offset: Offset) -> None:
        """Begin to find out whether a record begins at *offset*, unless that has begun or too much
        else is being found out."""
        place = log, offset
        if place not in self._running and len(self._running) < _RUNNING_MAX:
            self._running.add(place)
            self._tasks.start_soon(self._find_out, log, offset)

    async def _find_out(self, log: LocalLog, offset: Offset) -> None:
        try:
            await log.prove(offset)  # the log remembers it
        except (StorageError, RefusedError):
            pass  # who asks again is told
        finally:
            self._running.discard((log, offset))
