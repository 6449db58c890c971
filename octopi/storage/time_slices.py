"""Long work in slices, so that a node's other tasks have their turn between two of them.

Work whose length depends on how much is stored is written as a generator: it yields after each
slice, which reads about `octopi.limits.SLICE_BYTES`, and returns its result.  It may yield in
the middle of a segment, so what it knew of the log before may have changed when it goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, TypeAlias, TypeVar

import trio

from octopi.environment import Turn
from octopi.errors import NeedsTimeError
from octopi.limits import SLICE_BYTES

QUICK_SLICES: Final = 8
"""So many slices may be done in one turn where nothing can wait: enough for every look-up by an
index that is whole."""

GROUP_COUNT: Final = 200
"""Things that are looked at, or described, in one slice: a millisecond or less."""

_T = TypeVar("_T")

Slices: TypeAlias = Generator[None, None, _T]
"""Work in slices, with a result."""


def in_groups(items: list[_T]) -> Iterator[list[_T]]:
    """*items* in groups, with each of which a slice does something small."""
    return (items[at : at + GROUP_COUNT] for at in range(0, len(items), GROUP_COUNT))


def pauses(read_bytes: int) -> Slices[None]:
    """The end of a slice that read *read_bytes*: it counts as several if it read a long record."""
    for _ in range(max(1, read_bytes // SLICE_BYTES)):
        yield


def at_once(work: Slices[_T]) -> _T:
    """The result of *work*, for programs that have nothing else to do."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _T = done.value
            return result


def quickly(work: Slices[_T]) -> _T:
    """The result of *work* if that takes no more than `QUICK_SLICES`.

    Raises:
      NeedsTimeError: if it takes more; what was done of it counts for nothing.
    """
    for _ in range(QUICK_SLICES):
        try:
            next(work)
        except StopIteration as done:
            result: _T = done.value
            return result
    work.close()
    raise NeedsTimeError(
        "the index of that part of the log is being rebuilt; try again in a moment"
    )


async def in_turns(work: Slices[_T], turn: Turn | None = None) -> _T:
    """The result of *work*; other tasks have their turn behind each slice.  Cancelled: it ends
    there.  *turn*: for whom each slice is done, where that has to wait for others."""
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
