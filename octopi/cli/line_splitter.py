"""Splits a stream of bytes, which is read in large pieces, into lines.

A line ends with a newline, which is not part of it; the bytes after the last newline are a line,
too.  No other byte is special.  The splitter keeps one piece and one unfinished line in memory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Final

import trio

from octopi.cli.failures import CommandError

PIECE_BYTES: Final = 1024 * 1024
"""The size of one read; each read costs a switch to a thread."""


class BadLineError(CommandError):
    """A line of the input is no message."""


class LineTooLongError(BadLineError):
    """A line is longer than a message may be."""

    def __init__(self, number: int, bytes_max: int) -> None:
        super().__init__(
            f"line {number} is longer than {bytes_max:,} bytes, and a line is one message: "
            "split it first"
        )


class LineSplitter:
    """Takes pieces and returns whole lines, without the first *skip* ones."""

    def __init__(self, line_bytes_max: int, skip: int = 0) -> None:
        self._line_bytes_max = line_bytes_max
        self._skip = skip
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self.count = 0
        """The number of whole lines so far, with those that were skipped."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that *piece* completes; take all of them before the next call.

        Raises:
          LineTooLongError: when a line that isn't skipped is longer than `line_bytes_max`.
        """
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines:
            lines[0] = self._complete(lines[0])
        bound = self._line_bytes_max
        skipped = min(len(lines), max(0, self._skip - self.count))
        self.count += skipped
        for line in islice(lines, skipped, None):
            if len(line) > bound:
                raise LineTooLongError(self.count + 1, bound)
            self.count += 1
            yield line
        if rest and self.count < self._skip:
            self._begun = [b""]
        elif rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
            if self._begun_bytes > bound:
                raise LineTooLongError(self.count + 1, bound)

    def finish(self) -> Iterator[bytes]:
        """The last line, if it had no newline."""
        if self._begun:
            line = self._complete(b"")
            self.count += 1
            if self.count > self._skip:
                yield line

    def _complete(self, end: bytes) -> bytes:
        line = b"".join((*self._begun, end))
        self._begun.clear()
        self._begun_bytes = 0
        return line


async def pieces(descriptor: int) -> AsyncGenerator[bytes, None]:
    """Read the file *descriptor* to its end; yields the bytes as they come.

    If this is cancelled during a read that blocks, the read continues in its thread.

    Raises:
      OSError: if reading fails.
    """
    while piece := await trio.to_thread.run_sync(
        os.read, descriptor, PIECE_BYTES, abandon_on_cancel=True
    ):
        yield piece
