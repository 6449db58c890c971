"""Clusters with options that no command line has, beside a browser that blocks its thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from queue import Queue
from threading import Thread
from typing import TypeVar

import trio

_Running = TypeVar("_Running")


@contextmanager
def in_a_thread(running: AbstractAsyncContextManager[_Running]) -> Iterator[_Running]:
    """What *running* gives, which runs in a thread until the block ends."""
    started: Queue[tuple[_Running, Callable[[], None]]] = Queue()

    async def serve() -> None:
        stop = trio.Event()
        token = trio.lowlevel.current_trio_token()
        async with running as cluster:
            started.put((cluster, lambda: token.run_sync_soon(stop.set)))
            await stop.wait()

    thread = Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    cluster, stop = started.get(timeout=20)
    try:
        yield cluster
    finally:
        stop()
        thread.join()
