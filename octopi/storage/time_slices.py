"""Long work in slices, so that other tasks have their turn between two slices.

Work whose length depends on how much is stored is a generator: it yields after each slice, which
reads about `octopi.limits.SLICE_BYTES`, and returns its result.  It may yield in the middle of a
segment, so the log may have changed when it goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, TypeAlias, TypeVar

import trio

from octopi.environment import Turn
from octopi.errors import NeedsTimeError
from octopi.limits import SLICE_BYTES

QUICK_SLICES: Final = 8
"""How many slices may be done in one turn by a caller that can't wait: enough for every look-up
with a complete index."""

GROUP_COUNT: Final = 200
"""How many items are handled in one slice, which takes a millisecond or less."""

_T = TypeVar("_T")

Slices: TypeAlias = Generator[None, None, _T]
"""Work in slices, with a result."""


def in_groups(items: list[_T]) -> Iterator[list[_T]]:
    """*items* in groups of `GROUP_COUNT`, one group for each slice."""
    return (items[at : at + GROUP_COUNT] for at in range(0, len(items), GROUP_COUNT))


def pauses(read_bytes: int) -> Slices[None]:
    """End a slice that read *read_bytes*; it counts as several slices if it read a long record."""
    for _ in range(max(1, read_bytes // SLICE_BYTES)):
        yield


def at_once(work: Slices[_T]) -> _T:
    """Run all of *work* and return its result, for programs that have nothing else to do."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _T = done.value
            return result


def quickly(work: Slices[_T]) -> _T:
    """Run *work* and return its result if it takes at most `QUICK_SLICES` slices.

    Raises:
      NeedsTimeError: if it takes more; its partial result is dropped.
    """
    return at_once(if_quick(work))


def if_quick(work: Slices[_T]) -> Slices[_T]:
    """Do *work*, if it takes at most `QUICK_SLICES` slices.

    Raises:
      NeedsTimeError: if it takes more; its partial result is dropped.
    """
    for _ in range(QUICK_SLICES):
        try:
            next(work)
        except StopIteration as done:
            result: _T = done.value
            return result
        yield
    work.close()
    raise NeedsTimeError(
        "the index of that part of the log is being rebuilt; try again in a moment"
    )


async def in_turns(work: Slices[_T], turn: Turn | None = None) -> _T:
    """Run *work* and return its result; other tasks have their turn after each slice.  Cancelled:
    the work ends.  *turn*: the turn of the connection that each slice counts to; None: no
    connection's."""
    try:
        while True:
            if turn is not None and not turn.begin():
                await turn.wait()
            try:
                next(work)
            except StopIteration as done:
                result: _T = done.value
                return result
            finally:
                if turn is not None:
                    turn.end()
            await trio.lowlevel.checkpoint()
    finally:
        work.close()
