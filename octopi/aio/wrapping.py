"""How methods of the Trio client become methods for asyncio programs.

Each is made from the method that it calls, so it has the same parameters, for type checkers and for
`help`, and the same contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from octopi.aio.blocks import AsyncioBlock
from octopi.aio.guest_run import GuestRun

_T = TypeVar("_T")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_W = TypeVar("_W")


class Wrapper(Generic[_T]):
    """An object of the Trio client, as an asyncio program uses it."""

    __slots__ = ("_inner", "_run")

    def __init__(self, run: GuestRun, inner: _T) -> None:
        self._run = run
        self._inner = inner

    def __repr__(self) -> str:
        return f"<octopi.aio: {self._inner!r}>"

    async def _guest_run(self) -> GuestRun:
        return self._run


def calling(
    method: Callable[Concatenate[_T, _P], Awaitable[_R]],
) -> Callable[Concatenate[Wrapper[_T], _P], Coroutine[Any, Any, _R]]:
    """*method* runs in a Trio task."""

    @wraps(method)
    async def call(self: Wrapper[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await self._run.call(partial(method, self._inner, *args, **kwargs))

    return call


def at_once(
    method: Callable[Concatenate[_T, _P], _R],
) -> Callable[Concatenate[Wrapper[_T], _P], _R]:
    """*method* doesn't wait, so it needs no Trio task."""

    @wraps(method)
    def call(self: Wrapper[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(self._inner, *args, **kwargs)

    return call


def opening(
    method: Callable[Concatenate[_T, _P], AbstractAsyncContextManager[_R]],
    wrap: Callable[[GuestRun, _R], _W],
) -> Callable[Concatenate[Wrapper[_T], _P], AbstractAsyncContextManager[_W]]:
    """*method* opens a block; what it gives is wrapped by *wrap*."""

    @wraps(method)
    def call(
        self: Wrapper[_T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AbstractAsyncContextManager[_W]:
        block = partial(method, self._inner, *args, **kwargs)
        return AsyncioBlock(self._guest_run, block, wrap)

    return call
