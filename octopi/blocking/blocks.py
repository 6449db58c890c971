"""Blocks of the Trio client, for ``with`` in blocking programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Generic, TypeVar

import trio

from octopi.blocking.trio_thread import Call, TrioThread

_T = TypeVar("_T")
_W = TypeVar("_W")


class BlockingBlock(AbstractContextManager[_W], Generic[_T, _W]):
    """A block of the Trio client.  One Trio task enters it, waits until the program leaves its own
    block, and leaves it in the same way: normally, or by the same exception.

    If the Trio block ends first, the thread isn't interrupted: `is_over` says so, and calls to what
    the block gave raise an error.
    """

    def __init__(
        self,
        thread: TrioThread,
        open_block: Callable[[], AbstractAsyncContextManager[_T]],
        wrap: Callable[[TrioThread, _T], _W],
    ) -> None:
        """*wrap*: makes of what the Trio block gives what the program gets."""
        self._thread = thread
        self._open_block = open_block
        self._wrap = wrap
        self._call: Call[bool] = Call(thread, self._live)
        self._given: list[_T] = []
        self._leaving: trio.Event
        self._body_error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether the Trio block has ended."""
        return self._call.is_over

    def __enter__(self) -> _W:
        self._thread.check()
        try:
            self._thread.begin(self._call)
            self._call.until(lambda: bool(self._given))
        except BaseException:
            self._call.abandon()
            raise
        if not self._given:
            self._call.result()
        try:
            return self._wrap(self._thread, self._given[0])
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not self._thread.is_usable and not self._call.is_over:
            return False  # in a forked child: the block is the parent's
        self._body_error = error
        self._thread.post(self._leave)
        try:
            return self._call.result()
        except BaseException as raised:
            if raised is error or (error is not None and self._call.is_cancelled):
                return False
            raise

    def _leave(self) -> None:
        self._leaving.set()

    async def _live(self) -> bool:
        """The Trio task.  It returns whether the block has suppressed the body's exception."""
        self._leaving = trio.Event()
        block = self._open_block()
        self._given.append(await block.__aenter__())
        self._call.wake()
        error: BaseException | None
        try:
            await self._leaving.wait()
            error = self._body_error
        except BaseException as cancelled:
            error = cancelled
        if error is None:
            await block.__aexit__(None, None, None)
            return False
        suppressed = bool(await block.__aexit__(type(error), error, error.__traceback__))
        if not suppressed and error is not self._body_error:
            raise error
        return suppressed and error is self._body_error
