"""Drives `octopi.blocking`, the client for blocking programs.

Each client, consumer and member is a thread.  It runs the program that is written for the clients
that wait with ``await``: here whatever it awaits blocks the thread, so it never suspends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Final

import octopi.blocking
from tests.conformance.driving import PATIENCE_S
from tests.conformance.python_driver import Job, Program, PythonDriver

_BLOCKS: Final = {"consumer", "producer", "subscription"}
_CALLS: Final = {"commit", "create_topic", "delete_topic", "describe_topic", "next_batch", "send"}


@contextmanager
def blocking_driver(url: str) -> Iterator[PythonDriver]:
    """The client for blocking programs, at the cluster of *url*."""
    driver = PythonDriver(url, _block(octopi.blocking.connect), _Threads())
    try:
        yield driver
    finally:
        driver.close()


class _Awaited:
    """A client, producer, consumer or member, whose calls are awaited."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        given = getattr(self._inner, name)
        if name in _BLOCKS:
            return _block(given)
        return _call(given) if name in _CALLS else given

    async def __anext__(self) -> object:
        with octopi.blocking.timeout(PATIENCE_S):
            for item in self._inner:
                return item
        raise StopAsyncIteration


def _call(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: object, **options: object) -> object:
        with octopi.blocking.timeout(PATIENCE_S):
            return function(*args, **options)

    return call


def _block(function: Callable[..., AbstractContextManager[Any]]) -> Callable[..., _AwaitedBlock]:
    return lambda *args, **options: _AwaitedBlock(function(*args, **options))


class _AwaitedBlock:
    def __init__(self, block: AbstractContextManager[Any]) -> None:
        self._block = block

    async def __aenter__(self) -> _Awaited:
        with octopi.blocking.timeout(PATIENCE_S):
            return _Awaited(self._block.__enter__())

    async def __aexit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        with octopi.blocking.timeout(PATIENCE_S):
            return self._block.__exit__(cls, error, traceback)


class _Cancelled(BaseException):
    """Ends a program that waits for a job."""


class _ThreadTask:
    def __init__(self, program: Program) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, args=(program,), name="program of the list")
        self._thread.start()

    def _run(self, program: Program) -> None:
        running = program(self._take).__await__()
        try:
            next(running)
        except (StopIteration, _Cancelled):
            return
        raise AssertionError("it waited for something else than this client")

    async def _take(self) -> Job:
        job = self._jobs.get()
        if job is None:
            raise _Cancelled
        return job

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def cancel(self) -> None:
        self._jobs.put(None)
        self._thread.join(2 * PATIENCE_S)  # a call, and the end of its blocks
        assert not self._thread.is_alive()


class _Threads:
    """A thread for each program."""

    def start(self, program: Program) -> _ThreadTask:
        """See `tests.conformance.python_driver.EventLoop`."""
        return _ThreadTask(program)

    def close(self) -> None:
        """See `tests.conformance.python_driver.EventLoop`."""
