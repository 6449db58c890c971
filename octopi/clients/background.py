"""A nursery for the background tasks of a client, producer or consumer.

The user's code runs inside the block.  The tasks are cancelled when the block ends.  Unlike with a
plain nursery, an exception of the block is raised as it is, and not wrapped in a group.  A
background task that fails (which is a bug of this library) ends the block, and its exception is
raised.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background_tasks() -> AsyncIterator[trio.Nursery]:
    """A nursery that is cancelled when the block ends, however it ends."""
    body_error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:
                # Raised after the nursery has ended, since the nursery would wrap it.  The same
                # holds for Cancelled: without another error, it came from an outer scope.
                body_error = error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        errors = [*group.exceptions, *([] if body_error is None else [body_error])]
        faults = [error for error in errors if not _is_cancellation(error)]
        if len(faults) == 1:
            raise faults[0] from None
        raise BaseExceptionGroup("several faults at once", faults or errors) from None
    if body_error is not None:
        raise body_error


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancellation, error.exceptions))
    return isinstance(error, trio.Cancelled)


def check_trio(function: str, of_asyncio: str) -> None:
    """Check that *function* is used in a Trio task.

    Raises:
      RuntimeError: if not; it says to use *of_asyncio* if this is an asyncio program.
    """
    if trio.lowlevel.in_trio_task():
        return
    import asyncio  # here, so that Trio programs don't load it

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(f"{function} is for Trio programs: enter it in a Trio task") from None
    raise RuntimeError(f"this is an asyncio program: use {of_asyncio}")
