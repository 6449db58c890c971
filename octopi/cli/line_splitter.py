"""Lines out of a stream of bytes that is read in big pieces.

A line ends with a newline, which is not part of it; what follows the last newline is a
line too.  No other byte means anything.  Holds one piece and one unfinished line.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import trio

from octopi.cli.failures import CommandError

PIECE_BYTES: Final = 1024 * 1024
"""One read; a thread hop is paid for each."""


class LineTooLongError(CommandError):
    """A line is longer than a message may be."""

    def __init__(self, number: int, bytes_max: int) -> None:
        super().__init__(
            f"line {number} is longer than {bytes_max:,} bytes, and a line is one message: "
            "split it first"
        )


class LineSplitter:
    """Pieces in, whole lines out."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self.count = 0
        """Lines given out so far: the number of the last one, from 1."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that *piece* completes; take all of them before feeding more.

        Raises:
          LineTooLongError: when it comes to one beyond the bound.
        """
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines:
            lines[0] = self._complete(lines[0])
        bound = self._line_bytes_max
        for line in lines:
            if len(line) > bound:
                raise LineTooLongError(self.count + 1, bound)
            self.count += 1
            yield line
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
            if self._begun_bytes > bound:
                raise LineTooLongError(self.count + 1, bound)

    def finish(self) -> Iterator[bytes]:
        """The line that was left without a newline, if there is one."""
        if self._begun:
            line = self._complete(b"")
            self.count += 1
            yield line

    def _complete(self, end: bytes) -> bytes:
        line = b"".join((*self._begun, end))
        self._begun.clear()
        self._begun_bytes = 0
        return line


async def pieces(descriptor: int) -> AsyncGenerator[bytes, None]:
    """What can be read from the file *descriptor*, as it comes, to its end.

    A read that blocks is left behind in its thread when this is cancelled.

    Raises:
      OSError: if reading fails.
    """
    while piece := await trio.to_thread.run_sync(
        os.read, descriptor, PIECE_BYTES, abandon_on_cancel=True
    ):
        yield piece
