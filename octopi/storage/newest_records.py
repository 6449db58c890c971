"""The newest records of the logs of one node, kept in memory as the bytes that were appended.

Followers and readers at the tail of a log want what was just appended.  They get it from here,
without a read of the file, and all of them the same object.  Only whole batches are kept and
returned, so it is known without a look at the bytes where records begin and end.

Nothing depends on it: what isn't here is read from the file.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from octopi.identifiers import Offset
from octopi.limits import (
    NEWEST_RECORDS_BATCHES_COUNT,
    NEWEST_RECORDS_BYTES,
    NEWEST_RECORDS_LOG_BYTES,
)

_OVERHEAD_BYTES: Final = 200
"""What a batch takes beside its records: its object, and its place in the dictionary."""


class NewestRecords:
    """The newest batches of each log that was appended to lately.

    Invariant: the batches of a log follow one another, and the last one ends where the log ends.
    A log whose end goes back has to be forgotten.
    """

    def __init__(self, bytes_max: int = NEWEST_RECORDS_BYTES) -> None:
        """*bytes_max*: bounds the batches of all logs together; each is counted with 200 bytes of
        overhead."""
        self._bytes_max = bytes_max
        self._logs: dict[Hashable, _KeptBatches] = {}
        """The log that was appended to last is the last one."""
        self.size_bytes = 0
        """What all batches take."""

    def add(self, log: Hashable, offset: Offset, records: bytes) -> None:
        """*records* were appended to *log* at *offset*."""
        batches = self._logs.pop(log, None)
        if batches is None:
            batches = _KeptBatches()
        self._logs[log] = batches
        self.size_bytes += batches.add(offset, records)
        while self.size_bytes > self._bytes_max:
            self.forget(next(iter(self._logs)))

    def read(self, log: Hashable, offset: Offset, bytes_max: int, until: Offset) -> bytes:
        """The batches of *log* from *offset* on and before *until*, at most *bytes_max* bytes.
        Empty if no batch that is kept begins at *offset*, or if it is longer than that."""
        batches = self._logs.get(log)
        if batches is None:
            return b""
        return batches.read(offset, min(bytes_max, until - offset))

    def forget(self, log: Hashable) -> None:
        """Keep no batch of *log*; harmless if none is kept."""
        batches = self._logs.pop(log, None)
        if batches is not None:
            self.size_bytes -= batches.size_bytes


class _KeptBatches:
    """The newest batches of one log."""

    __slots__ = ("_by_offset", "size_bytes")

    def __init__(self) -> None:
        self._by_offset: dict[Offset, bytes] = {}
        """Where each batch begins, in the order of the log."""
        self.size_bytes = 0

    def add(self, offset: Offset, records: bytes) -> int:
        """Add the log's next batch, and drop the oldest ones that are too many; return how much
        memory more that takes."""
        before_bytes = self.size_bytes
        self._by_offset[offset] = records
        self.size_bytes += len(records) + _OVERHEAD_BYTES
        while (
            self.size_bytes > NEWEST_RECORDS_LOG_BYTES
            or len(self._by_offset) > NEWEST_RECORDS_BATCHES_COUNT
        ):
            oldest = self._by_offset.pop(next(iter(self._by_offset)))
            self.size_bytes -= len(oldest) + _OVERHEAD_BYTES
        return self.size_bytes - before_bytes

    def read(self, offset: Offset, room_bytes: int) -> bytes:
        """As many batches from *offset* on as *room_bytes* has room for."""
        parts: list[bytes] = []
        while (batch := self._by_offset.get(offset)) is not None and len(batch) <= room_bytes:
            parts.append(batch)
            offset = Offset(offset + len(batch))
            room_bytes -= len(batch)
        return parts[0] if len(parts) == 1 else b"".join(parts)
