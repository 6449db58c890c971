"""Clusters with options that no command line has, beside a browser that blocks its thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from queue import Queue
from threading import Thread

import trio

from tests.cluster import Cluster


@contextmanager
def in_a_thread(running: AbstractAsyncContextManager[Cluster]) -> Iterator[str]:
    """The url of the register of a cluster that runs in a thread, until the block ends."""
    started: Queue[tuple[str, Callable[[], None]]] = Queue()

    async def serve() -> None:
        stop = trio.Event()
        token = trio.lowlevel.current_trio_token()
        async with running as cluster:
            started.put((cluster.register.url, lambda: token.run_sync_soon(stop.set)))
            await stop.wait()

    thread = Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    url, stop = started.get(timeout=20)
    try:
        yield url
    finally:
        stop()
        thread.join()
