"""What a register decides, in order: journalled and applied at once, and told only when durable."""

from __future__ import annotations

import trio

from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import Entry
from octopi.environment import Environment
from octopi.errors import LogReadOnlyError, NotReadyError, OctopiError, StorageError
from octopi.logger import get_logger
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.journal import Journal

_log = get_logger(__name__)


class DecisionLog:
    """The decisions of one register."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        journal: Journal,
        events: EventLog,
        stop: trio.Event,
    ) -> None:
        """*stop* is set when the journal can't go on."""
        self.failure: OctopiError | None = None
        """Why the register can't go on."""
        self._environment = environment
        self._controller = controller
        self._journal = journal
        self._events = events
        self._stop = stop
        self._snapshot_lock = trio.Lock()

    @property
    def is_durable(self) -> bool:
        """Whether everything decided so far may be told."""
        return self._journal.is_flushed

    @property
    def size_bytes(self) -> int:
        """How long the journal is."""
        return self._journal.size_bytes

    def record(self, entries: list[Entry]) -> None:
        """Journal and apply, at once; `durable` must be awaited before telling.

        Raises:
          StorageError, NotReadyError: if that can't be done; then nothing was decided.
        """
        if self.failure is not None:
            raise NotReadyError("the register decides nothing any more")
        try:
            self._journal.append(entries)
        except LogReadOnlyError as error:
            self.fail(error)  # it could decide nothing any more: a restart may help
            raise
        for entry in entries:
            self._events.decided(entry, self._controller.state)
            self._controller.apply(entry)
        if (audit := self._environment.audit) is not None:
            audit(self._controller)

    async def durable(self) -> None:
        """Wait until everything decided so far may be told."""
        if self._journal.is_flushed:
            return
        try:
            await self._journal.flush()
        except StorageError as error:
            # What is on the device is unknown from here on: a register that went on could
            # contradict itself after a restart.
            self.fail(error)
            raise NotReadyError(f"the register's disk failed: {error}") from error

    def fail(self, error: OctopiError) -> None:
        """Decide nothing from here on, and stop."""
        if self.failure is None:
            self.failure = error
            self._stop.set()

    async def shorten(self) -> None:
        """Replace the journal by what it says, if that is much shorter and it isn't being done."""
        if not self._journal.wants_snapshot or self._snapshot_lock.locked():
            return
        async with self._snapshot_lock:
            try:
                await self._journal.replace(self._controller.state.entries())
            except LogReadOnlyError as error:
                self.fail(error)
            except StorageError as error:
                _log.error("the journal could not be shortened", why=str(error))
