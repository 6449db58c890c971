"""The register's journal, and the steps that are traced of it."""

from __future__ import annotations

from typing import Final

from octopi.coordination.journal_entries import Entry
from octopi.environment import Environment, Trace
from octopi.identifiers import Offset
from octopi.limits import BATCH_BYTES_MAX, JOURNAL_SNAPSHOT_ENTRIES
from octopi.roles.register_entries import decode as decode, encode as encode
from octopi.storage.journal import Journal, JournalFormat
from octopi.tracing import steps

REGISTER_ENTRIES: Final = JournalFormat(
    encode,
    decode,
    entry_bytes_max=BATCH_BYTES_MAX // 1000,
    owner="the register",
    if_unknown="put it back from a copy, or move that directory away, and the register learns from "
    "its brokers",
)


class JournalTracer:
    """Traces what the register's journal does."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def appending(self, entries: list[Entry]) -> None:
        self._trace(steps.R2Appending(entries=entries))

    def appended(self, entries: list[Entry]) -> None:
        self._trace(steps.R2Appended(entries=entries))

    def flushing(self, end: Offset) -> None:
        self._trace(steps.R3Flushing(log_end=end))

    def flushed(self, end: Offset) -> None:
        self._trace(steps.R3Flushed(log_end=end))

    def replacing(self, entries: list[Entry]) -> None:
        self._trace(steps.R4Snapshot(entries=entries))

    def switched(self) -> None:
        self._trace(steps.R4Switched())

    def replaced(self) -> None:
        self._trace(steps.R4Replaced())


async def open_register_journal(
    environment: Environment,
    directory: str,
    *,
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES,
) -> tuple[Journal[Entry], list[Entry]]:
    """Open or begin the register's journal in *directory*, which exists: see `Journal.open`."""
    trace = environment.trace
    return await Journal.open(
        environment,
        directory,
        REGISTER_ENTRIES,
        snapshot_entries=snapshot_entries,
        observer=JournalTracer(trace) if trace is not None else None,
    )
