"""Carries out the parts of an order of the register at the same time, each of which comes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from octopi.errors import ProtocolError
from octopi.limits import LOGS_MADE_AT_ONCE_MAX
from octopi.wire import messages as m

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


def check_each_once(order: m.InstallPartitions | m.InstallTopics | m.RemoveTopics) -> None:
    """See that no partition or topic comes twice: the parts of an order are carried out at the same
    time, which is right only for different ones.

    Raises:
      ProtocolError: if one does.
    """
    what: str
    counts: Counter[int | str]
    match order:
        case m.InstallPartitions(partitions=partitions):
            what, counts = "partition", Counter(one.partition for one in partitions)
        case m.InstallTopics(topics=records):
            what, counts = "topic", Counter(one.topic for one in records)
        case m.RemoveTopics(topics=removed):
            what, counts = "creation of a topic", Counter(one.topic_id for one in removed)
    for one, count in counts.items():
        if count > 1:
            raise ProtocolError(f"an order names {what} {one} {count} times")
