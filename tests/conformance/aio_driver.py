"""Drives `octopi.aio`, the client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import octopi.aio
from tests.conformance.driving import PATIENCE_S
from tests.conformance.python_driver import Job, Program, PythonDriver


@contextmanager
def aio_driver(url: str) -> Iterator[PythonDriver]:
    """The client for asyncio, at the cluster of *url*."""
    driver = PythonDriver(url, octopi.aio.connect, AsyncioLoop())
    try:
        yield driver
    finally:
        driver.close()


class _AsyncioTask:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._task: asyncio.Task[None]
        self._ended = Event()

    def start(self, program: Program) -> None:
        self._task = self._loop.create_task(self._run(program))

    async def _run(self, program: Program) -> None:
        try:
            await program(self._jobs.get)
        finally:
            self._ended.set()

    def put(self, job: Job) -> None:
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, job)

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self._task.cancel())
        assert self._ended.wait(PATIENCE_S)


class AsyncioLoop:
    """asyncio in a thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        running = Event()
        self._thread = Thread(
            target=lambda: asyncio.run(self._main(running)), name="asyncio's driver"
        )
        self._thread.start()
        running.wait()

    async def _main(self, running: Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        running.set()
        await self._stop.wait()

    def start(self, program: Program) -> _AsyncioTask:
        """See `tests.conformance.python_driver.EventLoop`."""
        task = _AsyncioTask(self._loop)
        self._loop.call_soon_threadsafe(task.start, program)
        return task

    def close(self) -> None:
        """See `tests.conformance.python_driver.EventLoop`."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
