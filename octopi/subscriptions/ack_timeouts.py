"""When the leader of a queue gives up waiting for the answers to its deliveries."""

from __future__ import annotations

from collections import deque
from typing import Final

from octopi.subscriptions.queued_messages import MessageState, QueuedMessage

_OUTDATED_COUNT: Final = 1_000
"""How many entries that don't count any more are kept, beside as many as there are others."""


class AckTimeouts:
    """Those of the open messages of one queue, all with the same ack timeout."""

    def __init__(self) -> None:
        self._entries: deque[tuple[float, int, QueuedMessage]] = deque()
        """Open messages with (time, attempt), in the order of the times; those of which time or
        attempt is another one by now don't count."""

    def expect(self, one: QueuedMessage, until: float, open_count: int) -> None:
        """Wait until *until* for the answer to a message that is open, one of *open_count*."""
        one.until = until
        self._entries.append((until, one.attempt, one))
        if len(self._entries) > 2 * open_count + _OUTDATED_COUNT:
            self._entries = deque(entry for entry in self._entries if _counts(entry))

    @property
    def next_at(self) -> float | None:
        """When the next open message is given up waiting for; None: none is open."""
        while self._entries and not _counts(self._entries[0]):
            self._entries.popleft()
        return self._entries[0][0] if self._entries else None

    def pop(self) -> QueuedMessage:
        """Take the message of `next_at`."""
        return self._entries.popleft()[2]


def _counts(entry: tuple[float, int, QueuedMessage]) -> bool:
    at, attempt, one = entry
    return one.state is MessageState.OPEN and (one.until, one.attempt) == (at, attempt)
