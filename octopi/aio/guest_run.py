"""Trio as a guest of an asyncio loop, and calls from asyncio's tasks to it.

While a client is open, the loop in which it was opened is the host of a run of Trio
(`trio.lowlevel.start_guest_run`).  All code runs in the loop's thread, as callbacks of the loop;
only the wait for sockets happens in a thread of Trio's.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import trio

from octopi.clients.news import News
from octopi.errors import ClosedError

if TYPE_CHECKING:
    import outcome

_T = TypeVar("_T")

_runs: Final[dict[asyncio.AbstractEventLoop, GuestRun]] = {}
"""The runs that have not ended, by their hosts."""


class Crossing(Generic[_T]):
    """A function that runs in a Trio task of its own, and an asyncio task that waits for it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], Awaitable[_T]],
        repeat_tick: Callable[[], None],
    ) -> None:
        """*repeat_tick*: see `GuestRun.repeat_tick`."""
        self._loop = loop
        self._repeat_tick = repeat_tick
        self._function = function
        self.scope = trio.CancelScope()
        """Of the Trio task."""
        self.is_over = False
        """Whether the Trio task has ended."""
        self.error: BaseException | None = None
        """What the function raised, unless it was cancelled."""
        self._values: list[_T] = []
        """What the function returned, if it did."""
        self._waiting: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """The Trio task."""
        try:
            with self.scope:
                self._values.append(await self._function())
        except trio.Cancelled:
            raise
        except BaseException as error:
            self.error = error
        finally:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """The Trio task has ended, or never will begin, because of *error*."""
        self.error = self.error or error
        self.is_over = True
        self.wake()

    def wake(self) -> None:
        """Have the asyncio task look."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait, in the asyncio task, until *holds*, or the Trio task has ended.  If the asyncio
        task is cancelled, the Trio task is, and its end is waited for.

        Raises:
          CancelledError: if the asyncio task was cancelled.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self.is_over and (cancelled is not None or not holds()):
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            except asyncio.CancelledError as error:
                cancelled = error
                self.scope.cancel()
                self._repeat_tick()
        if cancelled is not None:
            if self.error is not None:
                raise self.error  # it counts more than a cancellation, as it does in Trio
            raise cancelled

    async def result(self) -> _T:
        """Wait, in the asyncio task, for what the function returns or raises.

        Raises:
          CancelledError: if one of the two tasks was cancelled.
        """
        await self.until(lambda: False)
        if self.error is not None:
            raise self.error
        if not self._values:
            raise asyncio.CancelledError
        return self._values[0]


class GuestRun:
    """A run of Trio in an asyncio loop.  It ends with its last crossing, that is with the block of
    the last client."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._enough = trio.Event()
        self._is_over = False
        self._changed: list[asyncio.Future[None]] = []
        """For those who wait for the begin or the end."""
        self._crossings: set[Crossing[Any]] = set()
        self._listening: set[asyncio.Future[None]] = set()
        """For those who wait for news."""
        self._ticks: SimpleQueue[Callable[[], object]] = SimpleQueue()
        """What Trio wants to have called in the loop's thread: at most one at a time."""
        self._at_shutdown: AsyncGenerator[None, None]
        self._hooks = sys.get_asyncgen_hooks()
        """Of Trio, for asynchronous generators."""
        self._is_ticking = False
        self._is_interrupted = False
        """Whether Ctrl-C came during a tick."""

    # --- from begin to end -------------------------------------------------------------

    @classmethod
    async def of_running_loop(cls) -> GuestRun:
        """The run in the loop of this asyncio task; it is begun if there is none.

        Raises:
          RuntimeError: if this is no asyncio task, or Trio runs in its thread already.
        """
        if trio.lowlevel.in_trio_task():
            raise RuntimeError("this is a Trio program: use octopi.connect")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "octopi.aio.connect is for asyncio programs: enter it in an asyncio task"
            ) from None
        while True:
            run = _runs.get(loop)
            if run is None:
                run = cls(loop)
                run._begin()
            if run._nursery is not None and not run._enough.is_set():
                return run
            await run._change()

    def _begin(self) -> None:
        if trio.lowlevel.in_trio_run():
            _end_abandoned()
        if trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "Trio runs in this thread already, and a thread has one run of Trio at a time: "
                "close the clients of this thread's other asyncio loop, or use another thread"
            )
        # A program closes the generators that are open before it closes its loop; `asyncio.run`
        # does.
        self._at_shutdown = self._until_shutdown()
        with suppress(StopIteration):
            self._at_shutdown.__anext__().send(None)
        hooks = sys.get_asyncgen_hooks()
        self._take_interrupts()
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._tick_from_thread,
            run_sync_soon_not_threadsafe=self._tick_soon,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
        )
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(*hooks)
        self._token = trio.lowlevel.current_trio_token()
        _runs[self._loop] = self

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._tell_change()
            await self._enough.wait()
            self._nursery.cancel_scope.cancel()

    def _done(self, result: outcome.Outcome[None]) -> None:
        """Trio's run has ended: orderly, or by an error of Trio, of this module or of a signal."""
        self._is_over, self._nursery = True, None
        self._return_interrupts()
        _runs.pop(self._loop, None)
        why: BaseException = ClosedError("the client was closed")
        try:
            result.unwrap()
        except BaseException as error:
            why = error
        for crossing in self._crossings:
            crossing.end(why)
        if not self._loop.is_closed():
            for future in self._listening:
                if not future.done():
                    future.set_exception(why)
            self._tell_change()

    async def leave(self) -> None:
        """If no client is open any more, wait in an asyncio task for the end of the run.

        Raises:
          CancelledError: if the task was cancelled meanwhile.
        """
        if not self._enough.is_set():
            return
        cancelled: asyncio.CancelledError | None = None
        while not self._is_over:
            try:
                await self._change()
            except asyncio.CancelledError as error:
                cancelled = error
        with suppress(RuntimeError):  # it is being closed elsewhere just now
            await self._at_shutdown.aclose()
        if cancelled is not None:
            raise cancelled

    async def _until_shutdown(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if not self._is_over:
                self._enough.set()
            while not self._is_over:
                await self._change()

    async def _change(self) -> None:
        future = self._loop.create_future()
        self._changed.append(future)
        self.repeat_tick()
        await future

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)

    # --- the part of the host ----------------------------------------------------------

    def _tick_soon(self, function: Callable[[], object]) -> None:
        self._ticks.put(function)
        with suppress(RuntimeError):  # the loop is closed: see `end_without_loop`
            self._loop.call_soon(self._tick)

    def _tick_from_thread(self, function: Callable[[], object]) -> None:
        self._ticks.put(function)
        with suppress(RuntimeError):  # the loop is closed: see `end_without_loop`
            self._loop.call_soon_threadsafe(self._tick)

    def _tick(self) -> None:
        self._is_ticking = True
        with suppress(Empty):
            self._run_tick(self._ticks.get_nowait())
        self._is_ticking = False

    def _run_tick(self, function: Callable[[], object]) -> None:
        # The generators of the client are Trio's, and all others are the loop's, which installs its
        # hooks each time it is run.
        self._is_ticking = True
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(*self._hooks)
        try:
            function()
        finally:
            sys.set_asyncgen_hooks(*hooks)
            self._is_ticking = False
        if self._is_interrupted:
            self._is_interrupted = False
            raise KeyboardInterrupt

    def repeat_tick(self) -> None:
        """Have the loop make up for a call that it took and lost, when Ctrl-C came just then."""
        if not self._ticks.empty():
            self._loop.call_soon(self._tick)

    def _take_interrupts(self) -> None:
        """Unless the program handles Ctrl-C (`asyncio.run` does), let it wait for the end of a turn
        of Trio's scheduler.  Trio itself would have its own main task raise it, where the program
        doesn't get it."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):  # this isn't the main thread, which gets signals
                signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._is_ticking:
            self._is_interrupted = True
        else:
            signal.default_int_handler(number, frame)

    def _return_interrupts(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def end_without_loop(self) -> None:
        """End the run in the thread of its loop, when the loop doesn't run any more."""
        self._enough.set()
        while not self._is_over:
            self._run_tick(self._ticks.get())

    @property
    def is_of_this_thread(self) -> bool:
        """Whether it is the run of Trio in this thread."""
        return self._token is trio.lowlevel.current_trio_token()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The host."""
        return self._loop

    # --- crossing ----------------------------------------------------------------------

    def start(self, function: Callable[[], Awaitable[_T]]) -> Crossing[_T]:
        """Run *function* in a Trio task of its own.

        Raises:
          ClosedError: if the run has ended, as it does with the last client.
        """
        if self._nursery is None or self._enough.is_set():
            raise ClosedError("the client was closed")
        crossing = Crossing(self._loop, function, self.repeat_tick)
        self._crossings.add(crossing)
        self._nursery.start_soon(self._cross, crossing)
        return crossing

    async def _cross(self, crossing: Crossing[_T]) -> None:
        try:
            await crossing.run()
        finally:
            self._crossings.discard(crossing)
            if not self._crossings:
                self._enough.set()

    async def call(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Run *function* in a Trio task, and wait for it in this asyncio task.

        Raises:
          CancelledError: if the asyncio task was cancelled; then the Trio task was, too.
          Also what *function* raises.
        """
        crossing = self.start(function)
        try:
            return await crossing.result()
        finally:
            await self.leave()

    async def taken(self, attempt: Callable[[], _T], news: News) -> _T:
        """What *attempt* returns, as soon as it doesn't raise `trio.WouldBlock`: it is tried again
        when *news* are told.  Other tasks run first.  If this is cancelled, nothing was taken."""
        await asyncio.sleep(0)
        while True:
            try:
                return attempt()
            except trio.WouldBlock:
                await self.told(news)

    async def told(self, news: News) -> None:
        """Wait, in an asyncio task, until *news* are told.

        Raises:
          ClosedError: if the run has ended.
        """
        if self._is_over:
            raise ClosedError("the client was closed")
        future = self._loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        news.listen(wake)
        self._listening.add(future)
        try:
            await future
        finally:
            self._listening.discard(future)
            news.ignore(wake)


async def awaited_in_asyncio(awaitable: Awaitable[_T]) -> _T:
    """The result of *awaitable*, which an asyncio task awaits while this Trio task waits."""
    task = asyncio.ensure_future(awaitable)
    ended = trio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        await ended.wait()
    except trio.Cancelled:
        task.cancel()
        with trio.CancelScope(shield=True):
            await ended.wait()
        raise
    if task.cancelled():
        raise RuntimeError(f"{awaitable!r} was cancelled")
    return task.result()


def _end_abandoned(*, at_exit: bool = False) -> None:
    """End the run that a closed loop has left in this thread, if there is one."""
    for run in list(_runs.values()):
        if run.is_of_this_thread and (run.loop.is_closed() or at_exit):
            run.end_without_loop()


@atexit.register
def _at_exit() -> None:
    if trio.lowlevel.in_trio_run() and not trio.lowlevel.in_trio_task():
        _end_abandoned(at_exit=True)
