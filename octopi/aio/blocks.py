"""Blocks of the Trio client, for ``async with`` in asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Generic, TypeVar

import trio

from octopi.aio.guest_run import Crossing, GuestRun

_T = TypeVar("_T")
_W = TypeVar("_W")


class AsyncioBlock(AbstractAsyncContextManager[_W], Generic[_T, _W]):
    """A block of the Trio client.  One Trio task enters it, waits until the asyncio program leaves
    its own block, and leaves it in the same way: normally, or by the same exception.

    If the Trio block is cancelled from within, because a log goes to another member or a background
    task failed, then the asyncio task is cancelled, and its block ends as the Trio block did.
    """

    def __init__(
        self,
        run: Callable[[], Awaitable[GuestRun]],
        open_block: Callable[[], AbstractAsyncContextManager[_T]],
        wrap: Callable[[GuestRun, _T], _W],
    ) -> None:
        """*wrap*: makes of what the Trio block gives what the asyncio program gets."""
        self._find_run: Final = run
        self._open_block: Final = open_block
        self._wrap: Final = wrap
        self._run: GuestRun
        self._crossing: Crossing[bool]
        self._given: list[_T] = []
        self._task: asyncio.Task[object]
        self._cancelling = 0
        """How many cancellations of the task were requested before the block."""
        self._is_inside = False
        """Whether the asyncio task is within its block."""
        self._is_cut = False
        """Whether the asyncio task was cancelled because the Trio block has ended."""
        self._leaving: trio.Event
        self._body_error: BaseException | None = None

    async def __aenter__(self) -> _W:
        self._run = await self._find_run()
        task = asyncio.current_task()
        assert task is not None, "only a task can wait"
        self._task, self._cancelling = task, task.cancelling()
        self._leaving = trio.Event()
        self._crossing = self._run.start(self._live)
        try:
            await self._crossing.until(lambda: bool(self._given))
            if not self._given:
                await self._crossing.result()
        except BaseException:
            await self._run.leave()
            raise
        self._is_inside = True
        if self._crossing.is_over:
            self._cut()
        return self._wrap(self._run, self._given[0])

    async def __aexit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._is_inside = False
        try:
            if self._is_cut:
                return await self._end_cut(error)
            self._body_error = error
            self._leaving.set()
            try:
                return await self._crossing.result()
            except BaseException as raised:
                if raised is error:
                    return False
                raise
        finally:
            await self._run.leave()

    async def _live(self) -> bool:
        """The Trio task.  It returns whether the block has suppressed the body's exception."""
        block = self._open_block()
        self._given.append(await block.__aenter__())
        self._crossing.wake()
        error: BaseException | None
        try:
            await self._leaving.wait()
            error = self._body_error
        except BaseException as cancelled:
            error = cancelled
        try:
            if error is None:
                await block.__aexit__(None, None, None)
                return False
            suppressed = bool(await block.__aexit__(type(error), error, error.__traceback__))
            if not suppressed and error is not self._body_error:
                raise error
            return suppressed
        finally:
            if self._is_inside:
                self._cut()

    def _cut(self) -> None:
        """The Trio block has ended, and the body has not."""
        self._is_cut = True
        self._task.cancel()

    async def _end_cut(self, error: BaseException | None) -> bool:
        """The Trio block ended first, and the asyncio task was cancelled for that."""
        if error is None:  # the cancellation has not arrived yet
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as arrived:
                error = arrived
        is_ours = self._task.uncancel() <= self._cancelling
        await self._crossing.until(lambda: False)
        if self._crossing.error is not None:
            raise self._crossing.error from error
        return is_ours and isinstance(error, asyncio.CancelledError | None)
