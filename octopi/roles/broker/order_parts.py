"""Carries out the parts of an order of the register at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from octopi.limits import LOGS_MADE_AT_ONCE_MAX

_T = TypeVar("_T")


async def at_once(work: Callable[[_T], Awaitable[None]], parts: Iterable[_T]) -> None:
    """Await *work* for each of *parts*, at most `LOGS_MADE_AT_ONCE_MAX` at the same time, so that
    one operation of the device serves several."""
    limiter = trio.CapacityLimiter(LOGS_MADE_AT_ONCE_MAX)

    async def carry_out(part: _T) -> None:
        async with limiter:
            await work(part)

    async with trio.open_nursery() as nursery:
        for part in parts:
            nursery.start_soon(carry_out, part)
