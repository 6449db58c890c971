"""A register's decisions in order: persisted and applied at once, told only when durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from octopi.coordination.controller import Controller
from octopi.coordination.decisions import Decision
from octopi.coordination.journal_entries import Entry
from octopi.environment import Environment
from octopi.errors import LogReadOnlyError, NotReadyError, OctopiError, Status, StorageError
from octopi.logger import get_logger
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.register_tracer import RegisterTracer

_log = get_logger(__name__)

DecisionT = TypeVar("DecisionT", bound=Decision)


class EntryLog(Protocol):
    """Where the entries of decisions are kept: the journal of one register
    (`octopi.roles.register.register_journal`).  If several registers agree on each entry, an entry
    is durable once they have agreed, and `append` fails with a `LogReadOnlyError` on a register
    that may not decide.
    """

    @property
    def size_bytes(self) -> int:
        """How long it is."""

    @property
    def is_flushed(self) -> bool:
        """Whether everything appended is durable."""

    def append(self, entries: list[Entry]) -> None:
        """Append *entries*, all or none.

        Raises:
          LogReadOnlyError: if nothing can be appended any more.
          StorageError, NotReadyError: if nothing can be appended now.
        """

    async def flush(self) -> None:
        """Wait until everything appended so far is durable.

        Raises:
          StorageError: if it is unknown which entries are durable; nothing more can be appended.
        """

    @property
    def wants_snapshot(self) -> bool:
        """Whether a snapshot of the state would be much shorter than the log."""

    async def replace(self, entries: list[Entry]) -> None:
        """Replace the log with *entries*, a snapshot of the state.

        Raises:
          LogReadOnlyError: if it is unknown what a restart would read.
          StorageError: if that fails; then the log is unchanged.
        """


class DecisionLog:
    """The decisions of one register.

    A decision is carried out in two steps.  `persist` takes effect at once, so the next decision is
    based on it.  After `durable` the decision may be told.  Decisions that are persisted together
    share a flush.
    """

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        entries: EntryLog,
        events: EventLog,
        tracer: RegisterTracer,
        stop: trio.Event,
    ) -> None:
        """*stop* is set when nothing can be written to *entries* any more."""
        self.failure: OctopiError | None = None
        """Why the register can't go on."""
        self._environment = environment
        self._controller = controller
        self._entries = entries
        self._events = events
        self._tracer = tracer
        self._stop = stop
        self._snapshot_lock = trio.Lock()

    @property
    def is_durable(self) -> bool:
        """Whether everything decided so far may be told."""
        return self._entries.is_flushed

    @property
    def size_bytes(self) -> int:
        """How long the journal is."""
        return self._entries.size_bytes

    def persist(self, *decisions: Decision) -> None:
        """Append the entries of *decisions*, all or none, and apply them, at once; `durable` must
        be awaited before they are told.

        Raises:
          StorageError, NotReadyError: if they can't be appended; then nothing was decided.
        """
        for decision in decisions:
            self._tracer.deciding(decision)
        if self.failure is not None:
            raise NotReadyError("the register decides nothing any more")
        if self._controller.state.handed_over is not None:
            raise NotReadyError("the register has handed its cluster over, and decides nothing")
        entries = [entry for decision in decisions for entry in decision.entries]
        try:
            self._entries.append(entries)
        except LogReadOnlyError as error:
            self.fail(error)  # it can't decide anything any more; a restart may help
            raise
        for entry in entries:
            self._events.decided(entry, self._controller.state)
            self._controller.apply(entry)
        if (audit := self._environment.audit) is not None:
            audit(self._controller)

    async def durable(
        self, *decisions: DecisionT, tell: Callable[[DecisionT], None] = lambda decision: None
    ) -> None:
        """Wait until everything decided so far may be told, then *tell* each of *decisions*, in
        order; observers hear of each just before.

        Raises:
          NotReadyError: with ANSWER_LOST, if the decisions can't be made durable, so that it is
              unknown whether they are decided; the register stops.
        """
        if not self._entries.is_flushed:
            try:
                await self._entries.flush()
            except StorageError as error:
                # From here on it is unknown what is on the device, or what the registers agree on:
                # if the register continued, it could contradict itself after a restart.
                self.fail(error)
                raise NotReadyError(
                    f"it is unknown whether that is decided: {error}", Status.ANSWER_LOST
                ) from error
        for decision in decisions:
            self._tracer.durable(decision)
            tell(decision)

    async def carry_out(self, decision: Decision) -> None:
        """Persist a decision, and wait until it may be told.

        Raises:
          StorageError, NotReadyError: see `persist` and `durable`.
        """
        self.persist(decision)
        await self.durable(decision)

    def fail(self, error: OctopiError) -> None:
        """Stop the register; it decides nothing any more."""
        if self.failure is None:
            self.failure = error
            self._stop.set()

    async def shorten(self) -> None:
        """Replace the journal by a snapshot if that is much shorter and no replacement is under
        way."""
        if not self._entries.wants_snapshot or self._snapshot_lock.locked():
            return
        async with self._snapshot_lock:
            try:
                await self._entries.replace(self._controller.state.entries())
            except LogReadOnlyError as error:
                self.fail(error)
            except StorageError as error:
                _log.error("the journal could not be shortened", why=str(error))
