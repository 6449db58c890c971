"""Which states are appended to the log ``~subscriptions`` and not committed yet."""

from __future__ import annotations

from collections import deque

import attrs

from octopi.subscriptions.effects import AppendState, Effect
from octopi.subscriptions.entries import Entry, to_map


@attrs.define
class _PendingState:
    """One state that was appended."""

    entry: Entry | None
    waiting: list[Effect] = attrs.field(factory=list)
    """What is to be told when it is committed."""


class PendingStates:
    """Those of one partition, each key's in their order."""

    def __init__(self) -> None:
        self._pending: dict[str, deque[_PendingState]] = {}

    def append(self, key: str, entry: Entry | None, *then: Effect) -> AppendState:
        """The effect that appends *entry*, or removes the key, and performs *then*."""
        self._pending.setdefault(key, deque()).append(_PendingState(entry))
        return AppendState(key, None if entry is None else to_map(entry), then)

    def has(self, key: str) -> bool:
        """Whether a state of *key* is not committed."""
        return key in self._pending

    def when_committed(self, key: str, *answers: Effect) -> list[Effect]:
        """*answers* at once, if all states of *key* are committed; else later."""
        if (states := self._pending.get(key)) is None:
            return list(answers)
        states[-1].waiting += answers
        return []

    def committed(self, key: str) -> tuple[Entry | None, list[Effect]]:
        """The oldest state of *key* is committed: its entry, and what waited for it."""
        states = self._pending[key]
        state = states.popleft()
        if not states:
            del self._pending[key]
        return state.entry, state.waiting
