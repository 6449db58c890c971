"""How waiting tasks hear that something has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

_T = TypeVar("_T")


class News:
    """Wakes all that wait, whenever it is told.

    Each of them then looks by itself whether it has something to do.  Between a look and the wait
    nothing may be awaited, or what is told meanwhile is missed.  Besides Trio's tasks a function
    can wait: so a program of another event loop is woken without a task of Trio's.
    """

    __slots__ = ("_listeners", "lot")

    def __init__(self) -> None:
        self.lot: Final = trio.lowlevel.ParkingLot()
        """Where tasks of Trio wait, by its `park`."""
        self._listeners: list[Callable[[], None]] = []

    def tell(self) -> None:
        """Wake them."""
        self.lot.unpark_all()
        if self._listeners:
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener()

    async def wait(self) -> None:
        """Return when it is told."""
        await self.lot.park()

    async def taken(self, attempt: Callable[[], _T]) -> _T:
        """What *attempt* returns, as soon as it doesn't raise `trio.WouldBlock`: it is tried again
        whenever this is told."""
        while True:
            try:
                return attempt()
            except trio.WouldBlock:
                await self.wait()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* when it is told, once; it must not raise."""
        self._listeners.append(listener)

    def ignore(self, listener: Callable[[], None]) -> None:
        """Don't call *listener*, if it wasn't called yet."""
        if listener in self._listeners:
            self._listeners.remove(listener)
