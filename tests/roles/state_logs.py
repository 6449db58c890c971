"""The logs ``~subscriptions`` of a cluster, in memory: all brokers see the same entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from octopi.errors import Status, StorageError
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.replication.effects import Answer, CommitReceipt, Refusal

Entries = dict[str, Mapping[str, Any]]


@attrs.frozen
class Loaded:
    """What was read."""

    values: Entries


class SharedStates:
    """See `octopi.roles.broker.subscriptions.ports.StateLogs`."""

    def __init__(self) -> None:
        self.entries: dict[PartitionId, Entries] = {}
        self.required: dict[PartitionId, int] = {}
        self._changed = trio.Event()
        self.is_held = False
        """Whether what is appended waits for `release`."""
        self.is_refusing = False
        self.is_damaged = False
        self.held: list[tuple[PartitionId, str, Mapping[str, Any] | None, Answer]] = []
        self.keys: list[str] = []
        """Of all that was committed, in order."""

    async def load(self, partition: PartitionId) -> Loaded:
        await trio.lowlevel.checkpoint()
        if self.is_damaged:
            raise StorageError("the entry 'k/1' can't be used")
        return Loaded(dict(self.entries.get(partition, {})))

    def append(
        self, partition: PartitionId, key: str, value: Mapping[str, Any] | None, done: Answer
    ) -> None:
        if self.is_refusing:
            done(Refusal(Status.UNCOMMITTED, "the disk is full"))
        elif self.is_held:
            self.held.append((partition, key, value, done))
        else:
            self._commit(partition, key, value, done)

    def _commit(
        self, partition: PartitionId, key: str, value: Mapping[str, Any] | None, done: Answer
    ) -> None:
        self.keys.append(key)
        entries = self.entries.setdefault(partition, {})
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
        self._changed.set()
        self._changed = trio.Event()
        done(CommitReceipt(Offset(0), Epoch(1), False))

    def release(self) -> None:
        """Commit what is held, and hold no more."""
        self.is_held, held, self.held = False, self.held, []
        for one in held:
            self._commit(*one)

    def lose(self) -> None:
        """What is held is never committed: its leader died."""
        self.is_held, self.held = False, []

    def require_in_sync(self, partition: PartitionId, count: int) -> None:
        self.required[partition] = count
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of what is stored, or of how many replicas are required."""
        with trio.fail_after(10):
            while not holds():
                await self._changed.wait()
