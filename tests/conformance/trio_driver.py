"""Drives `octopi`, the client for Trio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import trio

import octopi
from tests.conformance.driving import PATIENCE_S
from tests.conformance.python_driver import Job, Program, PythonDriver


@contextmanager
def trio_driver(url: str) -> Iterator[PythonDriver]:
    """The client for Trio, at the cluster of *url*."""
    driver = PythonDriver(url, octopi.connect, TrioLoop())
    try:
        yield driver
    finally:
        driver.close()


class _TrioTask:
    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._give, self._jobs = trio.open_memory_channel[Job](10)
        self._scope = trio.CancelScope()
        self._ended = Event()

    async def run(self, program: Program) -> None:
        with self._scope:
            await program(self._jobs.receive)
        self._ended.set()

    def put(self, job: Job) -> None:
        self._token.run_sync_soon(self._give.send_nowait, job)

    def cancel(self) -> None:
        self._token.run_sync_soon(self._scope.cancel)
        assert self._ended.wait(PATIENCE_S)


class TrioLoop:
    """Trio in a thread."""

    def __init__(self) -> None:
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._stop = trio.Event()
        running = Event()
        self._thread = Thread(target=trio.run, args=(self._main, running), name="Trio's driver")
        self._thread.start()
        running.wait()

    async def _main(self, running: Event) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            running.set()
            await self._stop.wait()
            self._nursery.cancel_scope.cancel()

    def start(self, program: Program) -> _TrioTask:
        """See `tests.conformance.python_driver.EventLoop`."""
        task = _TrioTask(self._token)
        self._token.run_sync_soon(self._nursery.start_soon, task.run, program)
        return task

    def close(self) -> None:
        """See `tests.conformance.python_driver.EventLoop`."""
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()
