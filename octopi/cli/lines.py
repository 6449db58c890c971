"""Lines out of a stream of bytes that is read in big pieces.

A line ends with a newline, which is not part of it; what follows the last newline is a
line too.  No other byte means anything.  Holds one piece and one unfinished line.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
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
            "split it before producing"
        )


class LineSplitter:
    """Pieces in, whole lines out."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self.count = 0
        """Lines given out so far."""

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that *piece* completes.

        Raises:
          LineTooLongError: if one exceeds the bound; nothing of it is kept beyond that.
        """
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._begun:
                lines[0] = b"".join((*self._begun, lines[0]))
                self._begun, self._begun_bytes = [], 0
            if len(piece) + len(lines[0]) > self._line_bytes_max:
                self._check(lines)
            self.count += len(lines)
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
            if self._begun_bytes > self._line_bytes_max:
                raise LineTooLongError(self.count + 1, self._line_bytes_max)
        return lines

    def finish(self) -> list[bytes]:
        """The line that was left without a newline, if there is one."""
        lines = [b"".join(self._begun)] if self._begun else []
        self._begun, self._begun_bytes = [], 0
        self.count += len(lines)
        return lines

    def _check(self, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, self.count + 1):
            if len(line) > self._line_bytes_max:
                raise LineTooLongError(number, self._line_bytes_max)


async def pieces(descriptor: int) -> AsyncIterator[bytes]:
    """What can be read from the file *descriptor*, as it comes, to its end.

    A read that blocks is left behind in its thread when this is cancelled.

    Raises:
      OSError: if reading fails.
    """
    while piece := await trio.to_thread.run_sync(
        os.read, descriptor, PIECE_BYTES, abandon_on_cancel=True
    ):
        yield piece
