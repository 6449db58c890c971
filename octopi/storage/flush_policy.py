"""Decides when a log is due for a flush.  Does no I/O and reads no clock."""

from __future__ import annotations

import attrs

from octopi.limits import CHECKPOINT_BYTES, FLUSH_BYTES, FLUSH_INTERVAL_S, FLUSH_MESSAGES


@attrs.frozen
class FlushOptions:
    """When logs are flushed.  This bounds what a single replica can lose in a power failure."""

    messages: int = FLUSH_MESSAGES
    """Flush after this many messages; 0: after every append."""
    bytes: int = FLUSH_BYTES
    """Flush after this many bytes of records."""
    interval_s: float = FLUSH_INTERVAL_S
    """Flush this many seconds after the oldest append that no flush has covered."""
    checkpoint_bytes: int = CHECKPOINT_BYTES
    """A flush stores a checkpoint, too, if this many bytes were appended since the last one."""


@attrs.define
class FlushPolicy:
    """Makes a log due after a number of messages, of bytes or of seconds, whichever comes first.

    Times are seconds on any clock that never goes back.
    """

    options: FlushOptions
    _message_count: int = attrs.field(default=0, init=False)
    _size_bytes: int = attrs.field(default=0, init=False)
    _oldest: float | None = attrs.field(default=None, init=False)
    """When the oldest record was appended that no flush has covered."""

    def appended(self, message_count: int, size_bytes: int, now: float) -> None:
        """Note an append."""
        if self._oldest is None:
            self._oldest = now
        self._message_count += message_count
        self._size_bytes += size_bytes

    def flushing(self) -> None:
        """Note that a flush begins: it covers everything appended before.

        The next flush covers what is appended while this one runs.
        """
        self._message_count = self._size_bytes = 0
        self._oldest = None

    @property
    def due_at(self) -> float | None:
        """When the next flush is due, possibly in the past; None if there is nothing to flush."""
        if self._oldest is None:
            return None
        options = self.options
        if self._message_count >= options.messages or self._size_bytes >= options.bytes:
            return self._oldest
        return self._oldest + options.interval_s

    def is_due(self, now: float) -> bool:
        """Whether a flush is due."""
        return self.due_at is not None and self.due_at <= now
