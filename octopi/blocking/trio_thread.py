"""A thread in which Trio runs, and calls to it from other threads.

A call is a task of Trio and a thread that waits for it.  If the thread is interrupted while it
waits (by Ctrl-C, by what another signal handler raises, or since its time is up), the task is
cancelled, and the thread goes on when the task has ended.  So nothing goes on behind a call.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import trio

from octopi.blocking.timeouts import time_left_s
from octopi.errors import ClosedError
from octopi.limits import CLOSE_TIMEOUT_S

_T = TypeVar("_T")

_threads: Final[WeakSet[TrioThread]] = WeakSet()
"""Those that may run."""


class Call(Generic[_T]):
    """A function that runs in a Trio task of its own, and another thread that waits for it."""

    def __init__(self, thread: TrioThread, function: Callable[[], Awaitable[_T]]) -> None:
        self._thread = thread
        self._function = function
        self._scope = trio.CancelScope()
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._values: list[_T] = []
        self.is_begun = False
        """Whether the thread of Trio knows the task."""
        self.is_over = False
        """Whether the task has ended."""
        self.error: BaseException | None = None
        """What the function raised, unless it was cancelled."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the task has ended without a result or an error: Trio's run has ended."""
        return self.is_over and self.error is None and not self._values

    # --- in the thread of Trio ---------------------------------------------------------

    async def run(self) -> None:
        """The Trio task."""
        try:
            with self._scope:
                self._values.append(await self._function())
        except trio.Cancelled:
            raise
        except BaseException as error:
            if isinstance(error, BaseExceptionGroup) and error.split(trio.Cancelled)[1] is None:
                raise  # several tasks of a block, all cancelled by the end of Trio's run
            self.error = error
        finally:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """The task has ended, or will never begin, because of *error*."""
        self.error = self.error or error
        self.is_over = True
        self.wake()

    def wake(self) -> None:
        """Have the thread that waits look."""
        self._woken.put(None)

    # --- in the thread that waits ------------------------------------------------------

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds*, or until the task has ended.

        Raises:
          TimeoutError: if the time of this thread's `timeout` is up; the task has ended, without a
              result.
          KeyboardInterrupt: or whatever interrupted the thread; the task has ended.
        """
        try:
            while not (self.is_over or holds()):
                self._woken.get(timeout=time_left_s())
        except Empty:
            self._cancel()
            if self.error is None and not self._values:
                raise TimeoutError("the time is up (octopi.blocking.timeout)") from None
        except BaseException:
            self._cancel()
            raise

    def result(self) -> _T:
        """Wait for what the function returns or raises.

        Raises:
          ClosedError: if Trio's run has ended.
          And what `until` and the function raise.
        """
        self.until(lambda: False)
        if self.error is not None:
            raise self.error
        if not self._values:
            raise ClosedError("the client was closed")
        return self._values[0]

    def abandon(self) -> None:
        """End the task, as far as it has begun, after whatever interrupted the thread."""
        if not self.is_over:
            self._cancel()

    def _cancel(self) -> None:
        """Cancel the task, and wait for its end: what is interrupted further has to end, too.

        Raises:
          KeyboardInterrupt: or whatever interrupted the thread meanwhile; the task has ended.
        """
        interruption: BaseException | None = None
        while not self.is_over:
            try:
                if not self._thread.post(self._end_soon):
                    self.end()
                while not self.is_over:
                    self._woken.get()
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption

    def _end_soon(self) -> None:
        """In the thread of Trio: cancel the task.  One that was not begun by now never will be."""
        if self.is_begun:
            self._scope.cancel()
        else:
            self.end()


class TrioThread:
    """One run of Trio in a thread of its own, from `start` to `end`.

    Other threads may call it at any time, several at once.  It ends with the process at the latest.
    """

    def __init__(self, name: str) -> None:
        """*name*: of the thread, for people who debug."""
        # Not one that the interpreter waits for at its exit: a program may leave its blocks open.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started: SimpleQueue[None] = SimpleQueue()
        self._token: trio.lowlevel.TrioToken
        self.nursery: trio.Nursery
        """For tasks that last until they end, or the thread does; in the thread of Trio."""
        self._calls: set[Call[Any]] = set()
        self._is_ending = False
        self._is_forked = False
        """Whether this is a child of the process in which the thread runs."""

    def start(self) -> None:
        """Start the thread, and wait until it takes calls."""
        _threads.add(self)
        self._thread.start()
        self._started.get()

    def end(self) -> None:
        """Cancel what still runs, and wait for the end of the thread."""
        if not self._is_forked:
            self.post(self._end_soon)
            self._thread.join()

    def end_at_exit(self) -> None:
        """`end`, for a process that exits: it doesn't wait for ever."""
        if not self._is_forked:
            self.post(self._end_soon)
            self._thread.join(CLOSE_TIMEOUT_S)

    def forked(self) -> None:
        """This is a child of the process: the thread isn't here."""
        self._is_forked = True

    @property
    def is_usable(self) -> bool:
        """Whether it takes calls in this process."""
        return self._thread.is_alive() and not self._is_forked

    def check(self) -> None:
        """Check that this thread may wait for a call.

        Raises:
          RuntimeError: if this process is a fork of the client's, or this thread runs its Trio.
        """
        if self._is_forked:
            raise RuntimeError(
                "this client was opened before a fork, and belongs to the parent process: open "
                "another one in this process"
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError("the client's own thread can't wait for a call to it")

    def post(self, function: Callable[[], object]) -> bool:
        """Have *function* called in the thread, later, in the order of these calls; it must not
        raise.  If the thread has ended, it isn't called; return whether it will be."""
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return False
        return True

    def begin(self, call: Call[Any]) -> None:
        """Run the task of *call*.

        Raises:
          RuntimeError: see `check`.
        """
        self.check()
        try:
            self._token.run_sync_soon(self._begin, call)
        except trio.RunFinishedError:
            call.end(ClosedError("the client was closed"))

    def call(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Run *function* in a task of Trio, and wait for its result.

        Raises:
          ClosedError: if the thread has ended.
          RuntimeError: see `check`.
          And what *function* and `Call.until` raise.
        """
        self.check()
        call = Call(self, function)
        try:
            self.begin(call)
            return call.result()
        except BaseException:
            call.abandon()  # it was interrupted before it waited, if it goes on
            raise

    def ask(self, function: Callable[[], _T]) -> _T:
        """`call` of a plain function."""

        async def task() -> _T:
            return function()

        return self.call(task)

    # --- in the thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        finally:
            _threads.discard(self)
            for call in list(self._calls):
                call.end(ClosedError("the client was closed"))
            self._started.put(None)

    async def _serve(self) -> None:
        try:
            async with trio.open_nursery() as self.nursery:
                self._token = trio.lowlevel.current_trio_token()
                self._started.put(None)
                await trio.sleep_forever()
        finally:
            self._is_ending = True

    def _begin(self, call: Call[Any]) -> None:
        if self._is_ending:
            call.end(ClosedError("the client was closed"))
            return
        if call.is_over:
            return  # its thread was interrupted before it waited
        call.is_begun = True
        self._calls.add(call)
        self.nursery.start_soon(self._perform, call)

    async def _perform(self, call: Call[Any]) -> None:
        try:
            await call.run()
        finally:
            self._calls.discard(call)

    def _end_soon(self) -> None:
        self._is_ending = True
        self.nursery.cancel_scope.cancel()


@atexit.register
def _at_exit() -> None:
    for thread in list(_threads):
        thread.end_at_exit()


def _in_child() -> None:
    for thread in list(_threads):
        thread.forked()


os.register_at_fork(after_in_child=_in_child)
