"""How methods of the Trio client become methods for blocking programs.

Each is made from the method that it calls, so it has the same parameters, for type checkers and for
`help`, and the same contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial, wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from octopi.blocking.blocks import BlockingBlock
from octopi.blocking.trio_thread import TrioThread

_T = TypeVar("_T")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_W = TypeVar("_W")


class BlockingWrapper(Generic[_T]):
    """An object of the Trio client, as a blocking program uses it."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: TrioThread, inner: _T) -> None:
        self._thread = thread
        self._inner = inner

    def __repr__(self) -> str:
        return f"<octopi.blocking: {self._inner!r}>"


def calling(
    method: Callable[Concatenate[_T, _P], Awaitable[_R]],
) -> Callable[Concatenate[BlockingWrapper[_T], _P], _R]:
    """*method* runs in a Trio task, and the caller waits for it."""

    @wraps(method)
    def call(self: BlockingWrapper[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._thread.call(partial(method, self._inner, *args, **kwargs))

    return call


def asking(
    method: Callable[Concatenate[_T, _P], _R],
) -> Callable[Concatenate[BlockingWrapper[_T], _P], _R]:
    """*method*, which doesn't wait, is called in the thread of Trio, and the caller waits for
    that."""

    @wraps(method)
    def call(self: BlockingWrapper[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._thread.ask(partial(method, self._inner, *args, **kwargs))

    return call


def opening(
    method: Callable[Concatenate[_T, _P], AbstractAsyncContextManager[_R]],
    wrap: Callable[[TrioThread, _R], _W],
) -> Callable[Concatenate[BlockingWrapper[_T], _P], AbstractContextManager[_W]]:
    """*method* opens a block; what it gives is wrapped by *wrap*."""

    @wraps(method)
    def call(
        self: BlockingWrapper[_T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AbstractContextManager[_W]:
        block = partial(method, self._inner, *args, **kwargs)
        return BlockingBlock(self._thread, block, wrap)

    return call
