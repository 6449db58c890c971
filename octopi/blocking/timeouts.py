"""Time-outs of blocking programs: a block in which no call waits beyond a deadline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import TIMEOUT_MAX
from typing import Final

from octopi.operating_system import stopwatch

_deadline: Final[ContextVar[float | None]] = ContextVar("octopi_blocking_deadline", default=None)
"""On the scale of `octopi.operating_system.stopwatch`; of this thread."""


@contextmanager
def timeout(seconds: float) -> Iterator[None]:
    """Within the block no call to a client waits beyond *seconds* from now::

        with octopi.blocking.timeout(5):
            message = next(consumer)

    It concerns every call of this thread, also the iteration over messages and the ends of blocks.
    Blocks may be nested; the deadline that is first counts.  What a call leaves behind whose time
    is up is what a cancelled call of the Trio client leaves behind.

    Raises:
      TimeoutError: where a call would wait longer.  Work of the program itself isn't interrupted.
    """
    before = _deadline.get()
    deadline = stopwatch() + seconds
    restore = _deadline.set(deadline if before is None else min(before, deadline))
    try:
        yield
    finally:
        _deadline.reset(restore)


def time_left_s() -> float | None:
    """How long a call of this thread may wait from now on, in seconds, not negative; None: for
    ever."""
    deadline = _deadline.get()
    if deadline is None or (left_s := deadline - stopwatch()) > TIMEOUT_MAX:
        return None
    return max(0.0, left_s)
