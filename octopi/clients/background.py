"""A nursery for the background tasks of a client, producer or consumer.

Unlike a plain nursery it belongs to an object that the user's code is written *inside*:
the tasks end with the block, and the block's own exception comes out as it was raised,
not wrapped in a group.  A background task that fails (which is a fault of ours) ends the
block, and its exception comes out.
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
                # Kept, and raised behind the nursery, which would wrap it.  That goes for
                # Cancelled, too: if nothing else went wrong, it came from further out.
                body_error = error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        errors = [*group.exceptions, *([] if body_error is None else [body_error])]
        faults = [error for error in errors if not isinstance(error, trio.Cancelled)]
        if len(faults) == 1:
            raise faults[0] from None
        raise BaseExceptionGroup("several faults at once", faults or errors) from None
    if body_error is not None:
        raise body_error
