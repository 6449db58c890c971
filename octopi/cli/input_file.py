"""Opens the file that a command reads messages from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STDIN: Final = 0


@contextmanager
def opened(file: str) -> Iterator[int]:
    """The descriptor of *file* for the block; ``-`` is standard input.

    Raises:
      OSError: if it can't be opened.
    """
    if file == "-":
        yield STDIN
        return
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def size_bytes_of(descriptor: int) -> int | None:
    """The size of the file; None if it is not a regular file."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
